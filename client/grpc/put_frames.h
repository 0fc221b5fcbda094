// PutFrames: cuts the chunks of a put into the frames of its stream. Internal; knows nothing of
// gRPC's calls.
//
// Payload is referenced, never copied: each frame's slices point into the caller's memory. The
// guard is told of every slice that is made and, through gRPC, of every slice that is gone. Not
// thread-safe, except for SliceGuard.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <string>
#include <vector>

#include "client/values/types.h"
#include "kvkeep/v1/kvkeep.pb.h"

namespace kvkeep::client {

// Counts the references to the caller's memory. `Gone` is called by gRPC, on any of its threads and
// possibly with locks of its own held.
class SliceGuard {
 public:
  virtual ~SliceGuard() = default;
  virtual void Made() = 0;
  virtual void Gone() = 0;
};

// Returns the header of a chunk, as a put with these options has it.
v1::PutChunkHeader ChunkHeaderOf(const PutChunk& chunk, const PutOptions& options);

class PutFrames {
 public:
  struct Header {
    std::string session_token;
    std::string namespace_digest;
    uint64_t max_frame_bytes = 0;
  };
  // Sends chunks[i] for each i in `send`, in that order. `chunks` and `guard` must outlive this.
  PutFrames(Header header, const PutOptions& options, const std::vector<PutChunk>* chunks,
            std::vector<uint32_t> send, SliceGuard* guard);

  bool done() const { return next_ == send_.size(); }
  // REQUIRES: not done().
  grpc::ByteBuffer Next();

 private:
  std::vector<grpc::Slice> TakePayload(uint64_t limit);

  const Header header_;
  const PutOptions options_;
  const std::vector<PutChunk>* const chunks_;
  const std::vector<uint32_t> send_;
  SliceGuard* const guard_;
  size_t next_ = 0;    // into send_
  uint64_t sent_ = 0;  // bytes of the chunk in progress
  size_t run_ = 0;     // of that chunk
  size_t run_at_ = 0;  // in that run
  bool first_ = true;  // of the stream
};

}  // namespace kvkeep::client
