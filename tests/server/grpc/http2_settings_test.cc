#include "proto/http2_settings.h"

#include <absl/strings/string_view.h>

#include <catch2/catch.hpp>
#include <optional>

namespace kvkeep {
namespace {

// Returns the value that a channel over `link` has for an argument, if any.
std::optional<int> ValueOf(absl::string_view name, Http2Link link) {
  grpc::ChannelArguments arguments;
  SetHttp2(link, &arguments);
  const grpc_channel_args all = arguments.c_channel_args();
  for (size_t i = 0; i < all.num_args; ++i) {
    if (all.args[i].key == name) return all.args[i].value.integer;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("gRPC probes networks, and no Unix socket") {
  CHECK(ValueOf(GRPC_ARG_HTTP2_BDP_PROBE, Http2Link::kThisMachine) == 0);
  CHECK(ValueOf(GRPC_ARG_HTTP2_BDP_PROBE, Http2Link::kNetwork) == std::nullopt);
  for (const Http2Link link : {Http2Link::kThisMachine, Http2Link::kNetwork}) {
    CHECK(ValueOf(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, link) == kHttp2FrameBytes);
  }
}

}  // namespace kvkeep
