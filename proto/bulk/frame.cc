#include "proto/bulk/frame.h"

#include <cstring>

namespace kvkeep::bulk {

std::string EncodeHead(FrameKind kind, size_t message_bytes, uint64_t payload_bytes) {
  const FrameHead head{.kind = kind,
                       .message_bytes = static_cast<uint32_t>(message_bytes),
                       .payload_bytes = payload_bytes};
  return std::string(reinterpret_cast<const char*>(&head), sizeof(head));
}

FrameHead DecodeHead(std::span<const std::byte, kHeadBytes> bytes) {
  FrameHead head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  return head;
}

}  // namespace kvkeep::bulk
