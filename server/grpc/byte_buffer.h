// Slices of a gRPC ByteBuffer as memory runs, and back.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <vector>

#include "server/grpc/wire.h"

namespace kvkeep {

// Keeps references to the buffer's slices; the runs are valid while this lives.
class BufferRuns {
 public:
  explicit BufferRuns(const grpc::ByteBuffer& buffer) {
    if (!buffer.Dump(&slices_).ok()) return;  // an empty message
    for (const grpc::Slice& slice : slices_) {
      runs_.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
    }
  }
  std::span<const WireRun> runs() const { return runs_; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<WireRun> runs_;
};

inline grpc::ByteBuffer ToByteBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

inline bool ParseByteBuffer(const grpc::ByteBuffer& buffer,
                            google::protobuf::MessageLite* message) {
  const BufferRuns runs(buffer);
  std::string bytes;
  for (const WireRun& run : runs.runs()) {
    bytes.append(reinterpret_cast<const char*>(run.data()), run.size());
  }
  return message->ParseFromString(bytes);
}

}  // namespace kvkeep
