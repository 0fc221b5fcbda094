#include "client/local/session.h"

#include <absl/strings/str_cat.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "client/local/test_point.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kMaxCalls = 64 * 1024;  // in flight, late ones included
// A receive gives up by itself after 50 ms (handshake.cc), so it can be used for longer waits.
constexpr milliseconds kBlockingReceive{60};

thread_local LocalSession::Blocking* blocking_here = nullptr;

timespec Until(LocalSession::Time when) {
  const auto left =
      std::max<std::chrono::nanoseconds>(when - steady_clock::now(), std::chrono::nanoseconds(0));
  return {.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
}

absl::Status Late() {
  return absl::DeadlineExceededError("no reply from the kvkeep daemon by the deadline");
}

}  // namespace

LocalSession::LocalSession(Greeting greeting, uint64_t epoch, BusyPoll::Duration busy_poll)
    : welcome_(greeting.welcome),
      max_payload_bytes_(greeting.chunk_limit.max_payload_bytes),
      epoch_(epoch),
      clock_doubt_(greeting.clock_doubt),
      mappings_(std::move(greeting.mappings)),
      socket_(mappings_->socket()),
      events_(std::move(greeting.events)),
      wake_(UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      buffer_(local::kMaxPacketBytes),
      busy_(busy_poll) {}

LocalSession::~LocalSession() = default;

uint64_t LocalSession::DeadlineNs(Time deadline) const {
  if (!clock_doubt_.has_value() || deadline == Time::max()) return 0;
  const auto theirs = deadline - *clock_doubt_;
  if (theirs <= steady_clock::now()) return 0;
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(theirs.time_since_epoch()).count());
}

// ---------------------------------------------------------------- sending

LocalSession::BlockingScope::BlockingScope(Blocking* blocking)
    : before_(std::exchange(blocking_here, blocking)) {}
LocalSession::BlockingScope::~BlockingScope() { blocking_here = before_; }

bool LocalSession::TakeBlocking() { return std::exchange(blocking_here, nullptr) != nullptr; }

void LocalSession::Send(uint64_t id, local::MessageWriter& request, Call call,
                        std::span<const int> fds) {
  Blocking* const blocking = std::exchange(blocking_here, nullptr);
  if (blocking != nullptr) {
    blocking->session = shared_from_this();
    blocking->deadline = call.deadline;
  }
  const Time deadline = call.deadline;
  if (absl::Status refused = Register(id, call); !refused.ok()) {
    if (call.copied) call.copied();
    (void)std::move(call.done)(std::move(refused));
    return;
  }
  bool started = false;
  absl::Status sent = Transmit(request.Finish(), fds, deadline, &started);
  if (blocking == nullptr) Wake();  // the thread may have to read, and has a deadline to keep
  if (sent.ok()) return;
  if (started || !absl::IsDeadlineExceeded(sent)) {
    return Break(absl::UnavailableError(absl::StrCat("local socket: ", sent.message())));
  }
  Withdraw(id);
}

absl::Status LocalSession::Register(uint64_t id, Call& call) {
  MutexLock lock(&mu_);
  if (closed_) return why_;
  if (calls_.size() >= kMaxCalls) {
    return absl::ResourceExhaustedError(
        absl::StrCat("calls in flight: at the client's limit of ", kMaxCalls));
  }
  calls_[id].call = std::move(call);
  ++live_;
  ++running_;
  return absl::OkStatus();
}

absl::Status LocalSession::AwaitSendTurn(Time deadline) {
  MutexLock lock(&mu_);
  while (sending_ && !closed_) {
    const auto left = deadline - steady_clock::now();
    if (left <= left.zero()) return Late();
    send_turn_.WaitFor(&mu_, left);
  }
  if (closed_) return absl::UnavailableError("the session is over");
  sending_ = true;
  return absl::OkStatus();
}

void LocalSession::EndSendTurn() {
  MutexLock lock(&mu_);
  sending_ = false;
  send_turn_.NotifyOne();
}

absl::Status LocalSession::Transmit(std::span<const std::byte> message, std::span<const int> fds,
                                    Time deadline, bool* started) {
  KVKEEP_RETURN_IF_ERROR(AwaitSendTurn(deadline));
  absl::Status sent;
  while (!message.empty()) {
    const auto packet = message.first(std::min(message.size(), local::kMaxPacketBytes));
    sent = local::SendPacket(socket_, packet, fds, MSG_DONTWAIT);
    if (sent.ok()) {
      *started = true;
      message = message.subspan(packet.size());
      fds = {};
      continue;
    }
    if (!absl::IsResourceExhausted(sent)) break;
    Wake();  // the daemon may wait until its replies are read
    pollfd room{.fd = socket_, .events = POLLOUT, .revents = 0};
    const timespec limit = Until(deadline);
    const int ready = ppoll(&room, 1, &limit, nullptr);
    if (ready == 0) {
      sent = Late();
      break;
    }
  }
  EndSendTurn();
  return sent;
}

void LocalSession::TellOfParts() {
  local::MessageWriter told(static_cast<uint16_t>(Kind::kPutFilled), 0);
  // If there is no room, the daemon looks by itself. If it is broken, the other socket reports it.
  (void)local::SendPacket(events_.get(), told.Finish(), {}, MSG_DONTWAIT);
}

// ---------------------------------------------------------------- reading

void LocalSession::ReadUntil(Waiting* waiting, Time deadline) {
  {
    MutexLock lock(&mu_);
    ++waiters_;
  }
  Turn turn;
  while ((turn = TakeTurn(waiting, deadline)) == Turn::kRead) {
    ReadBy(deadline);
    LeaveReading();
  }
  {
    MutexLock lock(&mu_);
    --waiters_;
    HandOver();
  }
  if (turn == Turn::kOverdue) ExpireOverdue();
  waiting->Wait();  // it is done, or another thread is ending it
}

LocalSession::Turn LocalSession::TakeTurn(Waiting* waiting, Time deadline) {
  while (true) {
    {
      MutexLock lock(&mu_);
      std::erase(followers_, waiting);
      if (waiting->done) return Turn::kDone;
      if (closed_) return Turn::kClosed;
      if (steady_clock::now() >= deadline) return Turn::kOverdue;
      if (!reading_) {
        reading_ = true;
        return Turn::kRead;
      }
      followers_.push_back(waiting);
      MutexLock mine(&waiting->mu);  // lock order: session, then waiting
      waiting->lead = false;
    }
    MutexLock lock(&waiting->mu);
    while (!waiting->done && !waiting->lead) {
      const auto left = deadline - steady_clock::now();
      if (left <= left.zero()) break;
      waiting->changed.WaitFor(&waiting->mu, left);
    }
  }
}

void LocalSession::LeaveReading() {
  MutexLock lock(&mu_);
  reading_ = false;
}

void LocalSession::HandOver() {
  if (reading_ || closed_) return;
  if (!followers_.empty()) {
    Waiting* const next = followers_.front();
    followers_.erase(followers_.begin());
    MutexLock lock(&next->mu);
    next->lead = true;
    next->changed.NotifyOne();
  } else if (!calls_.empty() && waiters_ == 0) {
    Wake();
  }
}

bool LocalSession::ReadBy(Time deadline) {
  const Time began = steady_clock::now();
  const bool poll = busy_.ShouldPoll();
  bool found = false;
  if (poll) {
    const Time end = std::min(began + busy_.limit(), deadline);
    do {
      found = ReadSome(MSG_DONTWAIT);
    } while (!found && !over() && steady_clock::now() < end);
  }
  const bool read = found || SleepAndRead(deadline);
  busy_.Waited(poll, found, steady_clock::now() - began);
  return read;
}

bool LocalSession::SleepAndRead(Time deadline) {
  if (deadline - steady_clock::now() >= kBlockingReceive) return ReadSome(0);
  pollfd readable{.fd = socket_, .events = POLLIN, .revents = 0};
  const timespec limit = Until(deadline);
  if (ppoll(&readable, 1, &limit, nullptr) <= 0) return false;
  return ReadSome(MSG_DONTWAIT);
}

bool LocalSession::ReadSome(int flags) {
  auto packet = local::ReceivePacket(socket_, buffer_, flags);
  if (!packet.ok()) {
    Break(absl::UnavailableError(absl::StrCat("local socket: ", packet.status().message())));
    return false;
  }
  if (!packet->has_value()) return false;
  auto message = assembler_.Take((*packet)->bytes, std::move((*packet)->descriptors));
  if (!message.ok()) {
    Break(absl::InternalError(absl::StrCat("local: ", message.status().message())));
    return false;
  }
  if (message->has_value()) Dispatch(**std::move(message));
  return true;
}

void LocalSession::Dispatch(local::Message message) {
  constexpr auto kCopied = static_cast<uint16_t>(Kind::kPutCopied);
  local::BodyReader body(message.body);
  if (message.id == 0) {  // the reason why the daemon will hang up
    return Break(absl::InternalError(absl::StrCat("local: the daemon ends the session: ",
                                                  local::ReadReplyStatus(&body).ToString())));
  }
  if ((message.kind & ~local::kReplyBit) == kCopied) {
    absl::AnyInvocable<void()> copied;
    {
      MutexLock lock(&mu_);
      const auto found = calls_.find(message.id);
      if (found != calls_.end()) copied = std::exchange(found->second.call.copied, nullptr);
    }
    if (copied) copied();
    return;
  }
  Pending pending;
  {
    MutexLock lock(&mu_);
    const auto found = calls_.find(message.id);
    const bool known =
        found != calls_.end() &&
        message.kind == (static_cast<uint16_t>(found->second.call.kind) | local::kReplyBit);
    if (known) {
      pending = std::move(found->second);
      calls_.erase(found);
      if (!pending.late) --live_;
    }
    if (!known && closed_) return;
    if (!known) pending.call.kind = Kind{};
  }
  if (pending.call.kind == Kind{}) {
    return Break(absl::InternalError(
        absl::StrCat("local: a reply of kind ", message.kind, " that nobody waits for")));
  }
  if (pending.call.copied) pending.call.copied();
  const bool headless = message.body.size() < sizeof(local::ReplyHead);
  const absl::Status status = local::ReadReplyStatus(&body);
  if (headless) {
    if (!pending.late) Finish(std::move(pending.call), status);
    return Break(status);
  }
  Reply reply{.body = body, .descriptors = std::move(message.descriptors)};
  if (!pending.late) {
    if (status.ok()) return Finish(std::move(pending.call), std::move(reply));
    return Finish(std::move(pending.call), status);
  }
  if (status.ok() && pending.call.late) std::move(pending.call.late)(std::move(reply));
}

void LocalSession::Finish(Call call, absl::StatusOr<Reply> reply) {
  const std::shared_ptr<LocalSession> self = shared_from_this();
  const absl::Status broken = std::move(call.done)(std::move(reply));
  call = {};
  if (!broken.ok()) Break(broken, absl::UnavailableError(broken.message()));
  MutexLock lock(&mu_);
  if (--running_ == 0) callbacks_done_.NotifyAll();
}

void LocalSession::ExpireOverdue() {
  const Time now = steady_clock::now();
  std::vector<Done> overdue;
  {
    MutexLock lock(&mu_);
    for (auto& [id, pending] : calls_) {
      if (pending.late || pending.call.deadline > now) continue;
      pending.late = true;
      --live_;
      overdue.push_back(std::move(pending.call.done));
    }
  }
  for (Done& done : overdue) Finish({.done = std::move(done)}, Late());
}

void LocalSession::Withdraw(uint64_t id) {
  Pending pending;
  {
    MutexLock lock(&mu_);
    const auto found = calls_.find(id);
    if (found == calls_.end()) return;
    pending = std::move(found->second);
    calls_.erase(found);
    if (!pending.late) --live_;
  }
  if (pending.call.copied) pending.call.copied();
  if (pending.late) return;
  Finish(std::move(pending.call), Late());
}

// ---------------------------------------------------------------- the end

void LocalSession::Break(const absl::Status& why, const absl::Status& for_calls) {
  absl::flat_hash_map<uint64_t, Pending> calls;
  {
    MutexLock lock(&mu_);
    if (closed_) return;
    closed_ = true;
    why_ = why;
    mappings_->SetOver();
    calls.swap(calls_);
    live_ = 0;
    releases_.clear();
    send_turn_.NotifyAll();
    for (Waiting* follower : followers_) {  // they see that it is over
      MutexLock mine(&follower->mu);
      follower->lead = true;
      follower->changed.NotifyOne();
    }
    followers_.clear();
  }
  mappings_->Leave();
  Wake();
  for (auto& [id, pending] : calls) {
    if (!pending.late) Finish(std::move(pending.call), for_calls);
  }
}

void LocalSession::AwaitCallbacks() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(closed_);
  while (running_ > 0) callbacks_done_.Wait(&mu_);
}

}  // namespace kvkeep::client
