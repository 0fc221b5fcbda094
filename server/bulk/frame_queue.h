// FrameQueue: frames on their way to a client. A frame's payload is sent from where it lies; the
// frame holds it in place until its last byte was written. One thread at a time.
#pragma once

#include <google/protobuf/message_lite.h>
#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "proto/bulk/frame.h"
#include "server/bulk/byte_stream.h"
#include "server/requests/get_frames.h"

namespace kvkeep {

class FrameQueue {
 public:
  // Adds a frame without payload.
  void Add(bulk::FrameKind kind, const google::protobuf::MessageLite& message);
  // Adds a frame of a get.
  void Add(const GetFrames::Frame& frame);

  bool empty() const { return frames_.empty(); }
  size_t size() const { return frames_.size(); }
  void Clear() { frames_.clear(); }
  // Writes as much as goes now, `most` bytes at most or little more.
  ByteStream::Moved WriteTo(ByteStream& stream, uint64_t most);

 private:
  struct Queued {
    std::string head;  // and the message
    std::shared_ptr<const PinnedChunk> pin;
    uint64_t begin = 0, end = 0;  // of the payload, in the chunk's
    uint64_t written = 0;         // bytes of all
    uint64_t bytes() const { return head.size() + (end - begin); }
  };
  void Gather(uint64_t most);

  std::deque<Queued> frames_;
  std::vector<iovec> runs_;
};

}  // namespace kvkeep
