#include "server/local/connection.h"

#include <absl/strings/str_cat.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "server/sockets/descriptor_reserve.h"
#include "server/sockets/unix_socket.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

using local::Kind;

constexpr int kPingsPerGrace = 4;
// Packets that are read off a socket before it closes: more than the send buffer of an unprivileged
// client holds, which is their only bound. Fewer packets with descriptors are read, as each
// descriptor must be closed.
constexpr int kMaxDrained = 1024;
constexpr int kMaxDrainedPassing = 64;

// The longest message of a client before Hello.
constexpr uint32_t kMostBeforeHello = 4 * kKiB;
constexpr size_t kKeptBytes = 256 * kKiB;  // of memory kept for messages of several packets

// Returns the header of the message that begins with this packet.
local::MessageHeader HeaderOf(std::span<const std::byte> packet) {
  local::MessageHeader header;
  if (packet.size() >= sizeof(header)) std::memcpy(&header, packet.data(), sizeof(header));
  return header;
}

}  // namespace

LocalConnection::LocalConnection(std::shared_ptr<const LocalContext> context, Round* round,
                                 uint64_t id, ExpendableFd socket, UniqueFd process,
                                 LocalPeer::Identity identity, MonotonicTime now)
    : context_(std::move(context)),
      round_(round),
      id_(id),
      opened_(now),
      open_(&context_->counters->open_connections),
      closes_(identity.closes),
      socket_(std::move(socket)),
      process_(std::move(process)),
      half_(context_, identity.messages),
      unsent_held_(context_, identity.messages),
      peer_(
          std::make_shared<LocalPeer>(context_, std::move(identity), static_cast<PeerSink*>(this))),
      heard_(now) {}

// Ends the session before the socket closes, as protocol.h promises: only the close tells the
// client that none of its puts is stored any more. The loop forgets the sockets here, as they may
// stay open for a while.
LocalConnection::~LocalConnection() {
  peer_->End();
  if (socket_watched_) round_->loop->Forget(socket_.get());
  if (events_watched_) round_->loop->Forget(events_.get());
}

absl::Status LocalConnection::Start() {
  watched_ = EPOLLIN | EPOLLRDHUP;
  absl::Status status = round_->loop->Watch(socket_.get(), Key(kSocket), watched_);
  socket_watched_ = status.ok();
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
    if (closed_) ReadOff(buffer);
  } else if ((events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) {
    Close(absl::CancelledError("the client left"));
  }
}

// Reads what is left: unread packets would make close(2) reset the client, which might then miss
// the last reply. So no more packets may come, either.
void LocalConnection::ReadOff(std::span<std::byte> buffer) {
  shutdown(socket_.get(), SHUT_RD);
  int passing = 0;
  for (int i = 0; i < kMaxDrained && passing < kMaxDrainedPassing; ++i) {
    std::vector<UniqueFd> passed;
    const auto packet = local::ReceivePacket(socket_.get(), buffer, MSG_DONTWAIT, &passed);
    passing += passed.empty() ? 0 : 1;
    RefuseDescriptors(&passed);
    if (!packet.ok() || !packet->has_value()) return;
  }
}

void LocalConnection::RefuseDescriptors(std::vector<UniqueFd>* passed) {
  context_->counters->passed_descriptors.fetch_add(passed->size(), std::memory_order_relaxed);
  for (UniqueFd& fd : *passed) DescriptorCloser::OfProcess().Close(std::move(fd), closes_);
  passed->clear();
}

void LocalConnection::ReadSocket(std::span<std::byte> buffer, MonotonicTime now) {
  // Up to the end of one message; the loop reports the rest again, after the others had their turn.
  do {
    std::vector<UniqueFd> passed;
    const absl::StatusOr<std::optional<std::span<const std::byte>>> packet =
        local::ReceivePacket(socket_.get(), buffer, MSG_DONTWAIT, &passed);
    const bool whole = packet.ok() && packet->has_value();
    if (!passed.empty() && !(whole && passed.size() == 1 && TakesDescriptor(**packet))) {
      RefuseDescriptors(&passed);
      return Broken(absl::InvalidArgumentError(
          "descriptors: one comes with a whole RegisterMemory or RegisterGpuMemory, no other"));
    }
    if (absl::IsInvalidArgument(packet.status())) return Broken(packet.status());
    if (!packet.ok()) return Close(packet.status());
    if (!packet->has_value()) return;
    heard_ = now;
    unanswered_.reset();
    OnPacket(**packet, std::move(passed), now);
  } while (!closed_ && in_message());
}

bool LocalConnection::TakesDescriptor(std::span<const std::byte> packet) const {
  const local::MessageHeader header = HeaderOf(packet);
  const auto kind = static_cast<Kind>(header.kind);
  return !in_message() && peer_->greeted() && header.bytes == packet.size() &&
         (kind == Kind::kRegisterMemory || kind == Kind::kRegisterGpuMemory);
}

bool LocalConnection::Skip(std::span<const std::byte> packet, MonotonicTime now) {
  if (skipping_ > 0) {
    if (packet.size() != std::min<uint64_t>(skipping_, local::kMaxPacketBytes)) {
      Broken(absl::InvalidArgumentError("a packet of another size than its message has left"));
    }
    skipping_ -= std::min<uint64_t>(skipping_, packet.size());
    if (skipping_ == 0) half_since_.reset();
    return true;
  }
  const local::MessageHeader header = HeaderOf(packet);
  if (!assembler_.idle() || header.bytes <= packet.size()) return false;
  if (!peer_->greeted() && header.bytes > kMostBeforeHello) {
    Broken(absl::InvalidArgumentError(absl::StrCat("a message of ", header.bytes,
                                                   " bytes before Hello was answered; at most ",
                                                   kMostBeforeHello)));
    return true;
  }
  if (header.bytes > local::kMaxMessageBytes || packet.size() != local::kMaxPacketBytes) {
    return false;  // the assembler refuses it, and says why
  }
  half_since_ = now;
  if (absl::Status held = half_.Add(header.bytes); !held.ok()) {
    skipping_ = header.bytes - packet.size();
    context_->counters->errors.fetch_add(1, std::memory_order_relaxed);
    Send(local::StartReply(static_cast<Kind>(header.kind), header.id, held).Finish(), {});
    return true;
  }
  assembler_.Lend(std::exchange(round_->spare, {}));
  return false;
}

void LocalConnection::OnPacket(std::span<const std::byte> packet, std::vector<UniqueFd> passed,
                               MonotonicTime now) {
  if (Skip(packet, now)) return;
  absl::StatusOr<std::optional<local::Message>> message =
      assembler_.Take(packet, std::move(passed));
  if (!message.ok()) return Broken(message.status());
  if (!message->has_value()) return;
  half_since_.reset();
  peer_->OnMessage(**std::move(message));
  if (half_.bytes() == 0) return;
  half_.Clear();
  std::vector<std::byte> memory = assembler_.TakeBack();
  if (memory.capacity() <= kKeptBytes) round_->spare = std::move(memory);
}

void LocalConnection::ReadEvents(std::span<std::byte> buffer, MonotonicTime now) {
  std::vector<UniqueFd> passed;
  const absl::StatusOr<std::optional<std::span<const std::byte>>> packet =
      local::ReceivePacket(events_.get(), buffer, MSG_DONTWAIT, &passed);
  const bool alone = passed.empty();
  RefuseDescriptors(&passed);
  if (!packet.ok()) return Close(packet.status());
  if (!packet->has_value()) return;
  local::MessageHeader header;
  const std::span<const std::byte> bytes = **packet;
  if (bytes.size() == sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  const auto kind = static_cast<Kind>(header.kind);
  if (!alone || (kind != Kind::kPong && (kind != Kind::kPutFilled || !peer_->OnPutFilled()))) {
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
      if (absl::Status held = unsent_held_.Add(packet.size()); !held.ok()) {
        context_->counters->broken_connections.fetch_add(1, std::memory_order_relaxed);
        Close(held);
        return;
      }
      unsent_.push_back(
          {.bytes = {packet.begin(), packet.end()}, .descriptors = std::move(descriptors)});
    } else if (!sent.ok()) {
      Close(sent);
      return;
    }
    descriptors.clear();
  } while (!message.empty());
  if (unsent_held_.bytes() <= context_->limits.max_unsent_bytes) return;
  context_->counters->broken_connections.fetch_add(1, std::memory_order_relaxed);
  Close(absl::ResourceExhaustedError(absl::StrCat("replies: ", unsent_held_.bytes(),
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
    unsent_held_.Remove(next.bytes.size());
    unsent_.pop_front();
    unsent_since_.reset();
  }
}

absl::StatusOr<UniqueFd> LocalConnection::OpenEvents() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("event socket: socketpair: ", std::strerror(errno)));
  }
  events_ = ExpendableFd(UniqueFd(pair[0]), closes_);
  TakeDescriptors(events_.get(), false);
  TakeDescriptors(socket_.get(), true);  // an admitted client may register memory
  UniqueFd client(pair[1]);
  if (InDescriptorReserve(client.get())) {
    return absl::ResourceExhaustedError(
        "descriptors: all but the daemon's reserve are in use; raise RLIMIT_NOFILE");
  }
  absl::Status watched = round_->loop->Watch(events_.get(), Key(kEvents), EPOLLIN);
  if (!watched.ok()) return watched;
  events_watched_ = true;
  return client;
}

void LocalConnection::SendEvent(std::span<const std::byte> message) {
  // A client that does not read its events is detected by its silence.
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

void LocalConnection::OnTick(std::span<std::byte> buffer, MonotonicTime now) {
  if (closed_) return;
  CheckDeadlines(now);
  if (!closed_) CheckLife(now);
  if (closed_) ReadOff(buffer);
}

void LocalConnection::CheckLife(MonotonicTime now) {
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

void LocalConnection::CheckDeadlines(MonotonicTime now) {
  const MonotonicTime grace = context_->limits.grace;
  const auto late = [&](std::optional<MonotonicTime>* since, bool waits) {
    if (!waits) since->reset();
    if (waits && !since->has_value()) *since = now;
    return waits && now - **since >= grace;
  };
  // While the socket is not read, the rest of its message cannot come.
  const bool half = late(&half_since_, in_message() && (watched_ & EPOLLIN) != 0);
  const bool unread = late(&unsent_since_, !unsent_.empty());
  if (!half && !unread) return;
  context_->counters->late_messages.fetch_add(1, std::memory_order_relaxed);
  Broken(absl::DeadlineExceededError(
      absl::StrCat(half ? "half a message came, and no more of it" : "replies are not read",
                   " for ", context_->limits.grace.count(), " ms")));
}

void LocalConnection::Ping(MonotonicTime now) {
  unanswered_ = now;
  SendEvent(local::MessageWriter(static_cast<uint16_t>(Kind::kPing), 0).Finish());
}

}  // namespace kvkeep
