// The background thread's part of LocalSession: events, releases, deadlines, and the replies that
// no other thread waits for.
#include <absl/strings/str_cat.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "client/local/populate.h"
#include "client/local/session.h"
#include "client/local/test_point.h"
#include "tiers/base/bytes.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kReleaseDelay{1};
// While releases keep coming, the thread looks every kReleaseDelay instead of being woken for each.
constexpr milliseconds kTickOn{20};
constexpr size_t kMaxReleases = 64 * 1024;  // in one message
constexpr milliseconds kReleaseDeadline{5'000};

}  // namespace

void LocalSession::Wake() { (void)eventfd_write(wake_.get(), 1); }

void LocalSession::QueueRelease(uint64_t lease, uint32_t keep_keys) {
  const Time now = steady_clock::now();
  bool wake = false;
  {
    MutexLock lock(&mu_);
    if (closed_) return;  // it died with the session
    if (releases_.empty()) releases_since_ = now;
    releases_.push_back({.lease = lease, .keep_keys = keep_keys});
    last_release_ = now;
    wake = !std::exchange(ticking_, true);
  }
  TestPoint("release-queued");
  if (wake) Wake();
}

std::vector<local::ReleaseEntry> LocalSession::TakeReleases() {
  MutexLock lock(&mu_);
  if (releases_.size() <= kMaxReleases) return std::exchange(releases_, {});
  std::vector<local::ReleaseEntry> taken(releases_.begin(), releases_.begin() + kMaxReleases);
  releases_.erase(releases_.begin(), releases_.begin() + kMaxReleases);
  return taken;
}

void LocalSession::SendReleases(std::optional<local::ReleaseEntry> also, Time deadline,
                                absl::AnyInvocable<void(absl::Status) &&> done) {
  std::vector<local::ReleaseEntry> releases = TakeReleases();
  if (also.has_value()) releases.push_back(*also);
  if (releases.empty()) return std::move(done)(absl::OkStatus());
  const uint64_t id = NextId();
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kRelease), id);
  writer.Append(local::KeysRequest{.releases = static_cast<uint32_t>(releases.size())});
  writer.AppendAll(std::span<const local::ReleaseEntry>(releases));
  Call call{.kind = Kind::kRelease,
            .deadline = deadline,
            .done = nullptr,
            .late = nullptr,
            .copied = nullptr};
  call.done = [done = std::move(done)](absl::StatusOr<Reply> reply) mutable {
    std::move(done)(reply.status());
    return absl::OkStatus();
  };
  Send(id, writer, std::move(call));
  TestPoint("release-sent");
}

LocalSession::Plan LocalSession::MakePlan() {
  Plan plan;
  MutexLock lock(&mu_);
  plan.closed = closed_;
  if (closed_) return plan;
  const Time now = steady_clock::now();
  plan.read = !reading_ && waiters_ == 0 && !calls_.empty();
  if (live_ > 0) {
    for (const auto& [id, pending] : calls_) {
      if (!pending.late) plan.wake_at = std::min(plan.wake_at, pending.call.deadline);
    }
  }
  if (ticking_) {
    plan.release = !releases_.empty() && now - releases_since_ >= kReleaseDelay;
    if (releases_.empty() && now - last_release_ > kTickOn) {
      ticking_ = false;
    } else {
      plan.wake_at = std::min(plan.wake_at, now + kReleaseDelay);
    }
  }
  return plan;
}

void LocalSession::ReadInBackground() {
  {
    MutexLock lock(&mu_);
    if (reading_ || closed_) return;
    reading_ = true;
  }
  // Reads all replies that are there, unless a waiting thread wants to read.
  while (ReadSome(MSG_DONTWAIT)) {
    MutexLock lock(&mu_);
    if (waiters_ > 0) break;
  }
  MutexLock lock(&mu_);
  reading_ = false;
  HandOver();
}

bool LocalSession::ReadEvents() {
  std::vector<std::byte> buffer(local::kMaxPacketBytes);
  while (true) {
    auto packet = local::ReceivePacket(events_.get(), buffer, MSG_DONTWAIT);
    if (!packet.ok()) {
      Break(absl::UnavailableError(absl::StrCat("event socket: ", packet.status().message())));
      return false;
    }
    if (!packet->has_value()) return true;
    const std::span<const std::byte> bytes = (*packet)->bytes;
    if (bytes.size() < sizeof(local::MessageHeader)) continue;
    const auto header = LoadAt<local::MessageHeader>(bytes.data());
    switch (static_cast<Kind>(header.kind)) {
      case Kind::kPing: {
        local::MessageWriter pong(static_cast<uint16_t>(Kind::kPong), 0);
        (void)local::SendPacket(events_.get(), pong.Finish(), {}, MSG_DONTWAIT);
        break;
      }
      case Kind::kRevoked:
        Break(absl::UnavailableError(
            absl::StrCat("the daemon revoked the session: ",
                         std::string(AsText(bytes.subspan(sizeof(header)))))));
        return false;
      default:
        break;  // kDraining, after which the session ends; or an event of a later version
    }
  }
}

absl::Status LocalSession::Serve(Tend tend) {
  Populate populate(mappings_->shared_arena());
  Time tend_at = Time();
  while (true) {
    Plan plan = MakePlan();
    if (plan.closed) break;
    if (steady_clock::now() >= tend_at) {
      tend_at = tend();
      continue;
    }
    const Time expire_at = plan.wake_at;
    plan.wake_at = std::min(plan.wake_at, tend_at);
    if (plan.release) {
      SendReleases({}, steady_clock::now() + kReleaseDeadline, [](absl::Status) {});
      continue;
    }
    pollfd fds[] = {
        {.fd = wake_.get(), .events = POLLIN, .revents = 0},
        {.fd = events_.get(), .events = POLLIN, .revents = 0},
        {.fd = socket_, .events = static_cast<short>(plan.read ? POLLIN : 0), .revents = 0}};
    timespec limit{};
    if (plan.wake_at != Time::max()) {
      const auto left = std::max<std::chrono::nanoseconds>(plan.wake_at - steady_clock::now(),
                                                           std::chrono::nanoseconds(0));
      limit = {.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
    }
    const bool wait = populate.done() && plan.wake_at == Time::max();
    if (!populate.done()) limit = {};
    const int ready = ppoll(fds, 3, wait ? nullptr : &limit, nullptr);
    if (ready == 0 && !populate.done()) populate.Step();
    if (ready > 0) {
      if (fds[0].revents != 0) {
        eventfd_t ignored;
        (void)eventfd_read(wake_.get(), &ignored);
        if (nudged_.exchange(false, std::memory_order_acquire)) tend_at = Time();
      }
      if (fds[1].revents != 0) (void)ReadEvents();
      if (fds[2].revents != 0) ReadInBackground();  // its last message may say why it hung up
      if ((fds[2].revents & (POLLHUP | POLLERR)) != 0) {
        Break(absl::UnavailableError("the daemon closed the connection"));
      }
    }
    if (steady_clock::now() >= expire_at) ExpireOverdue();
  }
  MutexLock lock(&mu_);
  return why_;
}

}  // namespace kvkeep::client
