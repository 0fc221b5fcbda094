#include "tests/fakes/faulty_device.h"

#include <absl/strings/str_cat.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/io/errno_status.h"
#include "tiers/io/operation_check.h"

namespace kvkeep {

enum class FaultyDevice::Fault {
  kNone,
  kError,
  kCorrupt,
  kShort,
  kTornOk,
  kTornError,
  kMisdirected,
  kGone
};

struct FaultyDevice::Pending {
  IoOperation operation;
  std::shared_ptr<AlignedBytes> copy;  // memory of its own, which the device below reads or writes
  absl::Status status;
  Fault fault = Fault::kNone;
  uint32_t turns_before = 0;  // until it goes below
  uint32_t turns_after = 0;   // until it is reported
  bool below = false;         // handed to the device below, or no longer in need of it
  bool sticks = false;        // at the end of its turns
  bool stuck = false;
};

struct FaultyDevice::State : std::enable_shared_from_this<State> {
  State(Device* device, Executor* posts, uint64_t seed, const FaultOptions& faults)
      : below(device), executor(posts), random(seed), options(faults) {}

  void Post(uint64_t id) {
    executor->Post([state = shared_from_this(), id] { state->Step(id); });
  }
  void Step(uint64_t id);
  void Start(uint64_t id);
  void Finish(uint64_t id, absl::Status status);
  void Tell(uint64_t id);
  Fault ChooseFault(bool read) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void ChooseDelay(Pending& pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void FlipBit(AlignedBytes& bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  IoOperation Damage(Pending& pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void EndKilledWrite(IoOperation& write, std::vector<IoOperation>* lower)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Fault CountFault(Fault fault, uint64_t* counter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    ++*counter;
    return fault;
  }

  Device* const below;
  Executor* const executor;

  Mutex mu;
  SeededRandom random ABSL_GUARDED_BY(mu);
  FaultOptions options ABSL_GUARDED_BY(mu);
  Stats stats ABSL_GUARDED_BY(mu);
  std::function<void(uint64_t)> drop ABSL_GUARDED_BY(mu);
  bool killed ABSL_GUARDED_BY(mu) = false;
  bool gone ABSL_GUARDED_BY(mu) = false;
  uint64_t next_id ABSL_GUARDED_BY(mu) = 0;
  // By age, so that Kill decides in the same order for the same seed.
  std::map<uint64_t, Pending> pending ABSL_GUARDED_BY(mu);
};

FaultyDevice::FaultyDevice(Device* below, Executor* executor, uint64_t seed,
                           const FaultOptions& options)
    : state_(std::make_shared<State>(below, executor, seed, options)) {}

FaultyDevice::~FaultyDevice() {
  MutexLock lock(&state_->mu);
  KVKEEP_CHECK(state_->pending.empty());
}

void FaultyDevice::Submit(IoOperation operation) {
  KVKEEP_CHECK(operation.done != nullptr);
  State& state = *state_;
  uint64_t id;
  {
    MutexLock lock(&state.mu);
    if (state.killed) {
      ++state.stats.dropped_callbacks;
      return;
    }
    id = state.next_id++;
    Pending pending;
    pending.fault = state.ChooseFault(operation.kind == IoOperation::Kind::kRead);
    state.ChooseDelay(pending);
    pending.operation = std::move(operation);
    state.pending.emplace(id, std::move(pending));
  }
  state.Post(id);
}

FaultyDevice::Fault FaultyDevice::State::ChooseFault(bool read) {
  if (gone) return CountFault(Fault::kGone, &stats.gone);
  if (read) {
    if (random.Chance(options.read_error)) return CountFault(Fault::kError, &stats.read_errors);
    if (random.Chance(options.corrupt_read)) {
      return CountFault(Fault::kCorrupt, &stats.corrupt_reads);
    }
    if (random.Chance(options.short_read)) return CountFault(Fault::kShort, &stats.short_reads);
    if (random.Chance(options.misdirected_read)) {
      return CountFault(Fault::kMisdirected, &stats.misdirected_reads);
    }
    return Fault::kNone;
  }
  if (random.Chance(options.write_error)) return CountFault(Fault::kError, &stats.write_errors);
  if (random.Chance(options.corrupt_write)) {
    return CountFault(Fault::kCorrupt, &stats.corrupt_writes);
  }
  if (random.Chance(options.torn_write)) {
    return CountFault(random.Chance(options.torn_reported_ok) ? Fault::kTornOk : Fault::kTornError,
                      &stats.torn_writes);
  }
  if (random.Chance(options.misdirected_write)) {
    return CountFault(Fault::kMisdirected, &stats.misdirected_writes);
  }
  return Fault::kNone;
}

void FaultyDevice::State::ChooseDelay(Pending& pending) {
  if (random.Chance(options.stuck)) {
    ++stats.stuck;
    pending.sticks = true;
    (random.Chance(0.5) ? pending.turns_before : pending.turns_after) = 1;
    return;
  }
  if (options.max_delay_turns == 0 || !random.Chance(options.delay)) return;
  ++stats.delayed;
  const auto turns = static_cast<uint32_t>(random.Between(1, options.max_delay_turns));
  (random.Chance(0.5) ? pending.turns_before : pending.turns_after) = turns;
}

void FaultyDevice::State::Step(uint64_t id) {
  enum { kWait, kStart, kTell } next;
  {
    MutexLock lock(&mu);
    const auto at = pending.find(id);
    if (at == pending.end()) return;  // killed
    Pending& p = at->second;
    uint32_t& turns = p.below ? p.turns_after : p.turns_before;
    if (turns > 0 && p.sticks) {
      p.stuck = true;  // Unstick posts it
      return;
    }
    next = turns > 0 ? kWait : p.below ? kTell : kStart;
    if (turns > 0) --turns;
  }
  if (next == kWait) Post(id);
  if (next == kStart) Start(id);
  if (next == kTell) Tell(id);
}

void FaultyDevice::State::FlipBit(AlignedBytes& bytes) {
  bytes.data()[random.Below(bytes.size())] ^= std::byte{1} << random.Below(8);
}

// Returns the operation that goes to the device below after the fault; of length 0 when none does.
IoOperation FaultyDevice::State::Damage(Pending& p) {
  const bool read = p.operation.kind == IoOperation::Kind::kRead;
  IoOperation lower{.kind = p.operation.kind,
                    .offset = p.operation.offset,
                    .data = p.copy->data(),
                    .bytes = p.operation.bytes};
  if (!read) std::memcpy(p.copy->data(), p.operation.data, p.operation.bytes);
  const uint64_t blocks = lower.bytes / kBlockBytes;
  const uint64_t device_blocks = below->size_bytes() / kBlockBytes;
  switch (p.fault) {
    case Fault::kNone:
      break;
    case Fault::kError:
      p.status = options.host_short
                     ? ErrnoStatus(ENOMEM, DescribeOperation(p.operation))
                     : absl::DataLossError(absl::StrCat(
                           "injected: ", DescribeOperation(p.operation), " failed"));
      lower.bytes = 0;
      break;
    case Fault::kCorrupt:
      if (!read) FlipBit(*p.copy);
      break;
    case Fault::kGone:
      p.status = absl::UnavailableError(
          absl::StrCat("injected: ", DescribeOperation(p.operation), ": the device is gone"));
      lower.bytes = 0;
      break;
    case Fault::kTornError:
      p.status = absl::DataLossError(
          absl::StrCat("injected: ", DescribeOperation(p.operation), " was torn"));
      [[fallthrough]];
    case Fault::kTornOk:
    case Fault::kShort:
      lower.bytes = random.Below(blocks) * kBlockBytes;
      break;
    case Fault::kMisdirected:
      lower.offset = DeviceOffset(random.Below(device_blocks - blocks + 1) * kBlockBytes);
      break;
  }
  return lower;
}

void FaultyDevice::State::Start(uint64_t id) {
  IoOperation lower;
  std::shared_ptr<AlignedBytes> copy;
  {
    MutexLock lock(&mu);
    const auto at = pending.find(id);
    if (at == pending.end()) return;
    Pending& p = at->second;
    p.below = true;
    p.status = CheckOperation(p.operation, below->size_bytes(), /*read_only=*/false);
    if (p.status.ok()) {
      p.copy = std::make_shared<AlignedBytes>(p.operation.bytes);
      lower = Damage(p);
      copy = p.copy;
    }
  }
  if (lower.bytes == 0) {
    Finish(id, absl::OkStatus());
    return;
  }
  lower.done = [state = shared_from_this(), id, copy](absl::Status status) {
    state->Finish(id, std::move(status));
  };
  below->Submit(std::move(lower));
}

void FaultyDevice::State::Finish(uint64_t id, absl::Status status) {
  bool later;
  {
    MutexLock lock(&mu);
    const auto at = pending.find(id);
    if (at == pending.end()) return;
    Pending& p = at->second;
    if (p.status.ok()) p.status = std::move(status);
    later = p.turns_after > 0;
  }
  later ? Post(id) : Tell(id);
}

void FaultyDevice::State::Tell(uint64_t id) {
  Pending p;
  {
    MutexLock lock(&mu);
    const auto at = pending.find(id);
    if (at == pending.end()) return;
    p = std::move(at->second);
    pending.erase(at);
    if (p.operation.kind == IoOperation::Kind::kRead && p.status.ok()) {
      if (p.fault == Fault::kCorrupt) FlipBit(*p.copy);
      std::memcpy(p.operation.data, p.copy->data(), p.operation.bytes);
    }
  }
  std::move(p.operation.done)(std::move(p.status));
}

// Adds the writes that reach the device below: one for each block, since a disk promises no more.
void FaultyDevice::State::EndKilledWrite(IoOperation& write, std::vector<IoOperation>* lower) {
  if (!CheckOperation(write, below->size_bytes(), /*read_only=*/false).ok()) return;
  auto copy = std::make_shared<AlignedBytes>(write.bytes);
  std::memcpy(copy->data(), write.data, write.bytes);
  const uint64_t fate = random.Below(3);
  ++(fate == 0 ? stats.killed_whole : fate == 1 ? stats.killed_partly : stats.killed_unwritten);
  if (fate == 2) return;
  for (size_t at = 0; at < write.bytes; at += kBlockBytes) {
    if (fate == 1 && random.Chance(0.5)) continue;
    lower->push_back({.kind = IoOperation::Kind::kWrite,
                      .offset = DeviceOffset(write.offset.value() + at),
                      .data = copy->data() + at,
                      .bytes = kBlockBytes,
                      .done = [copy](absl::Status) {}});
  }
}

void FaultyDevice::Kill() {
  State& state = *state_;
  std::map<uint64_t, Pending> dropped;  // destroyed last and unlocked: callbacks own things
  std::vector<IoOperation> lower;
  {
    MutexLock lock(&state.mu);
    state.killed = true;
    dropped.swap(state.pending);
    state.stats.dropped_callbacks += dropped.size();
    for (auto& [id, p] : dropped) {
      const bool write = p.operation.kind == IoOperation::Kind::kWrite;
      if (write && !p.below) state.EndKilledWrite(p.operation, &lower);
    }
  }
  for (IoOperation& operation : lower) state.below->Submit(std::move(operation));
}

absl::Status FaultyDevice::Sync() {
  {
    State& state = *state_;
    MutexLock lock(&state.mu);
    if (state.gone) {
      ++state.stats.gone;
      return absl::UnavailableError("injected: sync: the device is gone");
    }
    if (state.random.Chance(state.options.sync_error)) {
      ++state.stats.failed_syncs;
      if (state.drop != nullptr && state.random.Chance(state.options.sync_drops)) {
        ++state.stats.dropping_syncs;
        state.drop(state.random.NextU64());
      }
      return absl::DataLossError("injected: sync failed");
    }
    if (state.random.Chance(state.options.sync_lies)) {
      ++state.stats.lying_syncs;
      return absl::OkStatus();
    }
  }
  return state_->below->Sync();
}

uint64_t FaultyDevice::size_bytes() const { return state_->below->size_bytes(); }

bool FaultyDevice::direct() const { return state_->below->direct(); }

void FaultyDevice::set_options(const FaultOptions& options) {
  {
    MutexLock lock(&state_->mu);
    state_->options = options;
  }
  if (options.stuck == 0) Unstick();
}

size_t FaultyDevice::Unstick() {
  std::vector<uint64_t> freed;
  {
    MutexLock lock(&state_->mu);
    for (auto& [id, p] : state_->pending) {
      if (p.stuck) freed.push_back(id);
      p.sticks = p.stuck = false;
    }
  }
  for (const uint64_t id : freed) state_->Post(id);
  return freed.size();
}

void FaultyDevice::SetGone(bool gone) {
  MutexLock lock(&state_->mu);
  state_->gone = gone;
}

void FaultyDevice::OnDroppingSync(std::function<void(uint64_t)> drop) {
  MutexLock lock(&state_->mu);
  state_->drop = std::move(drop);
}

void FaultyDevice::Reseed(uint64_t seed) {
  MutexLock lock(&state_->mu);
  state_->random = SeededRandom(seed);
}

FaultyDevice::Stats FaultyDevice::stats() const {
  MutexLock lock(&state_->mu);
  return state_->stats;
}

}  // namespace kvkeep
