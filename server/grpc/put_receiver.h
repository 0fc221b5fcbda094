// PutReceiver: turns a Put stream, frame by frame, into reservations of the store.
//
// Knows nothing of gRPC's streams: frames come in as memory runs, finished chunks go out as
// results. Payload bytes are copied once, from the frame straight into the reserved place. One
// thread at a time. Destroying it aborts the chunk in progress.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <span>

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/grpc/put_frame.h"
#include "server/observe/server_state.h"
#include "server/requests/chunk_put.h"
#include "tiers/store/store.h"

namespace kvkeep {

class PutReceiver {
 public:
  struct FinishedChunk {
    uint32_t ordinal = 0;
    ChunkPut put;

    v1::PutResult Result() const;
  };

  // Both must outlive the receiver. `caller`: the tenant that sends the frames.
  PutReceiver(Store* store, ServerCounters* counters, TenantId caller);
  ~PutReceiver();

  // Takes one frame; answers with the chunk that it finished, if any. An error ends the stream: the
  // client broke the protocol (InvalidArgument), its session is gone (FailedPrecondition), or its
  // tenant is over a rate (ResourceExhausted).
  absl::StatusOr<std::optional<FinishedChunk>> OnFrame(std::span<const WireRun> frame);
  // Ends the stream after the client's last frame. InvalidArgument: a chunk is unfinished; it is
  // aborted.
  absl::Status OnEnd();

 private:
  struct Chunk;

  absl::Status OpenStream(const v1::PutStreamHeader& header);
  absl::Status OpenChunk(v1::PutChunkHeader header);
  absl::Status Reserve(const v1::PutChunkHeader& header, const ChunkKey& key, Chunk& chunk);
  absl::Status TakePayload(const PutFrameView& frame);
  absl::StatusOr<FinishedChunk> FinishChunk();

  Store* const store_;
  ServerCounters* const counters_;
  const TenantId caller_;
  bool stream_open_ = false;
  SessionToken session_;
  NamespaceDigest ns_;
  NamespaceSpec spec_;
  uint32_t next_ordinal_ = 0;
  std::unique_ptr<Chunk> chunk_;  // in progress
};

}  // namespace kvkeep
