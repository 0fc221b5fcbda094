// The two payload messages of kvkeep.v1, PutFrame and GetFrame, without a copy of the payload.
//
// The wire format is plain Protobuf: the generated code or a field walk writes and reads the small
// fields, and the payload (the last field) stays where it is. Tests compare both with the generated
// parser. Received bytes are never trusted: every length is checked before use.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client/transport/chunk_frame.h"

namespace google::protobuf {
class MessageLite;
}

namespace kvkeep::client::wire {

// Returns the message `head`, which lacks its payload field (number 15), with `payload` in it. The
// slices are referenced, not copied.
grpc::ByteBuffer AppendPayload(const google::protobuf::MessageLite& head,
                               std::vector<grpc::Slice> payload);
grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);
// Returns false if the message is malformed.
bool Parse(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message);

// A GetFrame whose payload points into the slices it holds.
struct GetFrameView : ChunkFrame {
  GetFrameView() = default;
  GetFrameView(GetFrameView&&) =
      default;  // no copy: gRPC keeps tiny slices inside the Slice itself
  GetFrameView& operator=(GetFrameView&&) = default;

  std::vector<grpc::Slice> slices;                  // own the memory of `payload`
};

// InvalidArgument: not a GetFrame. Any field order parses; unknown fields are skipped.
absl::StatusOr<GetFrameView> ParseGetFrame(const grpc::ByteBuffer& buffer);

}  // namespace kvkeep::client::wire
