#include "server/local/connection.h"

#include <absl/strings/str_cat.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "server/descriptor_reserve.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

using local::Kind;

constexpr int kPingsPerGrace = 4;
constexpr int kMaxDrained = 64;

// Unread packets would make close(2) reset the client, which then may not see the last reply.
void ReadOff(int socket, std::span<std::byte> buffer) {
  for (int i = 0; i < kMaxDrained; ++i) {
    const auto packet = local::ReceivePacket(socket, buffer, MSG_DONTWAIT);
    if (!packet.ok() || !packet->has_value()) return;
  }
}

}  // namespace

LocalConnection::LocalConnection(std::shared_ptr<const LocalContext> context, Round* round,
                                 uint64_t id, UniqueFd socket, UniqueFd process,
                                 LocalPeer::Identity identity, MonotonicTime now)
    : context_(std::move(context)),
      round_(round),
      id_(id),
      opened_(now),
      open_(&context_->counters->open_connections),
      socket_(std::move(socket)),
      process_(std::move(process)),
      peer_(
          std::make_shared<LocalPeer>(context_, std::move(identity), static_cast<PeerSink*>(this))),
      heard_(now) {}

// The session ends before the socket closes, as protocol.h promises: only what follows the close
// tells the client that no put of it is stored any more.
LocalConnection::~LocalConnection() { peer_->End(); }

absl::Status LocalConnection::Start() {
  watched_ = EPOLLIN | EPOLLRDHUP;
  absl::Status status = round_->loop->Watch(socket_.get(), Key(kSocket), watched_);
  if (status.ok() && process_.valid()) {
    status = round_->loop->Watch(process_.get(), Key(kProcess), EPOLLIN);
  }
  return status;
}

void LocalConnection::OnEvent(Channel channel, uint32_t events, std::span<std::byte> buffer,
                              MonotonicTime now) {
  if (closed_) return;
  Touch();
  switch (channel) {
    case kProcess:
      context_->counters->dead_processes.fetch_add(1, std::memory_order_relaxed);
      Close(absl::CancelledError("the client's process ended"));
      return;
    case kEvents:
      ReadEvents(buffer, now);
      return;
    default:
      break;
  }
  if ((events & EPOLLOUT) != 0) SendUnsent();
  if (!closed_ && (events & watched_ & EPOLLIN) != 0) {
    ReadSocket(buffer, now);
    if (closed_) ReadOff(socket_.get(), buffer);
  } else if ((events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) {
    Close(absl::CancelledError("the client left"));
  }
}

void LocalConnection::ReadSocket(std::span<std::byte> buffer, MonotonicTime now) {
  // Up to the end of one message; the rest is told again, after the others had their turn.
  do {
    absl::StatusOr<std::optional<local::Packet>> packet =
        local::ReceivePacket(socket_.get(), buffer, MSG_DONTWAIT);
    if (absl::IsInvalidArgument(packet.status())) return Broken(packet.status());
    if (!packet.ok()) return Close(packet.status());
    if (!packet->has_value()) return;
    heard_ = now;
    unanswered_.reset();
    absl::StatusOr<std::optional<local::Message>> message =
        assembler_.Take((**packet).bytes, std::move((**packet).descriptors));
    if (!message.ok()) return Broken(message.status());
    if (message->has_value()) peer_->OnMessage(**std::move(message));
  } while (!closed_ && !assembler_.idle());
}

void LocalConnection::ReadEvents(std::span<std::byte> buffer, MonotonicTime now) {
  const absl::StatusOr<std::optional<local::Packet>> packet =
      local::ReceivePacket(events_.get(), buffer, MSG_DONTWAIT);
  if (!packet.ok()) return Close(packet.status());
  if (!packet->has_value()) return;
  local::MessageHeader header;
  const std::span<const std::byte> bytes = (**packet).bytes;
  if (bytes.size() == sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  const auto kind = static_cast<Kind>(header.kind);
  if (!(**packet).descriptors.empty() ||
      (kind != Kind::kPong && (kind != Kind::kPutFilled || !peer_->OnPutFilled()))) {
    return Broken(absl::InvalidArgumentError(
        "on the event socket a client sends Pong, from version 5 on PutFilled too"));
  }
  heard_ = now;
  unanswered_.reset();
}

void LocalConnection::Send(std::span<const std::byte> message, std::vector<UniqueFd> descriptors) {
  if (closed_) return;
  Touch();
  do {
    const auto packet = message.first(std::min(message.size(), local::kMaxPacketBytes));
    message = message.subspan(packet.size());
    absl::Status sent = absl::ResourceExhaustedError("behind others");
    if (unsent_.empty()) {
      std::vector<int> fds;
      for (const UniqueFd& fd : descriptors) fds.push_back(fd.get());
      sent = local::SendPacket(socket_.get(), packet, fds, MSG_DONTWAIT);
    }
    if (absl::IsResourceExhausted(sent)) {
      unsent_bytes_ += packet.size();
      unsent_.push_back(
          {.bytes = {packet.begin(), packet.end()}, .descriptors = std::move(descriptors)});
    } else if (!sent.ok()) {
      Close(sent);
      return;
    }
    descriptors.clear();
  } while (!message.empty());
  if (unsent_bytes_ <= context_->limits.max_unsent_bytes) return;
  context_->counters->broken_connections.fetch_add(1, std::memory_order_relaxed);
  Close(absl::ResourceExhaustedError(absl::StrCat("replies: ", unsent_bytes_,
                                                  " bytes are not read by the client, allowed are ",
                                                  context_->limits.max_unsent_bytes)));
}

void LocalConnection::SendUnsent() {
  while (!unsent_.empty()) {
    const Unsent& next = unsent_.front();
    std::vector<int> fds;
    for (const UniqueFd& fd : next.descriptors) fds.push_back(fd.get());
    const absl::Status sent = local::SendPacket(socket_.get(), next.bytes, fds, MSG_DONTWAIT);
    if (absl::IsResourceExhausted(sent)) return;
    if (!sent.ok()) return Close(sent);
    unsent_bytes_ -= next.bytes.size();
    unsent_.pop_front();
  }
}

absl::StatusOr<UniqueFd> LocalConnection::OpenEvents() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("event socket: socketpair: ", std::strerror(errno)));
  }
  events_ = UniqueFd(pair[0]);
  UniqueFd client(pair[1]);
  if (InDescriptorReserve(client.get())) {
    return absl::ResourceExhaustedError(
        "descriptors: all but the daemon's reserve are in use; raise RLIMIT_NOFILE");
  }
  absl::Status watched = round_->loop->Watch(events_.get(), Key(kEvents), EPOLLIN);
  if (!watched.ok()) return watched;
  return client;
}

void LocalConnection::SendEvent(std::span<const std::byte> message) {
  // A client that does not read its events is found by its silence.
  if (!closed_ && events_.valid()) {
    local::SendPacket(events_.get(), message, {}, MSG_DONTWAIT).IgnoreError();
  }
}

void LocalConnection::Broken(const absl::Status& why) {
  context_->counters->broken_connections.fetch_add(1, std::memory_order_relaxed);
  Send(local::StartReply(Kind{0}, 0, why).Finish(), {});
  Close(why);
}

void LocalConnection::Close(const absl::Status&) {
  closed_ = true;
  Touch();
}

void LocalConnection::Touch() {
  if (std::exchange(touched_, true)) return;
  round_->touched.push_back(id_);
}

bool LocalConnection::Settle() {
  touched_ = false;
  if (closed_) return false;
  uint32_t wanted = EPOLLRDHUP;  // a client that leaves waits for us to close
  if (!unsent_.empty()) {
    wanted |= EPOLLOUT;
  } else if (peer_->ready()) {
    wanted |= EPOLLIN;
  }
  if (wanted == watched_) return true;
  watched_ = wanted;
  round_->loop->Change(socket_.get(), Key(kSocket), wanted);
  return true;
}

void LocalConnection::OnTick(MonotonicTime now) {
  if (closed_) return;
  if (!peer_->open()) {
    if (!events_.valid() && now - opened_ > context_->limits.handshake_timeout) {
      Broken(absl::DeadlineExceededError("no Hello came"));
    }
    return;
  }
  peer_->OnTick(now);
  if (!peer_->holds_something()) {
    unanswered_.reset();
    return;
  }
  const MonotonicTime grace = context_->limits.grace;
  if (unanswered_.has_value() && now - *unanswered_ >= grace) {
    peer_->Revoke(absl::StrCat("no answer for ", context_->limits.grace.count(),
                               " ms: the session's leases are given to others"));
    unanswered_.reset();
  } else if (!unanswered_.has_value() && now - heard_ >= grace / kPingsPerGrace) {
    Ping(now);
  }
}

void LocalConnection::Ping(MonotonicTime now) {
  unanswered_ = now;
  SendEvent(local::MessageWriter(static_cast<uint16_t>(Kind::kPing), 0).Finish());
}

}  // namespace kvkeep
