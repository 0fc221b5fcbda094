#include "tiers/store/learning.h"

#include <algorithm>

#include "tiers/base/units.h"

namespace kvkeep::store_internal {
namespace {

// One turn plays kLinks links, in some 30 us. A task gives kTurns turns, so that copies do not wait
// long for it.
constexpr size_t kLinks = 64, kTurns = 8;
// Chains, comings and goings that start a task. To wake a thread takes longer than a lookup. The
// longest chains of a batch are a quarter of what may wait (ReuseLearner::kMostLinks).
constexpr uint64_t kBatch = 64;
// Links between two ticks, 0.1 s apart, after which a tenant's lookups are not told to a tier's
// learner. To play so many takes a sixth of a CPU. They are 64 requests of the longest chains. A
// lookup is told as a whole or not at all, so that no part of it is known less than the others.
constexpr uint64_t kLinksPerTick = 1 << 15;
constexpr size_t kFollowed = 64;  // judgements between two looks at the clock of the hold

}  // namespace

Learning::Learning(Executor* executor, Chunks* chunks, const DeviceTiers* tiers)
    : executor_(executor), chunks_(*chunks) {
  chunks_.AssertHeld();  // nobody else knows this object yet
  for (const auto& pool : chunks_.pools) {
    ChainLearner* const learner = pool->policy->learner();
    if (learner != nullptr) Add(tiers_[kG2], learner);
  }
  if (tiers->empty()) return;
  for (const auto& policy : tiers->at(0).policies) {
    if (policy->learner() != nullptr) Add(tiers_[kG3], policy->learner());
  }
}

void Learning::Add(Tier& tier, ChainLearner* learner) {
  tier.learners.Add(learner);
  tier.told.push_back(0);
}

void Learning::Tell(Section& section, TenantId tenant, LookupState& lookup) {
  for (Tier& tier : tiers_) {
    const auto& learners = tier.learners.all();
    if (tenant.value() >= learners.size()) continue;
    TellOne(section, *learners[tenant.value()], lookup, tier.told[tenant.value()]);
    StartIfEnough(tier, *learners[tenant.value()]);
  }
}

void Learning::TellOne(Section& section, ChainLearner& learner, LookupState& lookup,
                       uint64_t& told) {
  const size_t parts = lookup.chunks.parts.size(), keys = lookup.chunks.keys.size();
  const MonotonicTime now = lookup.told_at;
  if (told >= kLinksPerTick) {
    skipped_ += parts * DivideRoundUp(keys, ChainLearner::kLongestChain);
    return;
  }
  told += parts * keys;
  for (size_t part = 0; part < parts; ++part) {
    for (size_t begin = 0; begin < keys; begin += ChainLearner::kLongestChain) {
      section.YieldIfSpent();
      const size_t length = std::min(keys - begin, ChainLearner::kLongestChain);
      const auto chain = std::span(lookup.chain).first(length);
      for (size_t i = 0; i < length; ++i) {
        chain[i] = {.fingerprint = lookup.found[(begin + i) * parts + part].fingerprint};
      }
      learner.Tell(chain, now);
      chunks_.Count(static_cast<uint32_t>(work::kLook * length));
    }
  }
}

void Learning::AfterPut() {
  for (Tier& tier : tiers_) {
    for (const ChainLearner* const learner : tier.learners.all()) StartIfEnough(tier, *learner);
  }
}

void Learning::Tick() {
  for (Tier& tier : tiers_) {
    std::fill(tier.told.begin(), tier.told.end(), 0);
    if (tier.learners.anyone_waits()) Start(tier);
  }
}

bool Learning::at_rest() const {
  return std::none_of(tiers_.begin(), tiers_.end(), [](const Tier& tier) {
    return tier.running || tier.learners.anyone_waits();
  });
}

uint64_t Learning::skipped() const {
  uint64_t skipped = skipped_;
  for (const Tier& tier : tiers_) {
    for (const ChainLearner* const learner : tier.learners.all()) skipped += learner->skipped();
  }
  return skipped;
}

void Learning::StartIfEnough(Tier& tier, const ChainLearner& learner) {
  if (learner.waiting() >= kBatch) Start(tier);
}

void Learning::Start(Tier& tier) {
  if (stopped_ || tier.running.exchange(true)) return;
  ++tasks_;
  chunks_.Later([this, &tier] { Post(tier); });
}

void Learning::Post(Tier& tier) {
  executor_->Post([this, &tier] { Run(tier); });
}

// A caller tells a learner first and reads `running` second. This task clears `running` first and
// reads the learners second. So one of the two sees what was told. The store may be destroyed once
// the task is no longer counted, so the count is the last thing that the task touches.
void Learning::Run(Tier& tier) {
  if (!stopped_) {
    tier.learners.Play(kTurns, kLinks);
    Follow(tier);
  }
  tier.running = false;
  if (!stopped_ && tier.learners.anyone_waits() && !tier.running.exchange(true)) return Post(tier);
  --tasks_;
}

void Learning::Follow(Tier& tier) {
  const bool any = std::any_of(tier.learners.all().begin(), tier.learners.all().end(),
                               [](const ChainLearner* learner) { return learner->judged(); });
  if (!any) return;
  Section section(&chunks_, Section::Kind::kMaintenance);
  for (ChainLearner* const learner : tier.learners.all()) {
    for (bool more = learner->judged(); more;) {
      section.YieldIfSpent();
      const size_t followed = learner->Follow(kFollowed);
      chunks_.Count(static_cast<uint32_t>(work::kFollow * followed));
      more = followed == kFollowed;
    }
  }
}

}  // namespace kvkeep::store_internal
