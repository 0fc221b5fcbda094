#include "tools/compare/plan.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/units.h"

namespace kvkeep::compare {
namespace {

constexpr uint64_t kOrdinaryBatchSize = 4 * kMiB, kOrdinaryBatch = 8;
constexpr uint64_t kLeastNvmeSize = 4 * kMiB;
constexpr double kNvmeSlices = 4;  // a slice beside fio is so many times as long
constexpr int kQuickRounds = 3;
constexpr double kQuickSliceSeconds = 0.1;
constexpr uint64_t kQuickCapacityBytes = 512 * kMiB;
constexpr uint64_t kQuickNvmeRoundBytes = 128 * kMiB;
constexpr uint64_t kLeastRoundBytes = 64 * kMiB;
constexpr uint64_t kBesideG2Bytes = kGiB;  // clients, fio, and what the daemon has beside the arena

// Of MostSeconds.
constexpr double kStartSeconds = 0.4;  // of a contestant and its servers
constexpr double kFirstTouchedPerSecond = 2e9, kDrivePerSecond = 1e9;
constexpr double kSlicesOfCall = 3;     // get, lookup+get, put
constexpr double kWithComparing = 1.6;  // of a slice's seconds; puts are compared in part
constexpr double kFioStartSeconds = 0.2;
constexpr double kContestants = 3;  // kvkeep, and fio in two ways

double OfDrive(uint64_t bytes) { return static_cast<double>(bytes) / kDrivePerSecond; }

}  // namespace

uint64_t NvmePlan::disk_bytes() const { return g3_bytes() + read_bytes() + round_bytes; }
uint64_t NvmePlan::memory_bytes() const { return g2_bytes() + kBesideG2Bytes; }

Plan PlanOf(const Asked& asked) {
  Plan plan{.calls = {},
            .capacity_bytes = asked.quick ? std::min(asked.capacity_bytes, kQuickCapacityBytes)
                                          : asked.capacity_bytes,
            .region_bytes = asked.region_bytes,
            .seconds = asked.quick ? kQuickSliceSeconds : asked.seconds,
            .rounds = asked.quick ? kQuickRounds : asked.rounds,
            .nvme = {}};
  const auto add = [&](uint64_t size, uint64_t batch) {
    if (size * batch > std::min(plan.region_bytes, plan.capacity_bytes / 2)) return;
    plan.calls.push_back({size, batch});
  };
  for (const uint64_t size : asked.sizes) {
    for (const uint64_t batch : asked.batches) add(size, batch);
    if (asked.batches.empty()) add(size, 1);
    if (asked.batches.empty() && size == kOrdinaryBatchSize) add(size, kOrdinaryBatch);
    if (asked.nvme && size >= kLeastNvmeSize) plan.nvme.sizes.push_back(size);
  }
  plan.nvme.round_bytes = asked.quick ? kQuickNvmeRoundBytes : asked.nvme_round_bytes;
  plan.nvme.seconds = kNvmeSlices * plan.seconds;
  plan.nvme.rounds = plan.rounds;
  return plan;
}

absl::StatusOr<NvmePlan> FitNvme(NvmePlan wanted, uint64_t disk_bytes, uint64_t memory_bytes) {
  while (wanted.disk_bytes() > disk_bytes / 10 * 9 ||
         wanted.memory_bytes() > memory_bytes / 10 * 9) {
    wanted.round_bytes /= 2;
    if (wanted.round_bytes >= kLeastRoundBytes) continue;
    return absl::ResourceExhaustedError(absl::StrCat("no room: ", disk_bytes, " bytes of disk and ",
                                                     memory_bytes, " of memory are free"));
  }
  return wanted;
}

double MostNvmeSeconds(const NvmePlan& plan) {
  if (plan.sizes.empty()) return 0;
  const double fio = plan.seconds + kFioStartSeconds, fio_fill = OfDrive(plan.round_bytes);
  const double reads = 2 * plan.seconds + 2 * fio;  // as long again to compare
  const double fills = kContestants * fio_fill + 2 * kFioStartSeconds;
  const double overwrites = OfDrive(plan.round_bytes) + 2 * fio;
  const double of_size =
      kStartSeconds + OfDrive(plan.g3_bytes()) + plan.rounds * (reads + fills + overwrites);
  return OfDrive(plan.read_bytes()) + static_cast<double>(plan.sizes.size()) * of_size;
}

double MostCallSeconds(const Plan& plan, uint64_t contestants) {
  // Two regions, what is kept, and half of it filled.
  const double touched = static_cast<double>(2 * plan.region_bytes + plan.capacity_bytes / 2 * 3) /
                         kFirstTouchedPerSecond;
  const double slices = plan.rounds * kSlicesOfCall * plan.seconds * kWithComparing;
  return static_cast<double>(contestants) * (kStartSeconds + touched + slices);
}

double MostSeconds(const Plan& plan, uint64_t contestants) {
  const double lookups = static_cast<double>(contestants) * plan.rounds * plan.seconds;
  return static_cast<double>(plan.calls.size()) * MostCallSeconds(plan, contestants) + lookups +
         MostNvmeSeconds(plan.nvme);
}

bool QuickBudget::HasRoomFor(double most_seconds, double elapsed) {
  const double pace = reckoned_ == 0 ? 1 : std::max(1.0, elapsed / reckoned_);
  if (elapsed + pace * most_seconds > kSeconds) return false;
  reckoned_ += most_seconds;
  return true;
}

}  // namespace kvkeep::compare
