#include "server/sockets/http2_gate.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace kvkeep {
namespace {

constexpr int kMostDescriptors = 1 << 20;  // as guarded_sockets.cc: higher ones are not served
constexpr size_t kMostOwners = 4096;       // with a budget of resets of their own
constexpr size_t kMostNotices = 16;        // not taken yet
constexpr std::chrono::milliseconds kResumeTick{5};
constexpr std::chrono::seconds kNoticeEvery{10};

// By descriptor. It has no constructor, so it is null before any code runs: close(2) is called
// early.
std::array<std::atomic<Http2Connection*>, kMostDescriptors> connections;

MonotonicTime Now() { return RealClock()->Now(); }

}  // namespace

Http2Gate& Http2Gate::OfProcess() {
  static auto* const gate = new Http2Gate;
  return *gate;
}

Http2Gate::Http2Gate()
    : resumer_([this] {
        pthread_setname_np(pthread_self(), "kvkeep-gate");
        Resume();
      }) {}

void Http2Gate::SetLimits(const Http2Limits& limits) {
  call_memory_bytes_ = limits.call_memory_bytes;
  resets_per_second_ = limits.resets_per_second;
}

std::shared_ptr<ResetBudget> Http2Gate::ResetsOf(const std::string& owner) {
  const auto found = resets_.find(owner);
  if (found != resets_.end()) return found->second;
  // A budget is kept while it is not full, so that a new connection does not bring a new one.
  if (resets_.size() >= kMostOwners) {
    const MonotonicTime now = Now();
    absl::erase_if(resets_, [now](const auto& entry) {
      return entry.second.use_count() == 1 && entry.second->IsFull(now);
    });
  }
  const bool room = resets_.size() < kMostOwners;
  auto& budget = resets_[room ? owner : std::string()];  // the others share one
  if (budget == nullptr) budget = std::make_shared<ResetBudget>();
  return budget;
}

void Http2Gate::Add(int fd, Http2Connection::Wire wire, Http2Connection::Peer peer) {
  if (fd < 0 || fd >= kMostDescriptors) return;
  MutexLock lock(&mu_);
  std::shared_ptr<ResetBudget> resets = ResetsOf(peer.owner);
  auto connection =
      std::make_shared<Http2Connection>(fd, wire, std::move(peer), std::move(resets));
  connections[static_cast<size_t>(fd)] = connection.get();
  entries_[fd] = {.connection = std::move(connection), .in_epoll = {}};
}

std::shared_ptr<Http2Connection> Http2Gate::AddUnknown() {
  return std::make_shared<Http2Connection>(-1, Http2Connection::Wire::kTls,
                                           Http2Connection::Peer{.name = "unknown"},
                                           std::make_shared<ResetBudget>());
}

Http2Connection* Http2Gate::Find(int fd) {
  return fd >= 0 && fd < kMostDescriptors ? connections[static_cast<size_t>(fd)].load() : nullptr;
}

std::shared_ptr<Http2Connection> Http2Gate::Share(int fd) {
  MutexLock lock(&mu_);
  const auto found = entries_.find(fd);
  return found == entries_.end() ? nullptr : found->second.connection;
}

void Http2Gate::Closing(int fd) {
  if (Find(fd) != nullptr) OfProcess().Forget(fd);
}

void Http2Gate::Forget(int fd) {
  MutexLock lock(&mu_);
  connections[static_cast<size_t>(fd)] = nullptr;
  waiting_.erase(fd);
  entries_.erase(fd);
}

void Http2Gate::EnteredEpoll(int fd, int epoll, const epoll_event& event) {
  MutexLock lock(&mu_);
  const auto found = entries_.find(fd);
  if (found != entries_.end()) found->second.in_epoll = {epoll, event};
}

size_t Http2Gate::BeginRead(Http2Connection* connection) {
  const Http2Connection::Turn turn = connection->NextTurn(limits(), call_bytes(), Now());
  using Kind = Http2Connection::Turn::Kind;
  switch (turn.kind) {
    case Kind::kRead: return turn.bytes;
    case Kind::kCut: errno = ECONNRESET; return 0;
    case Kind::kWait: Wait(connection, turn.hold); break;
    case Kind::kYield: {
      MutexLock lock(&mu_);
      Rearm(connection->fd());
      break;
    }
  }
  errno = EAGAIN;
  return 0;
}

bool Http2Gate::Pass(Http2Connection* connection, std::span<const std::byte> bytes) {
  if (connection->is_cut()) return false;
  const Http2Fault fault = connection->Read(bytes, limits(), call_bytes(), Now());
  if (fault == Http2Fault::kNone) return true;
  CutOff(connection, fault);
  return false;
}

void Http2Gate::CutOff(Http2Connection* connection, Http2Fault fault) {
  connection->Cut();
  cuts_[static_cast<size_t>(fault)].fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(&mu_);
  Note({.is_cut = true,
        .peer = connection->peer(),
        .reason = Http2FaultName(fault),
        .frames = connection->frames()});
  // With TLS the descriptor may be closed by now, and its number reused.
  if (Find(connection->fd()) == connection) shutdown(connection->fd(), SHUT_RDWR);
}

void Http2Gate::Wait(Http2Connection* connection, Http2Hold why) {
  MutexLock lock(&mu_);
  if (waiting_.empty()) waiting_changed_.NotifyOne();
  if (!waiting_.insert(connection->fd()).second) return;
  holds_[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
  Note({.peer = connection->peer(), .reason = Http2HoldName(why), .frames = connection->frames()});
}

void Http2Gate::Note(Notice notice) {
  Said& said = said_[notice.is_cut ? 1 : 0];
  const MonotonicTime now = Now();
  if (now < said.next || notices_.size() >= kMostNotices) {
    ++said.unsaid;
    return;
  }
  said.next = now + kNoticeEvery;
  notice.unsaid = std::exchange(said.unsaid, 0);
  notices_.push_back(std::move(notice));
}

std::vector<Http2Gate::Notice> Http2Gate::TakeNotices() {
  MutexLock lock(&mu_);
  return std::exchange(notices_, {});
}

void Http2Gate::Rearm(int fd) {
  const auto found = entries_.find(fd);
  if (found == entries_.end() || found->second.in_epoll.epoll < 0) return;
  InEpoll in = found->second.in_epoll;
  syscall(SYS_epoll_ctl, in.epoll, EPOLL_CTL_MOD, fd, &in.event);
}

void Http2Gate::Resume() {
  MutexLock lock(&mu_);
  while (true) {
    while (waiting_.empty()) waiting_changed_.Wait(&mu_);
    waiting_changed_.WaitFor(&mu_, kResumeTick);
    const MonotonicTime now = Now();
    absl::erase_if(waiting_, [this, now](int fd) {
      mu_.AssertHeld();
      if (!entries_.at(fd).connection->MayResume(limits(), call_bytes(), now)) return false;
      Rearm(fd);
      return true;
    });
  }
}

}  // namespace kvkeep
