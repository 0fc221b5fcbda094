// Builds, sends, receives and reads messages of the local protocol. Both ends use it.
//
// MessageWriter builds one message; SendMessage and Receive move its packets over a socket;
// MessageAssembler joins packets; BodyReader reads a body with any contents. None is thread-safe;
// none keeps a descriptor that it was not told to.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "proto/local/protocol.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::local {

class MessageWriter {
 public:
  MessageWriter(uint16_t kind, uint64_t id);
  // Starts over; keeps the memory.
  void Reset(uint16_t kind, uint64_t id);

  template <typename T>
  void Append(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    AppendBytes(&value, sizeof(value));
  }
  template <typename T>
  void AppendAll(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    AppendBytes(values.data(), values.size_bytes());
  }
  void AppendText(absl::string_view text) { AppendBytes(text.data(), text.size()); }
  void AppendBytes(const void* data, size_t bytes);
  // Returns zeroed room for `bytes`, to be filled in place before the next Append.
  std::byte* Extend(size_t bytes);

  // Returns the whole message. REQUIRES: it has at most kMaxMessageBytes.
  std::span<const std::byte> Finish();

 private:
  std::vector<std::byte> bytes_;
};

// Writes a reply's header and head; if `status` is not OK, the whole reply.
MessageWriter StartReply(Kind kind, uint64_t id, const absl::Status& status = absl::OkStatus());

// A received message.
struct Message {
  uint16_t kind = 0;
  uint64_t id = 0;
  std::span<const std::byte> body;  // valid until the assembler takes the next packet
  std::vector<UniqueFd> descriptors;
};

// Joins packets. InvalidArgument: the framing is broken, and the connection is of no use.
class MessageAssembler {
 public:
  // A message longer than `max_message_bytes` is an error.
  explicit MessageAssembler(size_t max_message_bytes = kMaxMessageBytes)
      : max_message_bytes_(max_message_bytes) {}
  // Returns the message that this packet completes, if any. A message in one packet is not copied:
  // its body lies in `packet`.
  absl::StatusOr<std::optional<Message>> Take(std::span<const std::byte> packet,
                                              std::vector<UniqueFd> descriptors);
  bool idle() const { return wanted_ == 0; }  // no message is incomplete
  // Lend and take back memory for the next message of several packets, so that many assemblers
  // share it. REQUIRES: idle(); for TakeBack: the last message is no longer used.
  void Lend(std::vector<std::byte> memory) { partial_ = std::move(memory); }
  std::vector<std::byte> TakeBack() { return std::exchange(partial_, {}); }

 private:
  const size_t max_message_bytes_;
  size_t wanted_ = 0;  // bytes of the message under way; 0: none
  std::vector<std::byte> partial_;
  std::vector<UniqueFd> descriptors_;
};

// Reads a body front to back. After a call returns false, nothing more may be read.
class BodyReader {
 public:
  explicit BodyReader(std::span<const std::byte> body) : left_(body) {}

  template <typename T>
  bool Read(T* value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (left_.size() < sizeof(T)) return false;
    std::memcpy(value, left_.data(), sizeof(T));
    left_ = left_.subspan(sizeof(T));
    return true;
  }
  // Reads `count` values. Returns false, and reads nothing, if the body is shorter.
  template <typename T>
  bool ReadAll(uint64_t count, std::vector<T>* values) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > left_.size() / sizeof(T)) return false;
    values->resize(count);
    if (count > 0) std::memcpy(values->data(), left_.data(), count * sizeof(T));
    left_ = left_.subspan(count * sizeof(T));
    return true;
  }
  bool ReadBytes(uint64_t count, std::span<const std::byte>* bytes);
  std::span<const std::byte> rest() const { return left_; }
  bool done() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

// Returns the status in a reply's head, and leaves the reader behind it. Internal: the body is too
// short.
absl::Status ReadReplyStatus(BodyReader* reader);

// Sends one packet with descriptors (not taken over). Unavailable: the peer is gone.
// ResourceExhausted: the socket's buffer is full (non-blocking sockets and MSG_DONTWAIT only).
absl::Status SendPacket(int socket, std::span<const std::byte> packet, std::span<const int> fds,
                        int flags);
// Sends a whole message packet by packet, waiting for room; descriptors go with the first packet.
absl::Status SendMessage(int socket, std::span<const std::byte> message,
                         std::span<const int> fds = {});

struct Packet {
  std::span<const std::byte> bytes;  // in the buffer given
  std::vector<UniqueFd> descriptors;
};
// Receives one packet into `buffer` (kMaxPacketBytes). Returns none if there is nothing
// (MSG_DONTWAIT). Unavailable: the peer closed. InvalidArgument: the packet is too long, or not all
// of its descriptors arrived.
absl::StatusOr<std::optional<Packet>> ReceivePacket(int socket, std::span<std::byte> buffer,
                                                    int flags);
// Like the other Receive, from a peer that may pass anything: `passed` has all descriptors, even
// after an error, for the caller to close where it may wait.
absl::StatusOr<std::optional<std::span<const std::byte>>> ReceivePacket(
    int socket, std::span<std::byte> buffer, int flags, std::vector<UniqueFd>* passed);

}  // namespace kvkeep::local
