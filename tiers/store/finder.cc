#include "tiers/store/finder.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

constexpr size_t kMostInSlice = 512;  // chunks told to the policies at once
static_assert(kMostInSlice >= ChainLearner::kLongestChain);  // LookupState::chain holds either

uint64_t AllParts(size_t parts) { return parts == 64 ? ~uint64_t{0} : (uint64_t{1} << parts) - 1; }

bool Allowed(const ChunkSet& chunks, const StoreOptions& options) {
  return chunks.keys.size() * chunks.parts.size() <= options.max_keys_per_call;
}

}  // namespace

LookupState::LookupState(const ChunkSet& set, const StoreOptions& options) : chunks(set) {
  if (!Allowed(set, options)) return;  // about to be refused
  g2_parts.assign(set.keys.size(), 0);
  g3_parts.assign(set.keys.size(), 0);
  found.resize(set.keys.size() * set.parts.size());
  chain.resize(std::min(found.size(), kMostInSlice + set.parts.size()));
  ends_of_device.resize(options.g3_capacity_bytes.size());
}

Finder::Finder(const Clock* clock, Parts parts)
    : clock_(*clock),
      chunks_(*parts.chunks),
      tiers_(*parts.tiers),
      writes_(*parts.writes),
      learning_(*parts.learning),
      promotions_(*parts.promotions),
      beyond_(parts.beyond) {}

void Finder::FindSlice(LookupState& lookup, size_t begin, size_t end) {
  const ChunkSet& chunks = lookup.chunks;
  const size_t parts = chunks.parts.size();
  const uint64_t all = AllParts(parts);
  const auto found = std::span(lookup.found).subspan(begin * parts, (end - begin) * parts);
  chunks_.table.FindAll(chunks.ns, chunks.keys.subspan(begin, end - begin), chunks.parts, found);
  chunks_.Count(static_cast<uint32_t>(work::kFind * found.size()));
  uint32_t leading = 0, reachable = 0;
  size_t i = 0;
  for (size_t k = begin; k < end; ++k) {
    for (size_t p = 0; p < parts; ++p, ++i) {
      if (found[i].slot == kNoSlot) continue;
      const Chunk& chunk = chunks_.table.at(found[i].slot);
      if (chunk.in_g2()) lookup.g2_parts[k] |= uint64_t{1} << p;
      lookup.unadmitted |= chunk.unadmitted;
      lookup.unused |=
          beyond_ != nullptr && beyond_->tier.WantsUsed(found[i].slot, chunk, lookup.step);
      if (tiers_.InG3(chunk)) lookup.g3_parts[k] |= uint64_t{1} << p;
      const bool coming = chunk.recalled && chunk.g2_state == G2State::kReading;
      if (coming && !lookup.coming_parts.empty()) lookup.coming_parts[k] |= uint64_t{1} << p;
    }
    const bool whole = ((lookup.g2_parts[k] | lookup.g3_parts[k]) & all) == all;
    if (whole && leading == k - begin) ++leading;
    const uint64_t missing = all & ~lookup.parts_of(k);
    if (missing == 0 && reachable == k - begin) ++reachable;
    lookup.absent += static_cast<uint64_t>(std::popcount(missing));
  }
  // Slices come from the tail. If this slice is complete, the run of the slice behind it continues.
  const bool goes_on = leading == end - begin;
  lookup.leading_keys = goes_on ? leading + lookup.leading_keys : leading;
  lookup.reachable_keys = reachable == end - begin ? reachable + lookup.reachable_keys : reachable;
  if (lookup.to_read.empty()) return;  // nobody asks
  if (!goes_on) std::fill(lookup.to_read.begin(), lookup.to_read.end(), LookupState::ToRead{});
  for (size_t k = 0; k < leading; ++k) {
    const bool wait = (lookup.g2_parts[begin + k] & all) != all;
    if (wait) NoteToRead(found.subspan(k * parts, parts), lookup);
  }
}

void Finder::NoteToRead(std::span<const Link> found, LookupState& lookup) {
  for (const Link& link : found) {
    const Chunk& chunk = chunks_.table.at(link.slot);
    if (chunk.in_g2()) continue;
    LookupState::ToRead& of_device = lookup.to_read[chunk.device];
    if (chunk.being_read()) {
      const Promotion& promotion = *promotions_.Find(link.slot);
      of_device.coming = true;
      of_device.others |= promotion.waits() && promotion.requester() != lookup.requester;
    } else {
      of_device.bytes += chunk.blocks() * kBlockBytes;
    }
  }
}

// Devices read in parallel, so the slowest one determines the time.
std::chrono::nanoseconds Finder::PromotionTime(const LookupState& lookup) const {
  const MonotonicTime now = clock_.Now();
  std::chrono::nanoseconds longest{0};
  for (size_t d = 0; d < lookup.to_read.size(); ++d) {
    const LookupState::ToRead& of_device = lookup.to_read[d];
    if (!of_device.coming && of_device.bytes == 0) continue;
    // A chunk that another requester asked for may be the last one of all its chunks.
    longest = std::max(longest, tiers_.at(d).reads.TimeFor(lookup.requester, of_device.bytes,
                                                           of_device.others, now));
  }
  return longest;
}

// For a read behind all that wait: other requesters may have asked for the chunks.
std::chrono::nanoseconds Finder::BeyondTime(const LookupState& lookup) const {
  return beyond_->tier.reads.TimeFor(lookup.requester, 0, true, clock_.Now());
}

void Finder::TellPolicies(TenantId tenant, LookupState& lookup, std::span<const Link> found,
                          EvictionPolicy::Slice slice) {
  const MonotonicTime now = clock_.Now();
  lookup.told_at = now;
  chunks_.Count(static_cast<uint32_t>(work::kSample * chunks_.life.OnWanted(found, now)));
  TellG2(tenant, lookup, found, now, slice);
  if (!tiers_.empty()) TellDevices(tenant, lookup, found, now, slice);
}

// A hit in G2 refreshes G3's recency, too. Each device's policy is told only its own links, in
// their order, since it ignores those of other devices (list_policy.h). So the work grows with the
// links plus the devices, not with their product.
void Finder::TellDevices(TenantId tenant, LookupState& lookup, std::span<const Link> found,
                         MonotonicTime now, EvictionPolicy::Slice slice) {
  const std::span<Link> chain = std::span(lookup.chain).first(found.size());
  std::vector<uint32_t>& ends = lookup.ends_of_device;
  std::fill(ends.begin(), ends.end(), 0);
  const auto in_g3 = [&](const Link& link) STORE_LOCKED {
    return link.slot != kNoSlot && chunks_.table.at(link.slot).in_g3_policy;
  };
  for (const Link& link : found) {
    if (in_g3(link)) ++ends[chunks_.table.at(link.slot).device];
  }
  uint32_t before = 0;
  for (uint32_t& end : ends) end = std::exchange(before, before + end);
  for (const Link& link : found) {
    if (!in_g3(link)) continue;
    Chunk& chunk = chunks_.table.at(link.slot);
    chain[ends[chunk.device]++] = link;
    DeviceTier& tier = tiers_.of(chunk);
    if (tier.here()) tier.unsaved_recency.NoteTouched(chunk, link.slot);
  }
  uint32_t begin = 0;
  for (size_t d = 0; d < tiers_.size(); ++d) {
    const auto own = chain.subspan(begin, ends[d] - begin);
    begin = ends[d];
    if (own.empty() && slice == EvictionPolicy::Slice::kNext) continue;
    tiers_.at(d).policy(tenant).OnRequest(own, now, slice);
  }
  chunks_.Count(
      static_cast<uint32_t>(work::kTouch * found.size() + work::kLook * (tiers_.size() - 1)));
}

void Finder::TellG2(TenantId tenant, LookupState& lookup, std::span<const Link> found,
                    MonotonicTime now, EvictionPolicy::Slice slice) {
  const std::span<Link> chain = std::span(lookup.chain).first(found.size());
  std::copy(found.begin(), found.end(), chain.begin());
  for (Link& link : chain) {
    if (link.slot != kNoSlot && !chunks_.table.at(link.slot).in_g2_policy) link.slot = kNoSlot;
  }
  chunks_.pool(tenant).policy->OnRequest(chain, now, slice);
  chunks_.Count(static_cast<uint32_t>(work::kTouch * found.size()));
}

// Goes from the tail to the head, as the policies want it. So no slot has to outlive its slice.
void Finder::FindAll(Section& section, TenantId tenant, LookupState& lookup, Tells tells) {
  const bool touch = tells == Tells::kAll;
  const bool ages = beyond_ != nullptr && beyond_->tier.ages.on();
  if (touch && ages && beyond_->changes.writes()) {
    lookup.step = beyond_->tier.ages.At(clock_.Now());
  }
  const size_t parts = lookup.chunks.parts.size();
  // The policies of G2 and of one device.
  const size_t told = touch ? (tiers_.empty() ? 1 : 2) : tells == Tells::kG2 ? 1 : 0;
  const size_t chunk_work = work::kFind + work::kTouch * told;
  // A slice has as many chunks as one hold may do.
  const size_t chunks =
      std::min<size_t>(DivideRoundUp(chunks_.hold.max_work(), chunk_work), kMostInSlice);
  const size_t slice = DivideRoundUp(chunks, parts);
  for (size_t end = lookup.chunks.keys.size(); end > 0;) {
    const size_t begin = end - std::min(end, slice);
    const bool continued = end < lookup.chunks.keys.size();
    const auto nth = continued ? EvictionPolicy::Slice::kNext : EvictionPolicy::Slice::kFirst;
    if (continued) section.YieldIfSpent();
    FindSlice(lookup, begin, end);
    const auto found = std::span<const Link>(lookup.found).subspan(begin * parts);
    const auto own = found.first((end - begin) * parts);
    if (touch) TellPolicies(tenant, lookup, own, nth);
    if (tells == Tells::kG2) TellG2(tenant, lookup, own, clock_.Now(), nth);
    end = begin;
  }
  if (touch) learning_.Tell(section, tenant, lookup);
  if (touch && lookup.unadmitted && !chunks_.draining) OfferAgain(section, lookup);
  if (touch && lookup.unused && !chunks_.draining) {
    beyond_->changes.OfferUsed(section, lookup.chunks, lookup.found, lookup.step);
  }
}

// Offers chunks head first, in the order of the request. Pumps no device: that would evict chunks,
// and callers rely on the chunks that they have found until the next yield.
void Finder::OfferAgain(Section& section, const LookupState& lookup) {
  const ChunkSet& chunks = lookup.chunks;
  const size_t parts = chunks.parts.size();
  for (size_t i = 0; i < lookup.found.size(); ++i) {
    section.YieldIfSpent();
    chunks_.Count(work::kFind);
    const ChunkSlot slot = lookup.found[i].slot;
    if (slot == kNoSlot || !chunks_.table.StillIs(slot, lookup.id(i))) continue;
    const Chunk& chunk = chunks_.table.at(slot);
    if (!chunk.unadmitted || !chunk.resident() || chunk.g3_state != G3State::kAbsent) continue;
    if (chunk.waits_unbacked) continue;
    std::optional<ChunkKey> parent;
    if (i >= parts) parent = chunks.keys[i / parts - 1];
    chunks_.Count(work::kRecord);
    DeviceTier* const to = writes_.Enqueue(slot, parent, false);
    if (to != nullptr) chunks_.PumpLater(to->pump);
  }
}

}  // namespace kvkeep::store_internal
