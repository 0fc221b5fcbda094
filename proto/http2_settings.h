// HTTP/2 settings of both ends of kvkeep's gRPC connections.
#pragma once

#include <grpc/grpc.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace kvkeep {

// The largest DATA frame: fewer frames, fewer wake-ups.
inline constexpr int kHttp2FrameBytes = 4 << 20;

enum class Http2Link {
  kThisMachine,  // a Unix socket
  kNetwork,
};

// Sets how an end of `link` uses HTTP/2.
//
// gRPC probes a link (BDP) and lets as much come as it carries in a round trip. A network needs
// that: without it, puts over a round trip of 10 ms have a fifth of the throughput. On a Unix
// socket the probe mistakes time spent waiting for a core for the link's latency. So much comes
// that it is in no cache when it is copied, and malloc gives its pages back and faults them in
// anew: puts of 16 chunks of 4 MiB had a page fault for every other page of payload. There, only
// the message that is asked for comes, and 64 KiB of the next one.
inline void SetHttp2(Http2Link link, grpc::ChannelArguments* of_channel) {
  of_channel->SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  if (link == Http2Link::kThisMachine) of_channel->SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
}
inline void SetHttp2(Http2Link link, grpc::ServerBuilder* of_server) {
  of_server->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  if (link == Http2Link::kThisMachine) of_server->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
}

}  // namespace kvkeep
