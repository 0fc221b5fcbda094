#include "tools/compare/plan.h"

#include <catch2/catch.hpp>

#include "tiers/base/units.h"

namespace kvkeep::compare {
namespace {

// What the command asks for when it is told nothing.
Asked Ordinary() {
  return {.sizes = {kMiB, 4 * kMiB, 32 * kMiB},
          .batches = {},
          .capacity_bytes = kGiB,
          .region_bytes = 256 * kMiB,
          .seconds = 0.2,
          .rounds = 9,
          .nvme_round_bytes = 1536 * kMiB};
}

constexpr uint64_t kContestants = 8;  // all but peers

std::vector<std::pair<uint64_t, uint64_t>> CallsOf(const Plan& plan) {
  std::vector<std::pair<uint64_t, uint64_t>> calls;
  for (const Call& call : plan.calls) calls.emplace_back(call.size, call.batch);
  return calls;
}

}  // namespace

TEST_CASE("the ordinary run has each size alone and eight of 4 MiB") {
  using Calls = std::vector<std::pair<uint64_t, uint64_t>>;
  Asked asked = Ordinary();
  CHECK(CallsOf(PlanOf(asked)) == Calls{{kMiB, 1}, {4 * kMiB, 1}, {4 * kMiB, 8}, {32 * kMiB, 1}});
  CHECK(PlanOf(asked).nvme.sizes == std::vector<uint64_t>{4 * kMiB, 32 * kMiB});
  asked.batches = {1, 8, 64};  // as asked for, where they fit
  CHECK(CallsOf(PlanOf(asked)) == Calls{{kMiB, 1},
                                        {kMiB, 8},
                                        {kMiB, 64},
                                        {4 * kMiB, 1},
                                        {4 * kMiB, 8},
                                        {4 * kMiB, 64},
                                        {32 * kMiB, 1},
                                        {32 * kMiB, 8}});
}

TEST_CASE("--quick takes less than two minutes, the ordinary run some ten") {
  Asked asked = Ordinary();
  CHECK(PlanOf(asked).rounds >= 9);
  CHECK(MostSeconds(PlanOf(asked), kContestants) < 720);
  CHECK(MostSeconds(PlanOf(asked), kContestants) > 300);
  asked.quick = true;
  const double quick = MostSeconds(PlanOf(asked), kContestants);
  CHECK(quick < QuickBudget::kSeconds);
  // More of anything takes longer.
  CHECK(MostSeconds(PlanOf(asked), kContestants + 1) > quick);
  asked.sizes.push_back(8 * kMiB);
  CHECK(MostSeconds(PlanOf(asked), kContestants) > quick);
  asked.nvme = false;
  CHECK(PlanOf(asked).nvme.sizes.empty());
}

TEST_CASE("--quick leaves out what it would be too late for") {
  QuickBudget in_time;  // as reckoned: all of it
  for (int step = 0; step < 5; ++step) CHECK(in_time.HasRoomFor(20, 20.0 * step));
  CHECK(in_time.HasRoomFor(20, 100));
  CHECK_FALSE(in_time.HasRoomFor(20, 101));
  QuickBudget slow;  // the first step took three times as long: so will the next ones
  CHECK(slow.HasRoomFor(20, 0));
  CHECK(slow.HasRoomFor(20, 60));
  CHECK_FALSE(slow.HasRoomFor(20, 120));
  QuickBudget slower;
  CHECK(slower.HasRoomFor(20, 0));
  CHECK_FALSE(slower.HasRoomFor(20, 70));
  CHECK(slower.HasRoomFor(10, 70));  // a smaller one may be in time
  QuickBudget fast;                  // no step is taken for shorter than it may be
  CHECK(fast.HasRoomFor(20, 0));
  CHECK_FALSE(fast.HasRoomFor(119, 5));
}

TEST_CASE("rounds of writes are as large as drive and memory allow") {
  const NvmePlan wanted = PlanOf(Ordinary()).nvme;
  CHECK(wanted.round_bytes == 1536 * kMiB);
  const auto round_bytes = [&](uint64_t disk, uint64_t memory) {
    return FitNvme(wanted, disk, memory).value().round_bytes;
  };
  CHECK(round_bytes(80 * kGiB, 20 * kGiB) == 1536 * kMiB);
  CHECK(round_bytes(30 * kGiB, 20 * kGiB) == 768 * kMiB);
  CHECK(round_bytes(80 * kGiB, 4 * kGiB) == 768 * kMiB);
  CHECK(round_bytes(15 * kGiB, 20 * kGiB) == 384 * kMiB);
  CHECK(absl::IsResourceExhausted(FitNvme(wanted, kGiB, 20 * kGiB).status()));
  CHECK(absl::IsResourceExhausted(FitNvme(wanted, 80 * kGiB, kGiB).status()));
  // Nothing that is read can still be in G2, whatever the size of the rounds.
  for (const uint64_t disk : {15 * kGiB, 80 * kGiB}) {
    const NvmePlan plan = FitNvme(wanted, disk, 20 * kGiB).value();
    CHECK(plan.disk_bytes() < disk);
    CHECK(plan.read_bytes() >= 2 * plan.g2_bytes());
    CHECK(plan.put_first_bytes() - plan.read_bytes() >= plan.g2_bytes());
  }
}

}  // namespace kvkeep::compare
