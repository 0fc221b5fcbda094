#include "server/sockets/http2_rules.h"

namespace kvkeep {
absl::string_view Http2FaultName(Http2Fault fault) {
  switch (fault) {
    case Http2Fault::kNone: return "none";
    case Http2Fault::kMemory: return "memory";
    case Http2Fault::kBeforeAck: return "before_ack";
    case Http2Fault::kHeaderBlock: return "header_block";
    case Http2Fault::kSettings: return "settings";
    case Http2Fault::kFrame: return "frame";
  }
  return "";
}

Http2Fault Http2Rules::Check(const FrameHead& head, MonotonicTime now) {
  switch (head.type) {
    case FrameType::kData: return Http2Fault::kNone;
    case FrameType::kHeaders:
      if (!acknowledged_ && ++headers_before_ack_ > kMostHeadersBeforeAck) {
        return Http2Fault::kBeforeAck;
      }
      block_bytes_ = head.payload_bytes;
      continuations_ = 0;
      return block_bytes_ > kMostHeaderBlockBytes ? Http2Fault::kHeaderBlock : Http2Fault::kNone;
    case FrameType::kContinuation:
      // A frame has at most 2^24 bytes, and the sum ends here once it is above the limit.
      block_bytes_ += head.payload_bytes;
      return block_bytes_ > kMostHeaderBlockBytes || ++continuations_ > kMostContinuations
                 ? Http2Fault::kHeaderBlock
                 : Http2Fault::kNone;
    case FrameType::kSettings:
      if (head.is_ack()) {
        acknowledged_ = true;
      } else {
        if (settings_.Wait(now).has_value()) return Http2Fault::kSettings;
        settings_.Take(1);
      }
      break;
    default: break;
  }
  return head.payload_bytes > kMostOtherFrameBytes ? Http2Fault::kFrame : Http2Fault::kNone;
}

}  // namespace kvkeep
