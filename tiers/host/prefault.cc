#include "tiers/host/prefault.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tiers/base/page_bytes.h"
#include "tiers/host/kernel_facts.h"

namespace kvkeep {
namespace {

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum class SliceResult { kPopulated, kTouched, kFailed };

SliceResult Populate(std::span<std::byte> slice) {
  // EAGAIN and EINTR pass by; the bound only keeps a strange kernel from holding a thread for ever.
  for (int attempt = 0; attempt < 16; ++attempt) {
    if (madvise(slice.data(), slice.size(), MADV_POPULATE_WRITE) == 0)
      return SliceResult::kPopulated;
    if (errno == EINVAL) {  // before Linux 5.14
      TouchPages(slice);
      return SliceResult::kTouched;
    }
    if (errno != EAGAIN && errno != EINTR) return SliceResult::kFailed;
  }
  return SliceResult::kFailed;
}

}  // namespace

void TouchPages(std::span<std::byte> memory) {
  for (size_t offset = 0; offset < memory.size(); offset += PageBytes()) {
    std::atomic_ref<std::byte> byte(memory[offset]);
    std::byte seen = byte.load(std::memory_order_relaxed);
    // Stores the byte that is there, or fails because somebody else just wrote it: the page is
    // present either way. A plain "or 0" may be compiled to a load, which would not do.
    byte.compare_exchange_strong(seen, seen, std::memory_order_relaxed);
  }
}

struct Prefaulter::State : std::enable_shared_from_this<State> {
  Executor* executor = nullptr;  // constant after construction

  Mutex mu;
  CondVar idle;
  std::vector<std::span<std::byte>> memory ABSL_GUARDED_BY(mu);
  std::deque<std::span<std::byte>> slices ABSL_GUARDED_BY(mu);
  size_t tasks ABSL_GUARDED_BY(mu) = 0;  // queued or running
  size_t next ABSL_GUARDED_BY(mu) = 0;
  size_t finished ABSL_GUARDED_BY(mu) = 0;
  size_t running ABSL_GUARDED_BY(mu) = 0;
  bool stopped ABSL_GUARDED_BY(mu) = false;
  Stats stats ABSL_GUARDED_BY(mu);

  void AddSlices(std::span<std::byte> mapping) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Returns how many tasks to post for the added slices.
  size_t StartTasks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void PostOne() {
    executor->Post([self = shared_from_this()] { self->RunOne(); });
  }
  void RunOne();
  void Record(SliceResult result, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
};

void Prefaulter::State::RunOne() {
  std::span<std::byte> slice;
  {
    MutexLock lock(&mu);
    KVKEEP_CHECK(tasks > 0);
    if (stopped || next == slices.size()) {
      --tasks;
      return;
    }
    slice = slices[next++];
    ++running;
  }
  const SliceResult result = Populate(slice);
  bool more = false;
  std::vector<std::span<std::byte>> done;  // all there is, or nothing
  {
    MutexLock lock(&mu);
    Record(result, slice.size());
    KVKEEP_CHECK(finished < slices.size());
    KVKEEP_CHECK(running > 0 && tasks > 0);
    if (++finished == slices.size()) done = memory;
    KVKEEP_CHECK(finished <= next);
    more = !stopped && next < slices.size();
    if (!more) --tasks;
  }
  // Still counted as running, so the mappings stay until both are done.
  const uint64_t huge = done.empty() ? 0 : HugePageBytes(done);
  if (more) PostOne();
  MutexLock lock(&mu);
  if (!done.empty()) stats.huge_page_bytes = huge;
  --running;
  idle.NotifyAll();
}

void Prefaulter::State::Record(SliceResult result, uint64_t bytes) {
  if (result == SliceResult::kFailed) {
    stats.failed_bytes += bytes;
    return;
  }
  stats.done_bytes += bytes;
  if (result == SliceResult::kTouched) stats.touched_bytes += bytes;
}

Prefaulter::Prefaulter(std::vector<std::span<std::byte>> memory, Executor* executor)
    : state_(std::make_shared<State>()) {
  KVKEEP_CHECK(executor != nullptr);
  state_->executor = executor;
  size_t tasks = 0;
  {
    MutexLock lock(&state_->mu);
    for (const std::span<std::byte> mapping : memory) state_->AddSlices(mapping);
    state_->memory = std::move(memory);
    tasks = state_->StartTasks();
  }
  for (size_t i = 0; i < tasks; ++i) state_->PostOne();
}

void Prefaulter::Add(std::span<std::byte> mapping) {
  size_t tasks = 0;
  {
    MutexLock lock(&state_->mu);
    state_->AddSlices(mapping);
    // Joins the memory to a range that ends where it begins, as one mostly does: then there are
    // never more ranges than mappings.
    std::vector<std::span<std::byte>>& all = state_->memory;
    const auto before = std::find_if(all.begin(), all.end(), [mapping](const auto& one) {
      return one.data() + one.size() == mapping.data();
    });
    if (before == all.end()) {
      all.push_back(mapping);
    } else {
      *before = {before->data(), before->size() + mapping.size()};
    }
    tasks = state_->StartTasks();
  }
  for (size_t i = 0; i < tasks; ++i) state_->PostOne();
}

void Prefaulter::State::AddSlices(std::span<std::byte> mapping) {
  KVKEEP_CHECK(reinterpret_cast<uint64_t>(mapping.data()) % PageBytes() == 0);
  for (size_t offset = 0; offset < mapping.size(); offset += kSliceBytes) {
    slices.push_back(mapping.subspan(offset, std::min(kSliceBytes, mapping.size() - offset)));
  }
}

size_t Prefaulter::State::StartTasks() {
  KVKEEP_CHECK(next <= slices.size());
  const size_t before = tasks;
  tasks = std::max(tasks, std::min(kParallelSlices, slices.size() - next));
  return tasks - before;
}

Prefaulter::~Prefaulter() {
  MutexLock lock(&state_->mu);
  state_->stopped = true;
  while (state_->running > 0) state_->idle.Wait(&state_->mu);
}

Prefaulter::Stats Prefaulter::stats() const {
  MutexLock lock(&state_->mu);
  return state_->stats;
}

}  // namespace kvkeep
