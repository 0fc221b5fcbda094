#include "server/sockets/descriptor_closer.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "tiers/base/mutex.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace kvkeep {
namespace {

constexpr size_t kStackBytes = 256 << 10;

// Returns a signal that nothing else in the process uses: I/O libraries and the C library take
// lower ones.
int InterruptSignal() { return SIGRTMIN + 9; }

// Installs a handler without SA_RESTART, so that the signal ends a wait.
void HandleInterrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigemptyset(&action.sa_mask);
  sigaction(InterruptSignal(), &action, nullptr);
}

// Signals only this thread, repeatedly, while armed.
class Interrupts {
 public:
  Interrupts() {
    sigset_t all_others;
    sigfillset(&all_others);
    sigdelset(&all_others, InterruptSignal());
    pthread_sigmask(SIG_SETMASK, &all_others, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = InterruptSignal();
    event.sigev_notify_thread_id = static_cast<int>(syscall(SYS_gettid));
    made_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;  // if not, nothing ends waits
  }
  ~Interrupts() {
    if (made_) timer_delete(timer_);
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  void Arm(std::chrono::nanoseconds every) {
    const timespec interval{.tv_sec = every.count() / 1'000'000'000,
                            .tv_nsec = every.count() % 1'000'000'000};
    Set({.it_interval = interval, .it_value = interval});
  }
  void Disarm() { Set({}); }

 private:
  void Set(const itimerspec& times) {
    if (made_) timer_settime(timer_, 0, &times, nullptr);
  }

  timer_t timer_{};
  bool made_ = false;
};

}  // namespace

class DescriptorCloser::Shared : public std::enable_shared_from_this<Shared> {
 public:
  explicit Shared(const Options& options) : options_(options) {}

  void Close(UniqueFd fd, Owner owner) {
    bool more = false;
    {
      MutexLock lock(&mu_);
      owners_[owner].waiting.push_back(std::move(fd));
      ++waiting_;
      more = WantsThread();
      if (!more) work_.NotifyOne();
    }
    if (more) StartThread();
  }

  bool Full(Owner owner) const {
    MutexLock lock(&mu_);
    const auto found = owners_.find(owner);
    if (found == owners_.end() || found->second.waiting.empty()) return false;
    return found->second.waiting.size() >= options_.owner_waiting ||
           waiting_ >= options_.max_waiting;
  }

  size_t closing() const {
    MutexLock lock(&mu_);
    return waiting_ + busy_;
  }
  size_t threads() const {
    MutexLock lock(&mu_);
    return threads_;
  }

 private:
  struct OfOwner {
    std::deque<UniqueFd> waiting;
    size_t busy = 0;  // threads that close one of its descriptors descriptors
  };
  struct Job {
    Owner owner = 0;
    UniqueFd fd;
    bool more = false;  // there is work for another thread
  };
  using Owners = std::map<Owner, OfOwner>;

  bool MayServe(const OfOwner& owner) const {
    return !owner.waiting.empty() && owner.busy < options_.owner_threads;
  }

  // Returns the owner whose turn is next.
  Owners::iterator Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto serves = [this](const auto& entry) { return MayServe(entry.second); };
    const auto after = owners_.upper_bound(last_);
    const auto found = std::find_if(after, owners_.end(), serves);
    if (found != owners_.end()) return found;
    const auto before = std::find_if(owners_.begin(), after, serves);
    return before == after ? owners_.end() : before;
  }

  // If it returns true, the new thread is already counted: StartThread must make it.
  bool WantsThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (idle_ > 0 || threads_ >= options_.max_threads || Next() == owners_.end()) return false;
    ++threads_;
    return true;
  }

  void StartThread() {
    auto* const self = new std::shared_ptr<Shared>(shared_from_this());
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, std::max<size_t>(kStackBytes, PTHREAD_STACK_MIN));
    pthread_t thread;
    const bool made = pthread_create(&thread, &attributes, Main, self) == 0;
    pthread_attr_destroy(&attributes);
    if (made) return;
    delete self;
    MutexLock lock(&mu_);
    --threads_;  // the next Close tries again
  }

  static void* Main(void* self) {
    const std::unique_ptr<std::shared_ptr<Shared>> shared(
        static_cast<std::shared_ptr<Shared>*>(self));
    pthread_setname_np(pthread_self(), "kvkeep-closer");
    (*shared)->Serve();
    return nullptr;
  }

  void Serve() {
    Interrupts interrupts;
    while (std::optional<Job> job = Take()) {
      if (job->more) StartThread();
      interrupts.Arm(options_.patience);
      job->fd.Reset();
      interrupts.Disarm();
      Closed(job->owner);
    }
  }

  // Returns none if the thread must end.
  std::optional<Job> Take() {
    MutexLock lock(&mu_);
    auto next = Next();
    while (next == owners_.end()) {
      ++idle_;
      const bool woken = work_.WaitFor(&mu_, options_.rest);
      --idle_;
      next = Next();
      if (woken || next != owners_.end()) continue;
      --threads_;
      return std::nullopt;
    }
    last_ = next->first;
    Job job{.owner = next->first, .fd = std::move(next->second.waiting.front())};
    next->second.waiting.pop_front();
    ++next->second.busy;
    --waiting_;
    ++busy_;
    job.more = WantsThread();
    return job;
  }

  void Closed(Owner owner) {
    MutexLock lock(&mu_);
    const auto found = owners_.find(owner);
    --found->second.busy;
    --busy_;
    if (found->second.busy == 0 && found->second.waiting.empty()) owners_.erase(found);
  }

  const Options options_;
  mutable Mutex mu_;
  CondVar work_;
  Owners owners_ ABSL_GUARDED_BY(mu_);
  Owner last_ ABSL_GUARDED_BY(mu_) = 0;  // the owner that had the last turn
  size_t waiting_ ABSL_GUARDED_BY(mu_) = 0, busy_ ABSL_GUARDED_BY(mu_) = 0;
  size_t threads_ ABSL_GUARDED_BY(mu_) = 0, idle_ ABSL_GUARDED_BY(mu_) = 0;
};

DescriptorCloser::DescriptorCloser(const Options& options)
    : shared_(std::make_shared<Shared>(options)) {
  static std::once_flag handled;
  std::call_once(handled, HandleInterrupts);
}

DescriptorCloser::~DescriptorCloser() = default;

DescriptorCloser& DescriptorCloser::OfProcess() {
  static auto* const closer = new DescriptorCloser(Options());
  return *closer;
}

void DescriptorCloser::Close(UniqueFd fd, Owner owner) {
  if (fd.valid()) shared_->Close(std::move(fd), owner);
}
bool DescriptorCloser::Full(Owner owner) const { return shared_->Full(owner); }
size_t DescriptorCloser::closing() const { return shared_->closing(); }
size_t DescriptorCloser::threads() const { return shared_->threads(); }

}  // namespace kvkeep
