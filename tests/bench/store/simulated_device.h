// SimulatedDevice: a drive of given latency and bandwidth, in memory, for nodes with several drives
// on a machine without any. It is an NvmeDevice with its Device and an index that is not read.
//
// Operations move over its bus one after the other, in order of arrival, at its bandwidth. Each is
// over when its bytes have moved and the latency has passed since. So many operations in flight
// hide the latency, and nothing is faster than the bus. One thread of its own copies the bytes and
// runs the callbacks. The destructor waits for operations in flight. Thread-safe, as a Device is.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/nvme/nvme_device.h"

namespace kvkeep {

struct SimulatedDrive {
  uint64_t bytes = 0;
  std::chrono::nanoseconds latency{0};
  double bytes_per_second = 0;
};

// Computes when operations are over, as pure arithmetic.
class SimulatedBus {
 public:
  explicit SimulatedBus(const SimulatedDrive& drive) : drive_(drive) {}
  // Returns when an operation that comes now is over; never earlier than the one before it.
  MonotonicTime DoneAt(MonotonicTime now, uint64_t bytes);

 private:
  const SimulatedDrive drive_;
  MonotonicTime free_at_{0};
};

class SimulatedDevice final : public NvmeDevice, private Device {
 public:
  SimulatedDevice(const SimulatedDrive& drive, uint8_t name);
  ~SimulatedDevice() override;

  const Uuid& uuid() const override { return uuid_; }
  const std::string& dir() const override { return dir_; }
  BlockCount capacity_blocks() const override { return BlockCount(bytes_.size() / kBlockBytes); }
  BlockCount barrier_blocks() const override { return capacity_blocks(); }
  // Block 0 is the label, as on a real one.
  ExtentList ReservedExtents() const override { return {Extent{BlockNumber(0), BlockCount(1)}}; }
  uint64_t used_directory_bytes() const override { return bytes_.size(); }
  uint64_t capacity_bytes() const override { return bytes_.size(); }
  bool index_over_budget() const override { return false; }
  Device& io() override { return *this; }
  ChunkIndex& index() override { return *index_; }

 private:
  struct InFlight {
    IoOperation operation;
    MonotonicTime done_at;
  };

  void Submit(IoOperation operation) override;
  absl::Status Sync() override { return absl::OkStatus(); }
  uint64_t size_bytes() const override { return bytes_.size(); }
  void Work();

  const std::string dir_ = "simulated";
  Uuid uuid_;
  const std::unique_ptr<ChunkIndex> index_;
  std::vector<std::byte> bytes_;  // overlapping operations are never in flight at once
  Mutex mu_;
  CondVar work_or_stop_;
  SimulatedBus bus_ ABSL_GUARDED_BY(mu_);
  std::deque<InFlight> in_flight_ ABSL_GUARDED_BY(mu_);  // by done_at
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread worker_;  // last: it uses the others
};

}  // namespace kvkeep
