#include "proto/local/message.h"

#include <absl/strings/str_cat.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tiers/base/check.h"

namespace kvkeep::local {
namespace {

// Memory that an assembler keeps from one long message to the next.
constexpr size_t kKeptBytes = 256 * kKiB;

// There is room for as many as the kernel passes at once: this process may have no more of them.
absl::Status TooFewDescriptors() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  return absl::InvalidArgumentError(absl::StrCat(
      "the descriptors of a packet did not fit: RLIMIT_NOFILE of this process is ", files.rlim_cur,
      ", and up to ", kMaxDescriptorsPerPacket,
      " come at once; raise it (LimitNOFILE=, ulimit -n)"));
}

}  // namespace

MessageWriter::MessageWriter(uint16_t kind, uint64_t id) { Reset(kind, id); }

void MessageWriter::Reset(uint16_t kind, uint64_t id) {
  bytes_.clear();
  Append(MessageHeader{.kind = kind, .id = id});
}

void MessageWriter::AppendBytes(const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), from, from + bytes);
}

std::byte* MessageWriter::Extend(size_t bytes) {
  bytes_.resize(bytes_.size() + bytes);
  return bytes_.data() + bytes_.size() - bytes;
}

std::span<const std::byte> MessageWriter::Finish() {
  KVKEEP_CHECK(bytes_.size() <= kMaxMessageBytes);
  const uint32_t bytes = static_cast<uint32_t>(bytes_.size());
  std::memcpy(bytes_.data() + offsetof(MessageHeader, bytes), &bytes, sizeof(bytes));
  return bytes_;
}

MessageWriter StartReply(Kind kind, uint64_t id, const absl::Status& status) {
  MessageWriter writer(static_cast<uint16_t>(kind) | kReplyBit, id);
  writer.Append(ReplyHead{.code = static_cast<uint32_t>(status.code())});
  if (!status.ok()) writer.AppendText(status.message().substr(0, kMaxPacketBytes / 2));
  return writer;
}

absl::StatusOr<std::optional<Message>> MessageAssembler::Take(std::span<const std::byte> packet,
                                                              std::vector<UniqueFd> descriptors) {
  const bool first = wanted_ == 0;
  if (first) {
    if (packet.size() < sizeof(MessageHeader)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a packet of ", packet.size(), " bytes is no message"));
    }
    MessageHeader header;
    std::memcpy(&header, packet.data(), sizeof(header));
    if (header.bytes < sizeof(header) || header.bytes > max_message_bytes_) {
      return absl::InvalidArgumentError(absl::StrCat("a message of ", header.bytes, " bytes; ",
                                                     sizeof(header), " to ", max_message_bytes_,
                                                     " are possible"));
    }
    wanted_ = header.bytes;
    if (partial_.capacity() > kKeptBytes) std::vector<std::byte>().swap(partial_);
    partial_.clear();
    descriptors_ = std::move(descriptors);
  } else if (!descriptors.empty()) {
    return absl::InvalidArgumentError("descriptors come with the first packet of a message");
  }
  const size_t left = wanted_ - partial_.size();
  if (packet.size() != std::min(left, kMaxPacketBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("a packet of ", packet.size(), " bytes where ",
                                                   std::min(left, kMaxPacketBytes),
                                                   " were to come"));
  }
  std::span<const std::byte> whole = packet;
  if (!first || packet.size() < left) {
    partial_.reserve(wanted_);  // no more than it needs, however it comes
    partial_.insert(partial_.end(), packet.begin(), packet.end());
    if (packet.size() < left) return std::nullopt;
    whole = partial_;
  }
  MessageHeader header;
  std::memcpy(&header, whole.data(), sizeof(header));
  wanted_ = 0;
  return Message{.kind = header.kind,
                 .id = header.id,
                 .body = whole.subspan(sizeof(header)),
                 .descriptors = std::move(descriptors_)};
}

bool BodyReader::ReadBytes(uint64_t count, std::span<const std::byte>* bytes) {
  if (count > left_.size()) return false;
  *bytes = left_.first(count);
  left_ = left_.subspan(count);
  return true;
}

absl::Status ReadReplyStatus(BodyReader* reader) {
  ReplyHead head;
  if (!reader->Read(&head)) return absl::InternalError("a reply without a head");
  if (head.code == 0) return absl::OkStatus();
  const std::span<const std::byte> text = reader->rest();
  return absl::Status(static_cast<absl::StatusCode>(head.code),
                      absl::string_view(reinterpret_cast<const char*>(text.data()), text.size()));
}

absl::Status SendPacket(int socket, std::span<const std::byte> packet, std::span<const int> fds,
                        int flags) {
  KVKEEP_CHECK(packet.size() <= kMaxPacketBytes && fds.size() <= kMaxDescriptorsPerPacket);
  iovec run{.iov_base = const_cast<std::byte*>(packet.data()), .iov_len = packet.size()};
  msghdr message{};
  message.msg_iov = &run;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptorsPerPacket)> control;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return absl::OkStatus();
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    return absl::ResourceExhaustedError("the socket's buffer is full");
  }
  return absl::UnavailableError(absl::StrCat("sendmsg: ", std::strerror(errno)));
}

absl::Status SendMessage(int socket, std::span<const std::byte> message, std::span<const int> fds) {
  do {
    const auto packet = message.first(std::min(message.size(), kMaxPacketBytes));
    absl::Status sent = SendPacket(socket, packet, fds, 0);
    if (absl::IsResourceExhausted(sent)) {  // a non-blocking socket
      pollfd room{.fd = socket, .events = POLLOUT, .revents = 0};
      if (poll(&room, 1, -1) < 0 && errno != EINTR) {
        return absl::UnavailableError(absl::StrCat("poll: ", std::strerror(errno)));
      }
      continue;
    }
    if (!sent.ok()) return sent;
    message = message.subspan(packet.size());
    fds = {};
  } while (!message.empty());
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Packet>> ReceivePacket(int socket, std::span<std::byte> buffer,
                                                    int flags) {
  std::vector<UniqueFd> passed;
  absl::StatusOr<std::optional<std::span<const std::byte>>> received =
      ReceivePacket(socket, buffer, flags, &passed);
  if (!received.ok()) return received.status();
  if (!received->has_value()) return std::nullopt;
  return Packet{.bytes = **received, .descriptors = std::move(passed)};
}

absl::StatusOr<std::optional<std::span<const std::byte>>> ReceivePacket(
    int socket, std::span<std::byte> buffer, int flags, std::vector<UniqueFd>* passed) {
  iovec run{.iov_base = buffer.data(), .iov_len = buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptorsPerPacket)> control;
  msghdr message{};
  message.msg_iov = &run;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received;
  do {
    received = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  if (received < 0) return absl::UnavailableError(absl::StrCat("recvmsg: ", std::strerror(errno)));
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
      passed->emplace_back(fd);
    }
  }
  // An empty packet cannot be told from the end, and no message is empty.
  if (received == 0) return absl::UnavailableError("the peer closed the connection");
  if ((message.msg_flags & MSG_CTRUNC) != 0) return TooFewDescriptors();
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a packet of more than ", buffer.size(), " bytes"));
  }
  return buffer.first(static_cast<size_t>(received));
}

}  // namespace kvkeep::local
