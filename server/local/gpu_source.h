// GpuSource: payloads in memory of a GPU. The GPU's device copies them to where the chunks will
// lie, a round at a time, in groups of some MiB; the put checksums and seals what lies in place
// while the next groups are on their way.
//
// A group is fenced when its copy has ended for good. Pieces become ready in order, up to the first
// group that is not fenced. A copy that cannot be fenced may write its space at any later time, so
// the round never ends then, and the path keeps the put and its space for ever.
#pragma once

#include <atomic>
#include <vector>

#include "server/local/context.h"
#include "server/local/put_plan.h"
#include "server/local/put_source.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class GpuSource final : public PutSource {
 public:
  // The plan's timeout begins now. `plan` and `put` own this and outlive it.
  // REQUIRES: plan->gpu() != nullptr.
  GpuSource(std::shared_ptr<const LocalContext> context, PutPlan* plan, Put* put);

  void Fetch(std::span<const PutPiece> pieces) override;
  // Checksums the piece, which is in its place.
  absl::Status Fill(const PutPiece& piece, Wait wait, Reservation* space) override;
  void Drop() override;
  // Copies that the device has already end first.
  void Cancel() override { cancelled_.store(true, std::memory_order_relaxed); }
  // The GPU brings pieces faster than a few threads checksum them, and a checksum takes a third of
  // the time of a copy.
  size_t tasks_a_run() const override { return 4; }

 private:
  // One copy for the device.
  struct Order {
    std::vector<GpuRun> runs;
    std::vector<uint32_t> chunks;  // whose pieces they are, in order, each once
    size_t pieces = 0;
    uint64_t bytes = 0;
  };
  struct Group {
    size_t end_piece = 0;  // counted over all rounds
    bool fenced = false;
  };

  std::vector<Order> Orders(std::span<const PutPiece> pieces) const;
  void Copy(size_t group, Order order);
  // Called on the device's executor.
  void OnCopied(size_t group, const std::vector<uint32_t>& chunks, const CopyEnd& end);

  const std::shared_ptr<const LocalContext> context_;
  PutPlan* const plan_;
  Put* const put_;
  const MonotonicTime deadline_;
  std::atomic<bool> cancelled_{false};

  Mutex mu_;
  std::vector<Group> groups_ ABSL_GUARDED_BY(mu_);  // of this round
  size_t fenced_groups_ ABSL_GUARDED_BY(mu_) = 0;   // the leading ones
  size_t copies_left_ ABSL_GUARDED_BY(mu_) = 0;     // of this round
  bool unfenced_ ABSL_GUARDED_BY(mu_) = false;      // a copy never ends
};

}  // namespace kvkeep
