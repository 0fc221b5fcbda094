// Lookup and leases, touch, prefetch, delete.
#include <absl/strings/str_cat.h>

#include "tiers/base/check.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {
namespace {

// The first `keys` words whose `parts` lowest bits are all set in either bitmap.
uint32_t LeadingKeys(const LookupResult& result, size_t parts) {
  const uint64_t all = parts == 64 ? ~uint64_t{0} : (uint64_t{1} << parts) - 1;
  uint32_t keys = 0;
  while (keys < result.g2_parts.size() &&
         ((result.g2_parts[keys] | result.g3_parts[keys]) & all) == all) {
    ++keys;
  }
  return keys;
}

}  // namespace

bool Core::ReadableNow(const Chunk& chunk) const { return chunk.g2_state == G2State::kResident; }

bool Core::InG3(const Chunk& chunk) const {
  return chunk.g3_state == G3State::kStored && !chunk.unconfirmed &&
         devices_[chunk.device]->readable();
}

void Core::FindAll(const ChunkSet& chunks, LookupResult& result, std::vector<Link>& found) {
  const size_t parts = chunks.parts.size();
  found.resize(chunks.keys.size() * parts);
  table_.FindAll(chunks.ns, chunks.keys, chunks.parts, found);
  result.g2_parts.assign(chunks.keys.size(), 0);
  result.g3_parts.assign(chunks.keys.size(), 0);
  size_t i = 0;
  for (size_t k = 0; k < chunks.keys.size(); ++k) {
    for (size_t p = 0; p < parts; ++p, ++i) {
      if (found[i].slot == kNoSlot) continue;
      const Chunk& chunk = table_.at(found[i].slot);
      if (chunk.in_g2()) result.g2_parts[k] |= uint64_t{1} << p;
      if (InG3(chunk)) result.g3_parts[k] |= uint64_t{1} << p;
    }
  }
  result.leading_keys = LeadingKeys(result, parts);
}

void Core::TellPolicies(TenantId tenant, const std::vector<Link>& found) {
  const MonotonicTime now = deps_.clock->Now();
  std::vector<Link> chain = found;
  const auto tell = [&](EvictionPolicy& policy, auto in_policy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (size_t i = 0; i < found.size(); ++i) {
      const bool in = found[i].slot != kNoSlot && in_policy(table_.at(found[i].slot));
      chain[i].slot = in ? found[i].slot : kNoSlot;
    }
    policy.OnRequest(chain, now);
  };
  tell(*pool(tenant).policy, [](const Chunk& chunk) { return chunk.in_g2_policy; });
  // A hit in G2 refreshes G3's recency too.
  for (size_t d = 0; d < devices_.size(); ++d) {
    tell(*devices_[d]->policy,
         [d](const Chunk& chunk) { return chunk.in_g3_policy && chunk.device == d; });
  }
}

bool Core::EnsureInG2(TenantId tenant, ChunkSlot slot, ChunkSlot parent, bool transient) {
  Chunk& chunk = table_.at(slot);
  if (chunk.has_g2_space()) return chunk.g2_state != G2State::kFailed;
  if (!InG3(chunk)) return false;
  std::optional<ExtentList> extents = AllocateG2(tenant, chunk.blocks(), parent);
  if (!extents.has_value()) return false;
  {
    Change change(this, slot);
    change->g2 = *std::move(extents);
    change->g2_state = G2State::kReading;
    change->tenant = tenant;
    change->transient = transient;
    InsertIntoG2Policy(slot, parent);
  }
  StartPromotion(slot);
  return true;
}

void Core::AddPlaces(const Lease& lease, LookupResult& result) const {
  for (const Lease::Entry& entry : lease.entries) {
    const Chunk& chunk = table_.at(entry.slot);
    result.places.push_back({.chunk = entry.chunk,
                             .shape = chunk.shape,
                             .extents = chunk.g2,
                             .readable = ReadableNow(chunk)});
  }
}

void Core::GrantLease(Session& session, const LookupRequest& request,
                      const std::vector<Link>& found, LookupResult& result) {
  const size_t parts = request.chunks.parts.size();
  const uint32_t all_keys = static_cast<uint32_t>(request.chunks.keys.size());
  const uint32_t keys =
      request.lease_mode == LeaseMode::kLeadingRun ? result.leading_keys : all_keys;
  std::vector<Lease::Entry> wanted;
  for (uint32_t i = 0; i < keys * parts; ++i) {
    const uint32_t key = static_cast<uint32_t>(i / parts);
    const uint64_t present = result.g2_parts[key] | result.g3_parts[key];
    if ((present >> (i % parts) & 1) != 0) wanted.push_back({found[i].slot, key, i});
  }

  const TenantId tenant = session.info.tenant;
  const G2Pool& own = pool(tenant);
  const auto within_cap = [&](ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const Chunk& chunk = table_.at(slot);
    const uint64_t more = chunk.pins == 0 ? chunk.blocks() : 0;
    return own.pinned_blocks + more <= own.limits.leased_blocks;
  };
  std::vector<bool> pinned(wanted.size(), false);
  size_t end = wanted.size();
  // Gives up the last key, as a whole.
  const auto shorten = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const uint32_t key = wanted[end - 1].key_index;
    while (end > 0 && wanted[end - 1].key_index == key) {
      --end;
      if (pinned[end]) UnpinLocked(wanted[end].slot);
      pinned[end] = false;
    }
  };
  // First what is in G2, so that making room for the rest does not push it out.
  for (size_t i = 0; i < end; ++i) {
    if (!table_.at(wanted[i].slot).has_g2_space()) continue;
    if (!within_cap(wanted[i].slot)) break;
    Pin(wanted[i].slot);
    pinned[i] = true;
  }
  for (size_t i = 0; i < end; ++i) {
    const ChunkSlot parent = i >= parts ? wanted[i - parts].slot : kNoSlot;
    while (i < end && !pinned[i]) {
      if (within_cap(wanted[i].slot) &&
          EnsureInG2(tenant, wanted[i].slot, parent, request.transient)) {
        Pin(wanted[i].slot);
        pinned[i] = true;
      } else {
        shorten();
      }
    }
  }
  result.leased_keys = end < wanted.size() ? wanted[end].key_index : keys;
  if (end < wanted.size()) ++counters_.leases_shortened;
  if (end == 0) {
    result.leased_keys = 0;
    return;
  }

  Lease lease;
  wanted.resize(end);
  for (const Lease::Entry& entry : wanted)
    lease.bytes += table_.at(entry.slot).blocks() * kBlockBytes;
  lease.entries = std::move(wanted);
  if (request.want_places) AddPlaces(lease, result);
  lease.keys = result.leased_keys;
  lease.client_request_id = request.client_request_id;
  result.lease = LeaseId(next_lease_++);
  result.leased_bytes = lease.bytes;
  session.leased_bytes += lease.bytes;
  if (request.client_request_id != 0) {
    session.leases_by_request[request.client_request_id] = result.lease;
  }
  session.leases.emplace(result.lease.value(), std::move(lease));
  ++counters_.leases_granted;
}

absl::StatusOr<LookupResult> Core::Lookup(const SessionToken& token, const LookupRequest& request) {
  LookupResult result;
  std::vector<Link> found;
  Section section(this);
  absl::StatusOr<Session*> session = FindSessionFor(token, request.chunks);
  if (!session.ok()) return session.status();
  const auto known = (*session)->leases_by_request.find(request.client_request_id);
  const bool repeated = known != (*session)->leases_by_request.end();  // never filed under 0
  if (request.lease_mode != LeaseMode::kNone && !repeated &&
      (*session)->leases.size() >= options_.max_leases_per_session) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "leases: this session holds ", options_.max_leases_per_session, ", the most allowed"));
  }

  FindAll(request.chunks, result, found);
  ++counters_.lookups;
  counters_.lookup_keys += request.chunks.keys.size();
  counters_.lookup_leading_keys += result.leading_keys;
  if (repeated) {
    const Lease& lease = (*session)->leases.at(known->second.value());
    result.lease = known->second;
    result.leased_keys = lease.keys;
    result.leased_bytes = lease.bytes;
    if (request.want_places) AddPlaces(lease, result);
    return result;
  }
  TellPolicies((*session)->info.tenant, found);
  if (request.lease_mode != LeaseMode::kNone) GrantLease(**session, request, found, result);
  return result;
}

absl::StatusOr<uint64_t> Core::Touch(const SessionToken& token, const ChunkSet& chunks) {
  LookupResult where;
  std::vector<Link> found;
  Section section(this);
  const absl::StatusOr<Session*> session = FindSessionFor(token, chunks);
  if (!session.ok()) return session.status();
  FindAll(chunks, where, found);
  TellPolicies((*session)->info.tenant, found);
  return static_cast<uint64_t>(std::count_if(
      found.begin(), found.end(), [](const Link& link) { return link.slot != kNoSlot; }));
}

absl::StatusOr<PrefetchResult> Core::Prefetch(const SessionToken& token, const ChunkSet& chunks) {
  LookupResult where;
  std::vector<Link> found;
  PrefetchResult result;
  Section section(this);
  const absl::StatusOr<Session*> session = FindSessionFor(token, chunks);
  if (!session.ok()) return session.status();
  FindAll(chunks, where, found);
  TellPolicies((*session)->info.tenant, found);
  for (const Link& link : found) {
    // Making room for an earlier chunk may have pushed this one out for good.
    if (link.slot == kNoSlot || !table_.at(link.slot).live) continue;
    if (ReadableNow(table_.at(link.slot))) {
      ++result.ready_chunks;
    } else if (table_.at(link.slot).g2_state == G2State::kUnverified) {
      StartVerification(link.slot);
      ++result.started_chunks;
    } else if (InG3(table_.at(link.slot))) {
      if (!EnsureInG2((*session)->info.tenant, link.slot, kNoSlot, false)) {
        break;  // full: the rest would not fit either
      }
      ++result.started_chunks;
    }
  }
  return result;
}

absl::StatusOr<uint64_t> Core::Delete(const SessionToken& token, const ChunkSet& chunks) {
  Section section(this);
  const absl::StatusOr<Session*> session = FindSessionFor(token, chunks);
  if (!session.ok()) return session.status();
  uint64_t deleted = 0;
  for (const ChunkKey& key : chunks.keys) {
    for (const PartId part : chunks.parts) {
      const ChunkSlot slot = table_.Find({chunks.ns, key, part});
      if (slot == kNoSlot) continue;
      DetachChunk(slot);
      ++deleted;
    }
  }
  counters_.deleted_chunks += deleted;
  return deleted;
}

}  // namespace kvkeep::store_internal
