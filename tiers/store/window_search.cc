#include "tiers/store/window_search.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

double AgeOf(const WindowSearch::Yield& yield) {
  return yield.evicted == 0 ? 0 : yield.age / static_cast<double>(yield.evicted);
}

// Whether it is better to empty `one`: nothing has to go, or what goes was wanted longer ago. What
// gives nothing comes last.
bool IsCheaper(const WindowSearch::Yield& one, const WindowSearch::Yield& other) {
  if ((one.blocks == 0) != (other.blocks == 0)) return one.blocks > 0;
  if ((one.evicted == 0) != (other.evicted == 0)) return one.evicted == 0;
  return AgeOf(one) > AgeOf(other);
}

}  // namespace

WindowSearch::Yield WindowSearch::LookAt(const PlaceIndex& places, uint64_t granule,
                                         uint64_t free_blocks, Judge judge) {
  Yield yield{.blocks = free_blocks};
  uint32_t looked = 0;
  for (ChunkSlot slot = places.First(granule); slot != kNoSlot; slot = places.Next(slot)) {
    const std::optional<Candidate> candidate =
        ++looked > kMostLooked ? std::nullopt : judge(slot);
    if (!candidate.has_value()) {
      ++yield.staying;
      if (looked > kMostLooked) break;
      continue;
    }
    yield.blocks += candidate->blocks;
    yield.evicted += candidate->blocks;
    // Nothing was wanted before the policy began; what is far below was taken off its order.
    const int64_t age = candidate->newest - std::max<int64_t>(candidate->recency, 0);
    yield.age += static_cast<double>(candidate->blocks) * static_cast<double>(age);
  }
  return yield;
}

std::vector<uint64_t> WindowSearch::Seeds(EvictionPolicy& policy, const PlaceIndex& places,
                                          Hold& hold, PlaceOf place_of) {
  std::vector<uint64_t> seeds;
  std::vector<ChunkSlot> parked;
  while (seeds.size() < kMostSeeds && parked.size() < kMostVictims) {
    const std::optional<ChunkSlot> victim = policy.Victim();
    if (!victim.has_value()) break;
    policy.Park(*victim);
    hold.Count(work::kPark);
    const std::optional<BlockNumber> place = place_of(*victim);
    if (place.has_value()) {
      parked.push_back(*victim);
      const uint64_t seed = places.GranuleOf(*place);
      if (std::find(seeds.begin(), seeds.end(), seed) == seeds.end()) seeds.push_back(seed);
    }
    if (hold.Spent()) break;  // after one victim at least: so callers that come again get on
  }
  for (const ChunkSlot slot : parked) policy.Unpark(slot);
  return seeds;
}

WindowSearch::WindowSearch(uint64_t granules, uint64_t blocks, std::vector<uint64_t> seeds)
    : granules_(granules), blocks_(blocks), seeds_(std::move(seeds)) {
  KVKEEP_CHECK(seeds_.size() <= kMostSeeds);
}

bool WindowSearch::Step(Look look) {
  if (!growing_) {
    if (seeds_.empty()) return false;
    BeginWindow(look);
    return true;
  }
  if (sum_.blocks >= blocks_ || sum_.staying > kMostStaying) {
    EndWindow();
    return true;
  }
  const bool has_left = window_.begin > 0, has_right = window_.end < granules_;
  if (has_left && !left_.has_value()) {
    left_ = look(window_.begin - 1);
    return true;
  }
  if (has_right && !right_.has_value()) {
    right_ = look(window_.end);
    return true;
  }
  if (!has_left && !has_right) {
    growing_ = false;  // all there is, and not enough
    return true;
  }
  if (has_right && (!has_left || !IsCheaper(*left_, *right_))) {
    ++window_.end;
    Take(*std::exchange(right_, std::nullopt));
  } else {
    --window_.begin;
    Take(*std::exchange(left_, std::nullopt));
  }
  return true;
}

void WindowSearch::BeginWindow(Look look) {
  const uint64_t seed = seeds_.back();
  seeds_.pop_back();
  KVKEEP_CHECK(seed < granules_);
  window_ = {seed, seed + 1};
  left_ = right_ = std::nullopt;
  sum_ = look(seed);
  growing_ = true;
}

void WindowSearch::Take(const Yield& yield) {
  sum_.blocks += yield.blocks;
  sum_.evicted += yield.evicted;
  sum_.age += yield.age;
  sum_.staying += yield.staying;
}

void WindowSearch::EndWindow() {
  growing_ = false;
  if (sum_.blocks < blocks_ || sum_.staying > kMostStaying) return;
  const double age = AgeOf(sum_);
  if (best_.has_value() && age <= best_age_) return;
  best_ = window_;
  best_age_ = age;
}

}  // namespace kvkeep::store_internal
