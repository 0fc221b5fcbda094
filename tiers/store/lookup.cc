// Lookup and leases, touch, prefetch, delete.
#include <absl/strings/str_cat.h>

#include <bit>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/store/core.h"
#include "tiers/store/lookup_state.h"

namespace kvkeep::store_internal {
namespace {

constexpr size_t kMostInSlice = 512;  // chunks told to the policies at once
static_assert(kMostInSlice >= ChainLearner::kLongestChain);  // LookupState::chain holds either

uint64_t AllParts(size_t parts) { return parts == 64 ? ~uint64_t{0} : (uint64_t{1} << parts) - 1; }

bool Allowed(const ChunkSet& chunks, const StoreOptions& options) {
  return chunks.keys.size() * chunks.parts.size() <= options.max_keys_per_call;
}

}  // namespace

Core::LookupState::LookupState(const ChunkSet& set, const StoreOptions& options) : chunks(set) {
  if (!Allowed(set, options)) return;  // about to be refused
  g2_parts.assign(set.keys.size(), 0);
  g3_parts.assign(set.keys.size(), 0);
  found.resize(set.keys.size() * set.parts.size());
  chain.resize(std::min(found.size(), kMostInSlice + set.parts.size()));
  ends_of_device.resize(options.g3_capacity_bytes.size());
}

void Core::FindSlice(LookupState& lookup, size_t begin, size_t end) {
  const ChunkSet& chunks = lookup.chunks;
  const size_t parts = chunks.parts.size();
  const uint64_t all = AllParts(parts);
  const auto found = std::span(lookup.found).subspan(begin * parts, (end - begin) * parts);
  table_.FindAll(chunks.ns, chunks.keys.subspan(begin, end - begin), chunks.parts, found);
  Count(static_cast<uint32_t>(work::kFind * found.size()));
  uint32_t leading = 0, reachable = 0;
  size_t i = 0;
  for (size_t k = begin; k < end; ++k) {
    for (size_t p = 0; p < parts; ++p, ++i) {
      if (found[i].slot == kNoSlot) continue;
      const Chunk& chunk = table_.at(found[i].slot);
      if (chunk.in_g2()) lookup.g2_parts[k] |= uint64_t{1} << p;
      lookup.unadmitted |= chunk.unadmitted;
      lookup.unused |= remote_ != nullptr && remote_->WantsUsed(found[i].slot, chunk, lookup.step);
      if (disk_.tiers.InG3(chunk)) lookup.g3_parts[k] |= uint64_t{1} << p;
      const bool coming = chunk.recalled && chunk.g2_state == G2State::kReading;
      if (coming && !lookup.coming_parts.empty()) lookup.coming_parts[k] |= uint64_t{1} << p;
    }
    const bool whole = ((lookup.g2_parts[k] | lookup.g3_parts[k]) & all) == all;
    if (whole && leading == k - begin) ++leading;
    const uint64_t missing = all & ~lookup.parts_of(k);
    if (missing == 0 && reachable == k - begin) ++reachable;
    lookup.absent += static_cast<uint64_t>(std::popcount(missing));
  }
  // Slices come from the tail: the run goes on where this slice is whole.
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

void Core::NoteToRead(std::span<const Link> found, LookupState& lookup) {
  for (const Link& link : found) {
    const Chunk& chunk = table_.at(link.slot);
    if (chunk.in_g2()) continue;
    LookupState::ToRead& of_device = lookup.to_read[chunk.device];
    if (chunk.being_read()) {
      const Promotion& promotion = *filler_.Find(link.slot);
      of_device.coming = true;
      of_device.others |= promotion.waits() && promotion.requester() != lookup.requester;
    } else {
      of_device.bytes += chunk.blocks() * kBlockBytes;
    }
  }
}

// Devices read side by side: the slowest says when all is there.
std::chrono::nanoseconds Core::PromotionTime(const LookupState& lookup) const {
  std::chrono::nanoseconds longest{0};
  for (size_t d = 0; d < lookup.to_read.size(); ++d) {
    const LookupState::ToRead& of_device = lookup.to_read[d];
    if (!of_device.coming && of_device.bytes == 0) continue;
    // What another one asked for may be the last of all that it did.
    longest = std::max(longest, disk_.tiers.at(d).reads.TimeFor(lookup.requester, of_device.bytes,
                                                                of_device.others));
  }
  return longest;
}

void Core::TellPolicies(TenantId tenant, LookupState& lookup, std::span<const Link> found,
                        EvictionPolicy::Slice slice) {
  const MonotonicTime now = deps_.clock->Now();
  Count(static_cast<uint32_t>(work::kSample * life_.OnWanted(found, now)));
  TellG2(tenant, lookup, found, now, slice);
  if (!disk_.tiers.empty()) TellDevices(tenant, lookup, found, now, slice);
}

// A hit in G2 refreshes G3's recency too. Each device's policy is told of its own links, in their
// order: those of other devices are nothing to it (list_policy.h). So the work grows with the links
// and with the devices, not with their product.
void Core::TellDevices(TenantId tenant, LookupState& lookup, std::span<const Link> found,
                       MonotonicTime now, EvictionPolicy::Slice slice) {
  const std::span<Link> chain = std::span(lookup.chain).first(found.size());
  std::vector<uint32_t>& ends = lookup.ends_of_device;
  std::fill(ends.begin(), ends.end(), 0);
  const auto in_g3 = [&](const Link& link) STORE_LOCKED {
    return link.slot != kNoSlot && table_.at(link.slot).in_g3_policy;
  };
  for (const Link& link : found) {
    if (in_g3(link)) ++ends[table_.at(link.slot).device];
  }
  uint32_t before = 0;
  for (uint32_t& end : ends) end = std::exchange(before, before + end);
  for (const Link& link : found) {
    if (!in_g3(link)) continue;
    Chunk& chunk = table_.at(link.slot);
    chain[ends[chunk.device]++] = link;
    DeviceTier& tier = disk_.tiers.of(chunk);
    if (tier.here()) tier.unsaved_recency.NoteTouched(chunk, link.slot);
  }
  uint32_t begin = 0;
  for (size_t d = 0; d < disk_.tiers.size(); ++d) {
    const auto own = chain.subspan(begin, ends[d] - begin);
    begin = ends[d];
    if (own.empty() && slice == EvictionPolicy::Slice::kNext) continue;
    disk_.tiers.at(d).policy(tenant).OnRequest(own, now, slice);
  }
  Count(static_cast<uint32_t>(work::kTouch * found.size() +
                              work::kLook * (disk_.tiers.size() - 1)));
}

void Core::TellG2(TenantId tenant, LookupState& lookup, std::span<const Link> found,
                  MonotonicTime now, EvictionPolicy::Slice slice) {
  const std::span<Link> chain = std::span(lookup.chain).first(found.size());
  std::copy(found.begin(), found.end(), chain.begin());
  for (Link& link : chain) {
    if (link.slot != kNoSlot && !table_.at(link.slot).in_g2_policy) link.slot = kNoSlot;
  }
  pool(tenant).policy->OnRequest(chain, now, slice);
  Count(static_cast<uint32_t>(work::kTouch * found.size()));
}

// Once all slices are told, to the policies that learn. A chain of each part, as a chunk's parent
// is of its own part. As many links in one hold as it may play; policies are never replaced.
void Core::TellChains(Section& section, TenantId tenant, LookupState& lookup) {
  const size_t parts = lookup.chunks.parts.size();
  const size_t keys = lookup.chunks.keys.size();
  for (size_t policy = 0; policy <= disk_.tiers.size(); ++policy) {
    ChainLearner* const learner =
        policy == 0 ? pool(tenant).learner : disk_.tiers.at(policy - 1).learner(tenant);
    if (learner == nullptr) continue;
    for (size_t part = 0; part < parts; ++part) {
      for (size_t begin = 0; begin < keys; begin += ChainLearner::kLongestChain) {
        section.YieldIfSpent();
        const size_t length = std::min(keys - begin, ChainLearner::kLongestChain);
        const std::span<Link> chain = std::span(lookup.chain).first(length);
        for (size_t i = 0; i < length; ++i) {
          chain[i] = {.fingerprint = lookup.found[(begin + i) * parts + part].fingerprint};
        }
        const auto play = learner->Learn(chain, deps_.clock->Now());
        Count(static_cast<uint32_t>(work::kLook * length));
        const size_t links = DivideRoundUp(hold_.max_work(), work::kPlay);
        for (bool more = true; more;) {
          section.YieldIfSpent();
          more = play->GoOn(links);
          Count(static_cast<uint32_t>(work::kPlay * links));
        }
      }
    }
  }
}

// From the tail to the head, as the policies want it: so no slot has to outlive its slice.
void Core::FindAll(Section& section, TenantId tenant, LookupState& lookup, Tells tells) {
  const bool touch = tells == Tells::kAll;
  const bool ages = remote_ != nullptr && remote_->ages.on();
  if (touch && ages && limits_.remote_write_bytes_per_second > 0) {
    lookup.step = remote_->ages.At(deps_.clock->Now());
  }
  const size_t parts = lookup.chunks.parts.size();
  // The policies of G2 and of one device.
  const size_t told = touch ? (disk_.tiers.empty() ? 1 : 2) : tells == Tells::kG2 ? 1 : 0;
  const size_t chunk_work = work::kFind + work::kTouch * told;
  // As many as one hold may do, so that each is over after one.
  const size_t chunks = std::min<size_t>(DivideRoundUp(hold_.max_work(), chunk_work), kMostInSlice);
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
    if (tells == Tells::kG2) TellG2(tenant, lookup, own, deps_.clock->Now(), nth);
    end = begin;
  }
  if (touch) TellChains(section, tenant, lookup);
  if (touch && lookup.unadmitted && !chunks_.draining) OfferAgain(section, lookup);
  if (touch && lookup.unused && !chunks_.draining) {
    beyond_->OfferUsed(section, lookup.chunks, lookup.found, lookup.step);
  }
}

// Head first, as they came. No device is pumped here: it would evict, and callers have found chunks
// that are theirs until the next yield.
void Core::OfferAgain(Section& section, const LookupState& lookup) {
  const ChunkSet& chunks = lookup.chunks;
  const size_t parts = chunks.parts.size();
  for (size_t i = 0; i < lookup.found.size(); ++i) {
    section.YieldIfSpent();
    Count(work::kFind);
    const ChunkSlot slot = lookup.found[i].slot;
    if (slot == kNoSlot || !table_.StillIs(slot, lookup.id(i))) continue;
    const Chunk& chunk = table_.at(slot);
    if (!chunk.unadmitted || !chunk.resident() || chunk.g3_state != G3State::kAbsent) continue;
    if (chunk.waits_unbacked) continue;
    std::optional<ChunkKey> parent;
    if (i >= parts) parent = chunks.keys[i / parts - 1];
    Count(work::kRecord);
    DeviceTier* const to = disk_.writes.Enqueue(slot, parent, false);
    if (to != nullptr) chunks_.PumpLater(to->pump);
  }
}

std::optional<absl::StatusOr<LookupResult>> Core::LookupOrSearch(const SessionToken& token,
                                                                 const LookupRequest& request,
                                                                 SearchedCallback searched) {
  LookupState lookup(request.chunks, options_);
  Grant grant{.request = request, .lookup = lookup};
  if (request.lease_mode != LeaseMode::kNone) grant.Reserve();
  lookup.to_read.resize(deps_.devices.size());
  // A get waits for what is on its way, whoever asked for it, as Read does.
  const bool gets = request.want_places && request.lease_mode == LeaseMode::kAllPresent;
  if (request.beyond.asks() || gets) lookup.coming_parts.assign(lookup.g2_parts.size(), 0);
  RecallingPtr recalling, not_asked;  // what their callbacks hold is let go of without the lock
  if (searched != nullptr) recalling = recaller_->ForLookup(request, std::move(searched));
  ReuseMeter::Note note(&reuse_);
  Section section(&chunks_);
  const TenantId tenant = owners_.OwnerOf(request.chunks.ns);
  bool repeated = false;
  {
    const bool moves_bytes = request.lease_mode != LeaseMode::kNone && request.want_places;
    const absl::StatusOr<Session*> session =
        request.after_search
            ? sessions_.FindUncharged(token, request.chunks, &Grants::read)
            : sessions_.FindFor(token, request.chunks, &Grants::read, moves_bytes);
    if (!session.ok()) return session.status();
    grant.holder = leases_.of(token);
    lookup.requester = {grant.holder->tenant, token};
    repeated = grant.holder->FindRequest(request.client_request_id) != LeaseId(0);
    absl::Status allowed = leases_.CheckRoom(*grant.holder);
    if (request.lease_mode != LeaseMode::kNone && !repeated && !allowed.ok()) return allowed;
    if (repeated || (recalling != nullptr && !MayAskBeyond((*session)->tenant()).ok())) {
      recalling.swap(not_asked);
    }
    // Before the table is looked at: what is deleted from here on is not believed.
    if (recalling != nullptr) recaller_->Begin(lookup.requester, tenant, *recalling);
  }
  if (!request.after_search) {
    ++counters_.lookups;
    counters_.lookup_keys += request.chunks.keys.size();
  }
  // What the search has begun to bring came head first: it is put in the order of the request.
  const Tells tells = request.after_search ? Tells::kG2 : Tells::kAll;
  FindAll(section, tenant, lookup, repeated ? Tells::kNobody : tells);
  if (recalling != nullptr && SearchIfWorth(section, request, lookup, recalling)) {
    return std::nullopt;
  }
  const std::chrono::nanoseconds promotion_time = PromotionTime(lookup);  // before it starts any
  counters_.lookup_leading_keys += lookup.leading_keys;
  if (!repeated) {
    note.Asked(lookup.found, uint64_t{lookup.leading_keys} * request.chunks.parts.size());
  }
  if (repeated || request.lease_mode != LeaseMode::kNone) {
    absl::Status granted = GrantLease(section, token, tenant, grant);
    if (!granted.ok()) return granted;
    // Behind the end of a shortened lease it is asked for again.
    if (request.want_places && !repeated && !grant.shortened) {
      counters_.read_misses += lookup.absent;
    }
  }
  LookupResult result = std::move(grant.result);
  result.g2_parts = std::move(lookup.g2_parts);
  result.g3_parts = std::move(lookup.g3_parts);
  if (request.beyond.asks()) result.coming_parts = std::move(lookup.coming_parts);
  result.leading_keys = lookup.leading_keys;
  result.promotion_time = promotion_time;
  result.beyond_keys = lookup.reachable_keys - lookup.leading_keys;
  // Behind all that waits: others may have asked for it.
  if (result.beyond_keys > 0) {
    result.beyond_time = remote_->reads.TimeFor(lookup.requester, 0, true);
  }
  return result;
}

absl::StatusOr<uint64_t> Core::Touch(const SessionToken& token, const ChunkSet& chunks) {
  LookupState lookup(chunks, options_);
  {
    Section section(&chunks_);
    const absl::StatusOr<Session*> session = sessions_.FindFor(token, chunks, &Grants::read);
    if (!session.ok()) return session.status();
    FindAll(section, owners_.OwnerOf(chunks.ns), lookup, Tells::kAll);
  }
  return static_cast<uint64_t>(
      std::count_if(lookup.found.begin(), lookup.found.end(),
                    [](const Link& link) { return link.slot != kNoSlot; }));
}

absl::StatusOr<PrefetchResult> Core::Prefetch(const SessionToken& token, const ChunkSet& chunks) {
  LookupState lookup(chunks, options_);
  PrefetchResult result;
  Section section(&chunks_);
  const absl::StatusOr<Session*> session = sessions_.FindFor(token, chunks, &Grants::read);
  if (!session.ok()) return session.status();
  const TenantId tenant = owners_.OwnerOf(chunks.ns);
  const ReadQueue::Requester requester{(*session)->tenant(), token};
  FindAll(section, tenant, lookup, Tells::kAll);
  for (size_t i = 0; i < lookup.found.size(); ++i) {
    section.YieldIfSpent();
    Count(work::kFind);
    // Making room for an earlier chunk may have pushed this one out for good.
    const ChunkSlot slot = lookup.found[i].slot;
    if (slot == kNoSlot || !table_.StillIs(slot, lookup.id(i))) continue;
    if (table_.at(slot).resident()) {
      ++result.ready_chunks;
    } else if (table_.at(slot).g2_state == G2State::kUnverified) {
      filler_.Verify(slot);
      ++result.started_chunks;
    } else if (disk_.tiers.InG3(table_.at(slot))) {
      // Full: the rest would not fit either.
      if (!promoter_.EnsureInG2(section, requester, tenant, slot, kNoSlot, false)) break;
      ++result.started_chunks;
    }
  }
  return result;
}

absl::StatusOr<uint64_t> Core::Delete(const SessionToken& token, const ChunkSet& chunks) {
  constexpr size_t kGroup = 32;  // found together
  std::array<Link, kGroup> found;
  ReuseMeter::Note note(&reuse_);
  Section section(&chunks_);
  const absl::StatusOr<Session*> session = sessions_.FindFor(token, chunks, &Grants::write);
  if (!session.ok()) return session.status();
  const size_t names = chunks.keys.size() * chunks.parts.size();
  if (remote_ != nullptr && !remote_->removals.HasRoom(chunks.ns, names)) {
    ++remote_->counters.refused_deletes;
    return absl::ResourceExhaustedError(absl::StrCat(
        "nothing is deleted: of this tenant at most ", remote_->removals.most_of_tenant(),
        " chunks may wait to be removed beyond the node, this call names ", names,
        "; delete again when some are removed there"));
  }
  uint64_t deleted = 0;
  for (const PartId& part : chunks.parts) {
    for (size_t begin = 0; begin < chunks.keys.size(); begin += kGroup) {
      section.YieldIfSpent();
      const auto keys = chunks.keys.subspan(begin, std::min(kGroup, chunks.keys.size() - begin));
      table_.FindAll(chunks.ns, keys, std::span(&part, 1), std::span(found).first(keys.size()));
      Count(static_cast<uint32_t>(work::kFind * keys.size()));
      const uint32_t yields = section.yields();
      for (size_t i = 0; i < keys.size(); ++i) {
        if (found[i].slot != kNoSlot) section.YieldIfSpent();
        const ChunkId id{chunks.ns, keys[i], part};
        // In the same hold as the look at the table: a device may come or go in between.
        disk_.tiers.NoteMissed({chunks.ns, keys.subspan(i, 1), std::span(&part, 1)});
        ChunkSlot slot = found[i].slot;
        // Another slot's meanwhile; or none, named twice or deleted by another call.
        if (section.yields() != yields || (slot != kNoSlot && !table_.StillIs(slot, id))) {
          slot = table_.Find(id);
        }
        if (beyond_ != nullptr) {
          beyond_->Remove(id, slot == kNoSlot ? RemoteRemovals::Why::kUnseen
                                              : RemoteRemovals::Why::kDeleted);
        }
        if (slot == kNoSlot) continue;
        disk_.records.Detach(slot);
        note.Removed(table_.fingerprint(id));
        ++deleted;
        ++counters_.deleted_chunks;
      }
    }
  }
  return deleted;
}

}  // namespace kvkeep::store_internal
