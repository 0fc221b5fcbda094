// SimulatedNode: a store with real threads and memory over simulated drives. It measures the total
// speed of reads and write-backs.
//
// Its data is three times G2 and read in turn, so that it comes from the drives; only such bytes
// count. It reads prompts of some chunks each, a window of them at a time, as many engines do. One
// thread; it ends with its process only.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/bench/store/simulated_device.h"
#include "tiers/base/executor.h"
#include "tiers/host/arena.h"
#include "tiers/store/store.h"

namespace kvkeep {

class SimulatedNode {
 public:
  struct Options {
    int drives = 1;
    double bytes_per_second = 250e6;  // of each: two together must stay below what the CPUs can do
    std::chrono::nanoseconds latency = std::chrono::microseconds(100);
    uint64_t data_bytes = 0;  // of all drives together
  };
  static absl::StatusOr<std::unique_ptr<SimulatedNode>> Start(const Options& options);

  // Puts the data. Returns GB/s, until everything was on the drives.
  absl::StatusOr<double> Fill();
  // Returns GB/s of payload that came from the drives, whole and verified in G2. REQUIRES: Fill.
  absl::StatusOr<double> Read(double seconds);

 private:
  struct Prompt;
  // Prompts whose last chunk has come, as the store's threads report.
  struct Arrived {
    Mutex mu;
    CondVar some;
    std::vector<Prompt*> prompts ABSL_GUARDED_BY(mu);
  };

  explicit SimulatedNode(const Options& options) : options_(options) {}
  absl::Status Open();
  ChunkKey KeyOf(uint64_t prompt, uint64_t chunk) const;
  absl::Status Put(uint64_t prompt, std::span<const std::byte> payload);
  // Returns whether prompts [first, end) are on the drives.
  absl::Status AwaitDurable(uint64_t first, uint64_t end);
  absl::StatusOr<std::unique_ptr<Prompt>> Begin();
  // Reads prompts, a window of them at a time, while `more`. Returns how many bytes came from the
  // drives meanwhile.
  absl::StatusOr<uint64_t> ReadWhile(absl::FunctionRef<bool()> more);
  // Returns finished prompts; waits for the first one.
  std::vector<Prompt*> AwaitArrived();
  uint64_t prompts() const;

  const Options options_;
  std::unique_ptr<ThreadPool> copy_, index_;
  std::vector<std::unique_ptr<SimulatedDevice>> drives_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Store> store_;
  SessionToken session_;
  NamespaceDigest ns_;
  std::vector<uint64_t> order_;  // order in which prompts are read, the same each time round
  uint64_t begun_ = 0;
  Arrived arrived_;
};

}  // namespace kvkeep
