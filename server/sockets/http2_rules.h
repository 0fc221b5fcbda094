// Http2Rules: what a client of HTTP/2 may do on one connection. A client that breaks a rule is cut
// off.
//
// gRPC 1.51.1 (Debian 12) has no such limits: each of these frames makes it take memory that no
// quota counts. The limits are far from what the gRPC clients of any language send: at most 100
// HEADERS before they acknowledge our SETTINGS, header blocks below 16 KiB, and SETTINGS now and
// then. PINGs have no rule: clients in Go send one a round trip while data comes, to measure the
// link; they count as frames (http2_gate.h). Thread-compatible.
#pragma once

#include <absl/strings/string_view.h>

#include <cstddef>
#include <cstdint>

#include "server/sockets/frame_reader.h"
#include "tiers/base/clock.h"
#include "tiers/base/token_bucket.h"

namespace kvkeep {

enum class Http2Fault : uint8_t {
  kNone,
  kMemory,       // all calls together hold more than limits.call_memory (http2_gate.h)
  kBeforeAck,    // too many HEADERS before our SETTINGS are acknowledged
  kHeaderBlock,  // a header block of too many bytes or frames
  kSettings,
  kFrame,  // a large frame that is neither DATA nor headers
};
inline constexpr size_t kHttp2Faults = 6;  // kNone with them
// Returns its name in counters and the log.
absl::string_view Http2FaultName(Http2Fault fault);

class Http2Rules {
 public:
  static constexpr uint32_t kMostHeadersBeforeAck = 100;
  static constexpr uint32_t kMostHeaderBlockBytes = 32 << 10;
  static constexpr uint32_t kMostContinuations = 8;
  static constexpr uint32_t kMostOtherFrameBytes = 16 << 10;
  static constexpr uint32_t kSettingsPerSecond = 10;  // those of ten seconds at once

  // Returns the rule that this frame breaks, the next one of the connection.
  Http2Fault Check(const FrameHead& head, MonotonicTime now);

 private:
  bool acknowledged_ = false;
  uint32_t headers_before_ack_ = 0;
  uint32_t block_bytes_ = 0, continuations_ = 0;
  TokenBucket settings_{kSettingsPerSecond, std::chrono::seconds(10)};
};

}  // namespace kvkeep
