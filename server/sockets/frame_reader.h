// FrameReader: finds the heads of HTTP/2 frames in the bytes that a client sends, split anywhere.
//
// It skips the connection preface and every payload, and holds nine bytes at most (RFC 9113,
// sections 3.4 and 4.1). The work is one step a frame. A client that does not begin with the
// preface speaks something else, such as TLS, and none of its bytes are read: gRPC refuses it.
// Thread-compatible.
#pragma once

#include <absl/strings/string_view.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvkeep {

// The frame types that matter here (RFC 9113, section 6).
enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8,
  kContinuation = 9,
};

struct FrameHead {
  uint32_t payload_bytes = 0;
  FrameType type{};
  uint8_t flags = 0;
  uint32_t stream = 0;

  // SETTINGS and PING: it answers one of ours.
  bool is_ack() const { return (flags & 1) != 0; }
};

class FrameReader {
 public:
  static constexpr size_t kHeadBytes = 9;
  static constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

  // Calls `visit` with each frame head that is complete by the end of `bytes`. Stops and returns
  // false where `visit` returns false; the reader is of no use then.
  template <typename Visit>
  bool Read(std::span<const std::byte> bytes, const Visit& visit) {
    if (preface_left_ > 0) bytes = SkipPreface(bytes);
    while (!bytes.empty() && !foreign_) {
      if (to_skip_ > 0) {
        const size_t skipped = std::min<size_t>(to_skip_, bytes.size());
        to_skip_ -= static_cast<uint32_t>(skipped);
        bytes = bytes.subspan(skipped);
        continue;
      }
      const size_t taken = std::min(kHeadBytes - have_, bytes.size());
      std::copy_n(bytes.begin(), taken, head_.begin() + have_);
      have_ += taken;
      bytes = bytes.subspan(taken);
      if (have_ < kHeadBytes) return true;
      const FrameHead head = Parse();
      have_ = 0;
      to_skip_ = head.payload_bytes;
      in_data_ = head.type == FrameType::kData;
      if (!visit(head)) return false;
    }
    return true;
  }

  // Returns how many bytes of the last DATA frame's payload are to come; 0 within any other frame.
  size_t data_to_come() const { return in_data_ ? to_skip_ : 0; }

 private:
  std::span<const std::byte> SkipPreface(std::span<const std::byte> bytes) {
    const size_t taken = std::min(preface_left_, bytes.size());
    const absl::string_view wanted = kPreface.substr(kPreface.size() - preface_left_, taken);
    foreign_ = foreign_ || !std::equal(wanted.begin(), wanted.end(), bytes.begin(),
                                       [](char a, std::byte b) { return std::byte(a) == b; });
    preface_left_ -= taken;
    return bytes.subspan(taken);
  }
  uint32_t At(size_t place) const { return std::to_integer<uint32_t>(head_[place]); }
  FrameHead Parse() const {
    return {.payload_bytes = At(0) << 16 | At(1) << 8 | At(2),
            .type = static_cast<FrameType>(At(3)),
            .flags = static_cast<uint8_t>(At(4)),
            .stream = (At(5) << 24 | At(6) << 16 | At(7) << 8 | At(8)) & 0x7fffffff};
  }

  size_t preface_left_ = kPreface.size();
  bool foreign_ = false;  // it did not begin with the preface
  uint32_t to_skip_ = 0;
  bool in_data_ = false;
  size_t have_ = 0;
  std::array<std::byte, kHeadBytes> head_;
};

}  // namespace kvkeep
