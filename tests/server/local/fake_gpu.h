// FakeGpuPath: a GpuPath with one device in memory, for tests of its users. It works only on the
// given executor. A forbidden copy (bytes outside a registration, or of an ended registration) ends
// the process, as callers must check that.
//
// A handle's first eight bytes are the number that Allocate gave. Not thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/gpu/gpu_path.h"
#include "tiers/base/executor.h"

namespace kvkeep {

class FakeGpuDevice final : public GpuDevice {
 public:
  FakeGpuDevice(Arena* arena, Executor* executor) : arena_(arena), executor_(executor) {}
  ~FakeGpuDevice() override;

  // Allocates memory of a worker. Returns its number, from 0 on.
  uint64_t Allocate(std::vector<std::byte> bytes);
  std::vector<std::byte>& memory(uint64_t number) { return memory_.at(number); }

  // Makes copies wait until they are released; otherwise a task of the executor does each.
  void Hold(bool hold) { hold_ = hold; }
  size_t held() const { return held_.size(); }
  // Returns the registrations that are given back, but still open for copies in them.
  size_t given_back() const;
  // Ends the oldest copy, or another. With status OK it is done first; if it is not fenced, it goes
  // on: RunAbandoned.
  void EndOne(CopyEnd end, size_t which = 0);
  void RunAbandoned();
  // Refuses registrations with `why` from now on.
  void Refuse(absl::Status why) { refusal_ = std::move(why); }

  void Register(GpuMemory memory, RegisterDone done) override;
  void Unregister(GpuRegistrationId id, UnregisterDone done) override;
  void Copy(GpuCopy copy, CopyDone done) override;
  void Tick() override {}
  Stats stats() const override { return {.registrations = ranges_.size()}; }

 private:
  struct Range {
    uint64_t memory = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t copies = 0;
    bool given_back = false;
    UnregisterDone closed;
  };
  struct Held {
    GpuCopy copy;
    CopyDone done;
  };
  void Move(const GpuCopy& copy);
  void End(Held held, CopyEnd end);
  void CloseIfUnused(uint64_t id);

  Arena* const arena_;
  Executor* const executor_;
  bool hold_ = false;
  absl::Status refusal_;
  std::vector<std::vector<std::byte>> memory_;
  uint64_t next_id_ = 1;
  absl::flat_hash_map<uint64_t, Range> ranges_;
  std::deque<Held> held_;
  std::vector<GpuCopy> abandoned_;
};

class FakeGpuPath final : public GpuPath {
 public:
  FakeGpuPath(Arena* arena, Executor* executor) : device_(arena, executor) {}

  FakeGpuDevice& device() { return device_; }
  size_t kept() const { return kept_.size(); }
  // Drops everything that is kept for ever, at the test's end.
  void DropKept() { kept_.clear(); }

  void Register(const GpuUuid& gpu, GpuMemory memory, RegisterDone done) override;
  void KeepForEver(std::shared_ptr<const void> holder) override { kept_.push_back(holder); }
  bool Tick() override { return true; }
  Stats stats() const override { return {.on = true, .kept = kept_.size()}; }
  std::string describe() const override { return "on, a fake"; }
  bool Stop(std::chrono::nanoseconds) override { return kept_.empty(); }

 private:
  FakeGpuDevice device_;
  std::vector<std::shared_ptr<const void>> kept_;
};

// Returns the handle that a worker would send for this memory of the fake.
std::array<uint8_t, GpuMemory::kHandleBytes> FakeGpuHandle(uint64_t memory);

}  // namespace kvkeep
