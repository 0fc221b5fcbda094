#include "tests/server/local/fake_gpu.h"

#include <algorithm>
#include <cstring>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {

std::array<uint8_t, GpuMemory::kHandleBytes> FakeGpuHandle(uint64_t memory) {
  std::array<uint8_t, GpuMemory::kHandleBytes> handle{};
  std::memcpy(handle.data(), &memory, sizeof(memory));
  return handle;
}

FakeGpuDevice::~FakeGpuDevice() { KVKEEP_CHECK(held_.empty()); }

uint64_t FakeGpuDevice::Allocate(std::vector<std::byte> bytes) {
  memory_.push_back(std::move(bytes));
  return memory_.size() - 1;
}

void FakeGpuDevice::Register(GpuMemory memory, RegisterDone done) {
  uint64_t number = 0;
  std::memcpy(&number, memory.handle.data(), sizeof(number));
  absl::Status status = memory.Validate();
  status.Update(refusal_);
  if (status.ok() && number >= memory_.size()) {
    status = absl::InvalidArgumentError("the handle is of no memory");
  }
  if (status.ok() && memory.allocation_bytes > memory_[number].size()) {
    status = absl::InvalidArgumentError("allocation_bytes is more than the handle's memory has");
  }
  const uint64_t id = next_id_++;
  if (status.ok()) {
    Range& range = ranges_[id];
    range.memory = number;
    range.offset = memory.offset;
    range.bytes = memory.bytes;
  }
  executor_->Post([done = std::move(done), status, id]() mutable {
    if (status.ok()) {
      std::move(done)(GpuRegistrationId(id));
    } else {
      std::move(done)(status);
    }
  });
}

void FakeGpuDevice::Unregister(GpuRegistrationId id, UnregisterDone done) {
  Range& range = ranges_.at(id.value());
  KVKEEP_CHECK(!range.given_back);
  range.given_back = true;
  range.closed = std::move(done);
  CloseIfUnused(id.value());
}

void FakeGpuDevice::CloseIfUnused(uint64_t id) {
  const auto found = ranges_.find(id);
  if (!found->second.given_back || found->second.copies > 0) return;
  executor_->Post([closed = std::move(found->second.closed)]() mutable { std::move(closed)(); });
  ranges_.erase(found);
}

void FakeGpuDevice::Copy(GpuCopy copy, CopyDone done) {
  KVKEEP_CHECK(!copy.runs.empty());
  for (const GpuRun& run : copy.runs) {
    Range& range = ranges_.at(run.registration.value());
    KVKEEP_CHECK(!range.given_back && run.bytes > 0);
    KVKEEP_CHECK(run.offset <= range.bytes && run.bytes <= range.bytes - run.offset);
    ++range.copies;
  }
  Held held{.copy = std::move(copy), .done = std::move(done)};
  if (hold_) {
    held_.push_back(std::move(held));
    return;
  }
  executor_->Post([this, held = std::move(held)]() mutable { End(std::move(held), {}); });
}

size_t FakeGpuDevice::given_back() const {
  size_t count = 0;
  for (const auto& [id, range] : ranges_) count += range.given_back;
  return count;
}

void FakeGpuDevice::Move(const GpuCopy& copy) {
  const uint64_t segment_bytes = arena_->segment_blocks().value() * kBlockBytes;
  for (const GpuRun& run : copy.runs) {
    const Range& range = ranges_.at(run.registration.value());
    std::byte* const in_gpu = memory_.at(range.memory).data() + range.offset + run.offset;
    const auto segment = arena_->SegmentMemory(run.arena_offset / segment_bytes);
    const auto in_arena = segment.subspan(run.arena_offset % segment_bytes, run.bytes);
    if (copy.direction == CopyDirection::kToArena) {
      std::memcpy(in_arena.data(), in_gpu, run.bytes);
    } else {
      std::memcpy(in_gpu, in_arena.data(), run.bytes);
    }
  }
}

void FakeGpuDevice::EndOne(CopyEnd end, size_t which) {
  KVKEEP_CHECK(which < held_.size());
  Held held = std::move(held_[which]);
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
  End(std::move(held), std::move(end));
}

void FakeGpuDevice::End(Held held, CopyEnd end) {
  if (end.status.ok()) Move(held.copy);
  if (end.fenced) {
    for (const GpuRun& run : held.copy.runs) {
      const uint64_t id = run.registration.value();
      --ranges_.at(id).copies;
    }
    for (const GpuRun& run : held.copy.runs) {
      if (ranges_.contains(run.registration.value())) CloseIfUnused(run.registration.value());
    }
  } else {
    abandoned_.push_back(std::move(held.copy));
  }
  std::move(held.done)(std::move(end));
}

void FakeGpuDevice::RunAbandoned() {
  for (const GpuCopy& copy : abandoned_) Move(copy);
}

void FakeGpuPath::Register(const GpuUuid&, GpuMemory memory, RegisterDone done) {
  device_.Register(std::move(memory),
                   [this, done = std::move(done)](absl::StatusOr<GpuRegistrationId> id) mutable {
                     if (id.ok()) {
                       std::move(done)(Registered{.device = &device_, .id = *id});
                     } else {
                       std::move(done)(id.status());
                     }
                   });
}

}  // namespace kvkeep
