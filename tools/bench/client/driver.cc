#include "tools/bench/client/driver.h"

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tools/bench/client/cpu_time.h"

namespace kvkeep::bench {
namespace {

constexpr int kMaxFailuresInARow = 16;

void Count(const CallResult& result, double took, Measured* measured) {
  if (!result.status.ok()) {
    ++measured->failed_ops;
    if (measured->first_failure.empty()) measured->first_failure = result.status.ToString();
    return;
  }
  ++measured->ops;
  measured->chunks += result.chunks;
  measured->bytes += result.bytes;
  measured->copied_bytes += result.copied_bytes;
  measured->latency.RecordSeconds(took);
  if (result.first_piece_ns > 0) measured->first_piece.Record(result.first_piece_ns);
}

// Makes one call after the other on this thread, for `seconds` of calls.
void RunAlone(Operation& operation, double seconds, uint64_t max_ops, Measured* measured) {
  int failures_in_a_row = 0;
  for (uint64_t n = 0; n < max_ops && measured->seconds < seconds; ++n) {
    if (failures_in_a_row == kMaxFailuresInARow) return;
    operation.Prepare();
    const double began = WallSeconds();
    const CallResult result = operation.Run();
    const double took = WallSeconds() - began;
    measured->seconds += took;
    Count(result, took, measured);
    failures_in_a_row = result.status.ok() ? 0 : failures_in_a_row + 1;
  }
}

// Makes several calls at once: each operation begins its next call when its last one has ended.
class Slots {
 public:
  Slots(double end, uint64_t max_ops, Measured* measured)
      : end_(end), left_(max_ops), measured_(measured) {}

  void Run(std::span<const std::unique_ptr<Operation>> operations) {
    for (const auto& operation : operations) {
      {
        MutexLock lock(&mu_);
        if (left_ == 0) break;
        --left_;
        ++under_way_;
      }
      Begin(operation.get());
    }
    MutexLock lock(&mu_);
    while (under_way_ > 0) idle_.Wait(&mu_);
  }

 private:
  void Begin(Operation* operation) {
    operation->Prepare();
    const double began = WallSeconds();
    operation->Start(
        [this, operation, began](CallResult result) { Ended(operation, began, result); });
  }
  void Ended(Operation* operation, double began, const CallResult& result) {
    {
      const double now = WallSeconds();
      MutexLock lock(&mu_);
      Count(result, now - began, measured_);
      // A failed call may have failed inside Start: begin no other call here.
      if (!result.status.ok() || now >= end_ || left_ == 0) {
        if (--under_way_ == 0) idle_.NotifyAll();
        return;
      }
      --left_;
    }
    Begin(operation);
  }

  const double end_;
  Mutex mu_;
  CondVar idle_;
  uint64_t left_ ABSL_GUARDED_BY(mu_);
  int under_way_ ABSL_GUARDED_BY(mu_) = 0;
  Measured* const measured_ ABSL_PT_GUARDED_BY(mu_);
};

}  // namespace

Measured Drive(std::span<const std::unique_ptr<Operation>> operations,
               const DriveOptions& options) {
  KVKEEP_CHECK(!operations.empty());
  Measured all;
  const uint64_t max_ops = options.max_ops == 0 ? UINT64_MAX : options.max_ops;
  while (all.seconds < options.seconds && all.ops < max_ops) {
    Measured slice;
    const double cpu_begin = ProcessCpuSeconds();
    const double seconds = std::min(options.slice_seconds, options.seconds - all.seconds);
    if (operations.size() == 1) {
      RunAlone(*operations[0], seconds, max_ops - all.ops, &slice);
    } else {
      const double begin = WallSeconds();
      Slots(begin + seconds, max_ops - all.ops, &slice).Run(operations);
      slice.seconds = WallSeconds() - begin;
    }
    slice.client_cpu_seconds = ProcessCpuSeconds() - cpu_begin;
    if (options.verify) {
      for (const auto& operation : operations) {
        const VerifyResult verified =
            operation->Verify(options.verify_bytes_per_slice / operations.size());
        slice.verified_bytes += verified.bytes;
        slice.wrong_bytes += verified.wrong;
      }
    }
    all.Add(slice, /*side_by_side=*/false);
    if (slice.ops == 0) break;
  }
  return all;
}

}  // namespace kvkeep::bench
