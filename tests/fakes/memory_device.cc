#include "tests/fakes/memory_device.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/io/operation_check.h"

namespace kvkeep {

MemoryDevice::MemoryDevice(std::shared_ptr<MemoryDisk> disk, Executor* executor, bool read_only)
    : state_(std::make_shared<State>()), executor_(executor) {
  state_->disk = std::move(disk);
  state_->read_only = read_only;
}

MemoryDevice::~MemoryDevice() {
  KVKEEP_CHECK(state_->outstanding.WaitNoneFor(std::chrono::seconds(10)));
}

// Counts down when it is over, and also when it is dropped unrun.
struct MemoryDevice::Task {
  Task(std::shared_ptr<State> of, IoOperation op)
      : state(std::move(of)), operation(std::move(op)) {}
  Task(Task&&) = default;
  ~Task() {
    if (state == nullptr) return;  // moved from
    operation.done = nullptr;      // first: what it captured may belong to the device's owner
    state->outstanding.Done();
  }
  void operator()();

  std::shared_ptr<State> state;
  IoOperation operation;
};

void MemoryDevice::Submit(IoOperation operation) {
  KVKEEP_CHECK(operation.done != nullptr);
  state_->outstanding.Add();
  executor_->Post(Task(state_, std::move(operation)));
}

void MemoryDevice::Task::operator()() {
  const std::span<std::byte> bytes = state->disk->bytes();
  absl::Status status = CheckOperation(operation, bytes.size(), state->read_only);
  const bool read = operation.kind == IoOperation::Kind::kRead;
  if (status.ok()) {
    std::byte* const place = bytes.data() + operation.offset.value();
    read ? std::memcpy(operation.data, place, operation.bytes)
         : std::memcpy(place, operation.data, operation.bytes);
  }
  {
    MutexLock lock(&state->mu);
    Stats& stats = state->stats;
    ++(!status.ok() ? stats.errors : read ? stats.reads : stats.writes);
  }
  std::move(operation.done)(std::move(status));
}

absl::Status MemoryDevice::Sync() {
  MutexLock lock(&state_->mu);
  ++state_->stats.syncs;
  return absl::OkStatus();
}

uint64_t MemoryDevice::size_bytes() const { return state_->disk->bytes().size(); }

MemoryDevice::Stats MemoryDevice::stats() const {
  MutexLock lock(&state_->mu);
  return state_->stats;
}

}  // namespace kvkeep
