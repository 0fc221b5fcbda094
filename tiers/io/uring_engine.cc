#include "tiers/io/uring_engine.h"

#include <absl/strings/str_cat.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/base/status_macros.h"
#include "tiers/io/engine_device.h"
#include "tiers/io/registered_buffers.h"
#include "tiers/io/uring_ring.h"

namespace kvkeep {
namespace {

using Next = DeviceQueue::Outcome::Next;

// The ring's thread turns: take what was handed over, issue, enter the kernel, judge what
// completed, run callbacks. Callbacks run last, from a list: a callback that submits only adds to
// the inbox.
class UringEngine final : public IoEngine, private OperationSink, private Executor {
 public:
  explicit UringEngine(const IoEngineOptions& options)
      : ring_entries_(options.ring_entries), shared_(options.shared) {}
  ~UringEngine() override;

  // REQUIRES: called once, before anything else.
  absl::Status Start();

  absl::Status RegisterBuffer(std::span<std::byte> memory) override;
  absl::StatusOr<std::unique_ptr<Device>> Open(const DeviceOptions& options) override {
    return OpenEngineDevice(options, this, &counters_, &notes_);
  }
  Executor* loop() override { return this; }
  Stats stats() const override { return counters_.Snapshot(); }
  std::string describe() const override;

 private:
  // A fragment in the kernel; its index is the tag of its I/O.
  struct Slot {
    std::shared_ptr<OpenDevice> device;
    IoFragment fragment;
  };
  // Registration handed to the ring's thread, which alone may do it; lives on its caller's stack.
  struct Registration {
    std::span<std::byte> memory;
    absl::Status status;
    bool done = false;
  };

  static absl::Status StoppingError() {
    return absl::UnavailableError("the I/O engine is stopping");
  }

  void Accept(SubmittedOperation submitted) override;
  void Post(Task task) override;

  // On the ring's thread.
  void Run();
  bool Turn();
  void TakeInbox();
  void Register(Registration* registration);
  // Takes over what is pinned for all rings. Returns false if it cannot.
  bool TakeShared(std::span<std::byte> memory);
  void Enqueue(SubmittedOperation submitted);
  void GiveUpWaiting();
  void IssueDelayed();
  void Issue();
  void IssueSlot(uint32_t slot);
  bool MayWait();
  UringRing::Wait HowToWait();
  void Judge(uint32_t index, int64_t result);
  void TellCompleted();
  bool Finished();

  const uint32_t ring_entries_;
  const std::shared_ptr<const SharedBuffers> shared_;  // may be null
  IoCounters counters_;
  FallbackNotes notes_;

  mutable Mutex mu_;
  CondVar changed_;  // started_, or a registration done
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status start_status_ ABSL_GUARDED_BY(mu_);
  std::string features_ ABSL_GUARDED_BY(mu_);
  std::vector<SubmittedOperation> inbox_ ABSL_GUARDED_BY(mu_);
  std::vector<Registration*> registrations_ ABSL_GUARDED_BY(mu_);
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mu_);
  uint32_t registered_ ABSL_GUARDED_BY(mu_) = 0;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;  // the thread may be in the kernel: wake it
  bool stop_asked_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;

  // Only the ring's thread uses the fields below; others call ring_->Wake() under mu_ while
  // waiting_.
  std::unique_ptr<UringRing> ring_;
  RegisteredBuffers buffers_;
  bool stopping_ = false;
  std::vector<SubmittedOperation> taken_;
  std::vector<std::shared_ptr<DeviceQueue>> active_;  // with operations waiting
  size_t first_active_ = 0;                           // rotates, so that no device is always last
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  struct Delayed {
    uint32_t slot;
    MonotonicTime until;
  };
  std::vector<Delayed> delayed_;  // to be issued again
  std::vector<UringRing::Completion> reaped_;
  std::vector<CompletedOperation> completed_;

  std::thread thread_;  // constant after Start
};

absl::Status UringEngine::Start() {
  KVKEEP_CHECK(!thread_.joinable());
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "kvkeep-io");
    Run();
  });
  MutexLock lock(&mu_);
  while (!started_) changed_.Wait(&mu_);
  return start_status_;
}

UringEngine::~UringEngine() {
  {
    MutexLock lock(&mu_);
    stop_asked_ = true;
    if (std::exchange(waiting_, false)) ring_->Wake();
  }
  if (thread_.joinable()) thread_.join();
}

void UringEngine::Run() {
  auto ring = UringRing::Create(ring_entries_, kMaxRegisteredBuffers);
  {
    MutexLock lock(&mu_);
    started_ = true;
    if (ring.ok()) {
      ring_ = *std::move(ring);
      features_ = ring_->features();
    } else {
      start_status_ = ring.status();
    }
    changed_.NotifyAll();
    if (!start_status_.ok()) return;
  }
  slots_.resize(ring_->max_in_flight());
  for (uint32_t slot = ring_->max_in_flight(); slot > 0; --slot) free_slots_.push_back(slot - 1);
  while (Turn()) {
  }
  ring_ = nullptr;  // on this thread, as it was made
}

void UringEngine::Accept(SubmittedOperation submitted) {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(!ended_);
  inbox_.push_back(std::move(submitted));
  // Under the lock, so that the ring is still there. It is a short system call, and only the first
  // Submit while the thread waits makes it.
  if (std::exchange(waiting_, false)) ring_->Wake();
}

void UringEngine::Post(Task task) {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(!ended_);
  tasks_.push_back(std::move(task));
  if (std::exchange(waiting_, false)) ring_->Wake();
}

absl::Status UringEngine::RegisterBuffer(std::span<std::byte> memory) {
  Registration registration{.memory = memory};
  if (std::this_thread::get_id() == thread_.get_id()) {  // in a callback
    Register(&registration);
    return registration.status;
  }
  MutexLock lock(&mu_);
  KVKEEP_CHECK(!ended_);
  registrations_.push_back(&registration);
  if (std::exchange(waiting_, false)) ring_->Wake();
  while (!registration.done) changed_.Wait(&mu_);
  return registration.status;
}

std::string UringEngine::describe() const {
  MutexLock lock(&mu_);
  const uint64_t shared = counters_.shared_buffers;
  return absl::StrCat(
      "io_uring ", features_, ", ", ring_entries_, " entries, ", registered_, " registered buffers",
      shared == 0 ? "" : absl::StrCat(", ", shared, " of them shared"), notes_.ToString());
}

bool UringEngine::Turn() {
  TakeInbox();
  if (stopping_) GiveUpWaiting();
  IssueDelayed();
  Issue();
  reaped_.clear();
  ring_->Enter(HowToWait(), &reaped_);
  for (const UringRing::Completion& completion : reaped_) {
    Judge(static_cast<uint32_t>(completion.tag), completion.result);
  }
  TellCompleted();
  return !Finished();
}

void UringEngine::TakeInbox() {
  std::vector<Registration*> registrations;
  std::vector<Task> tasks;
  {
    MutexLock lock(&mu_);
    waiting_ = false;
    tasks.swap(tasks_);
    stopping_ = stop_asked_;
    taken_.swap(inbox_);
    registrations.swap(registrations_);
  }
  for (SubmittedOperation& submitted : taken_) Enqueue(std::move(submitted));
  taken_.clear();
  for (Registration* registration : registrations) {
    Register(registration);
    MutexLock lock(&mu_);
    registration->done = true;
    changed_.NotifyAll();
  }
  for (Task& task : tasks) std::move(task)();
}

bool UringEngine::TakeShared(std::span<std::byte> memory) {
  if (shared_ == nullptr) return false;
  const std::optional<SharedBuffers::Place> place = shared_->Find(memory);
  if (!place.has_value()) return false;
  const absl::Status taken = ring_->TakeBuffer(buffers_.next_slot(), place->ring_fd, place->slot);
  if (taken.ok()) {
    ++counters_.shared_buffers;
  } else {
    notes_.Add(absl::StrCat("pinned once more: ", taken.message()));
  }
  return taken.ok();
}

void UringEngine::Register(Registration* registration) {
  registration->status = buffers_.CheckNext(registration->memory);
  if (registration->status.ok() && !TakeShared(registration->memory)) {
    registration->status = ring_->RegisterBuffer(buffers_.next_slot(), registration->memory);
  }
  if (!registration->status.ok()) {
    ++counters_.buffer_registration_failures;
    notes_.Add(absl::StrCat("not registered: ", registration->status.message()));
    return;
  }
  buffers_.Add(registration->memory);
  MutexLock lock(&mu_);
  ++registered_;
}

void UringEngine::Enqueue(SubmittedOperation submitted) {
  if (!submitted.check.ok() || stopping_) {
    absl::Status status = submitted.check.ok() ? StoppingError() : submitted.check;
    completed_.push_back(
        CompletedOperation::Refused(std::move(submitted), std::move(status), &counters_));
    return;
  }
  std::shared_ptr<DeviceQueue> queue = std::move(submitted).Queue();
  if (std::find(active_.begin(), active_.end(), queue) == active_.end()) {
    active_.push_back(std::move(queue));
  }
}

void UringEngine::GiveUpWaiting() {
  for (const std::shared_ptr<DeviceQueue>& queue : active_) {
    for (const auto& request : queue->FailWaiting(StoppingError())) {
      completed_.push_back(CompletedOperation::Of(*request));
    }
  }
  active_.clear();
  for (const Delayed& delayed : std::exchange(delayed_, {})) Judge(delayed.slot, -ECANCELED);
}

void UringEngine::IssueDelayed() {
  if (delayed_.empty()) return;
  const MonotonicTime now = RealClock()->Now();
  std::erase_if(delayed_, [&](const Delayed& delayed) {
    if (now < delayed.until) return false;
    IssueSlot(delayed.slot);
    return true;
  });
}

void UringEngine::Issue() {
  if (active_.empty()) return;
  first_active_ = (first_active_ + 1) % active_.size();
  for (size_t i = 0; i < active_.size(); ++i) {
    DeviceQueue& queue = *active_[(first_active_ + i) % active_.size()];
    while (!free_slots_.empty()) {
      std::optional<IoFragment> fragment = queue.Next();
      if (!fragment) break;
      const uint32_t slot = free_slots_.back();
      free_slots_.pop_back();
      KVKEEP_CHECK(slots_[slot].device == nullptr);
      std::shared_ptr<OpenDevice> file = fragment->request->file;
      slots_[slot] = {std::move(file), *std::move(fragment)};
      IssueSlot(slot);
    }
  }
  std::erase_if(active_, [](const auto& queue) { return !queue->has_waiting(); });
}

void UringEngine::IssueSlot(uint32_t slot) {
  KVKEEP_CHECK(slot < slots_.size() && slots_[slot].device != nullptr);
  const IoFragment& fragment = slots_[slot].fragment;
  const std::optional<uint32_t> buffer = buffers_.Find(fragment.data, fragment.bytes);
  ++(buffer ? counters_.fixed_buffer_ios : counters_.plain_buffer_ios);
  ring_->Prepare({.tag = slot,
                  .read = fragment.is_read(),
                  .fd = slots_[slot].device->file.fd(),
                  .offset = fragment.offset,
                  .data = fragment.data,
                  .bytes = fragment.bytes,
                  .buffer_slot = buffer});
}

// Returns whether the thread may sleep, as from here on a Submit wakes it. No wake-up is lost:
// earlier submissions are seen here, later ones find waiting_ set, and the wake stays in the
// eventfd until an Enter has seen it.
bool UringEngine::MayWait() {
  MutexLock lock(&mu_);
  waiting_ = inbox_.empty() && registrations_.empty() && tasks_.empty() && stop_asked_ == stopping_;
  return waiting_;
}

UringRing::Wait UringEngine::HowToWait() {
  if (!completed_.empty()) return UringRing::Wait::kNo;
  if (stopping_ && free_slots_.size() == slots_.size()) return UringRing::Wait::kNo;
  if (!MayWait()) return UringRing::Wait::kNo;
  return delayed_.empty() ? UringRing::Wait::kUntilEvent : UringRing::Wait::kBriefly;
}

void UringEngine::Judge(uint32_t index, int64_t result) {
  KVKEEP_CHECK(index < slots_.size());
  Slot& slot = slots_[index];
  KVKEEP_CHECK(slot.device != nullptr);
  DeviceQueue::Outcome outcome = slot.device->queue->OnResult(slot.fragment, result);
  switch (outcome.next) {
    case Next::kAgain:
      IssueSlot(index);
      return;
    case Next::kAgainLater:
      delayed_.push_back({index, RealClock()->Now() + outcome.pause});
      return;
    case Next::kFinished:
      break;
  }
  if (outcome.completed) {
    completed_.push_back(CompletedOperation::Of(*outcome.completed));
  }
  slot = {};
  KVKEEP_CHECK(free_slots_.size() < slots_.size());
  free_slots_.push_back(index);
}

void UringEngine::TellCompleted() {
  for (CompletedOperation& operation : std::exchange(completed_, {})) std::move(operation).Tell();
}

bool UringEngine::Finished() {
  if (!stopping_ || free_slots_.size() != slots_.size() || !completed_.empty()) return false;
  MutexLock lock(&mu_);
  if (!inbox_.empty() || !registrations_.empty()) return false;
  ended_ = true;
  waiting_ = false;
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<IoEngine>> CreateUringEngine(const IoEngineOptions& options) {
  auto engine = std::make_unique<UringEngine>(options);
  KVKEEP_RETURN_IF_ERROR(engine->Start());
  return engine;
}

}  // namespace kvkeep
