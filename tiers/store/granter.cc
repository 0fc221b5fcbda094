#include "tiers/store/granter.h"

#include <algorithm>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::store_internal {

void Grant::Reserve() {
  entries.reserve(lookup.found.size());
  pinned.reserve(lookup.found.size());
  if (request.want_places) result.places.reserve(lookup.found.size());
}

Granter::Granter(Chunks* chunks, Sessions* sessions, Promoter* promoter, ServedMeter* served)
    : chunks_(*chunks), sessions_(*sessions), promoter_(*promoter), served_(*served) {}

// Pins the entry's chunk. Returns false if that would be over a limit of the chunk's tenant or of
// the session's.
bool Granter::PinForLease(Grant& grant, size_t i) {
  const ChunkSlot slot = grant.entries[i].slot;
  const Chunk& chunk = chunks_.table.at(slot);
  LeaseHolder& holder = *grant.holder;
  KVKEEP_CHECK(!grant.pinned[i]);
  if (!sessions_.leases.MayHold(holder, slot)) return false;
  chunks_.Count(work::kFind);
  sessions_.leases.Hold(holder, slot);
  chunks_.Pin(slot);
  grant.pinned[i] = true;
  grant.bytes += chunk.blocks() * kBlockBytes;
  grant.payload_bytes += chunk.shape.payload_bytes;
  return true;
}

void Granter::Shorten(Section& section, Grant& grant, size_t end) {
  auto& entries = grant.entries;
  if (end == entries.size()) return;
  KVKEEP_CHECK(end < entries.size() && entries.size() == grant.pinned.size());
  const uint32_t first_lost = entries[end].key_index;
  while (!entries.empty() && entries.back().key_index >= first_lost) {
    if (grant.pinned.back()) {
      const Chunk& chunk = chunks_.table.at(entries.back().slot);
      KVKEEP_CHECK(grant.bytes >= chunk.blocks() * kBlockBytes);
      KVKEEP_CHECK(grant.payload_bytes >= chunk.shape.payload_bytes);
      grant.bytes -= chunk.blocks() * kBlockBytes;
      grant.payload_bytes -= chunk.shape.payload_bytes;
      sessions_.LetGo(*grant.holder, entries.back());
    }
    entries.pop_back();
    grant.pinned.pop_back();
    section.YieldIfSpent();
  }
  grant.keys = std::min(grant.keys, first_lost);
  grant.shortened = true;
}

void Granter::PinWhatIsInG2(Section& section, Grant& grant) {
  LookupState& lookup = grant.lookup;
  const size_t parts = lookup.chunks.parts.size();
  const bool leading = grant.request.lease_mode == LeaseMode::kLeadingRun;
  grant.keys = leading ? lookup.reachable_keys : static_cast<uint32_t>(lookup.chunks.keys.size());
  bool room = true;
  for (uint32_t i = 0; i < grant.keys * parts; ++i) {
    section.YieldIfSpent();
    chunks_.Count(work::kLook);
    const auto key = static_cast<uint32_t>(i / parts);
    const uint64_t bit = uint64_t{1} << (i % parts);
    if ((lookup.parts_of(key) & bit) == 0) continue;
    if (section.yields() > 0 && !chunks_.table.StillIs(lookup.found[i].slot, lookup.id(i))) {
      lookup.g2_parts[key] &= ~bit;
      lookup.g3_parts[key] &= ~bit;
      if (!lookup.coming_parts.empty()) lookup.coming_parts[key] &= ~bit;
      lookup.leading_keys = std::min(lookup.leading_keys, key);
      lookup.reachable_keys = std::min(lookup.reachable_keys, key);
      if (!leading) continue;
      if (!grant.entries.empty() && grant.entries.back().key_index == key) {
        size_t first = grant.entries.size();
        while (first > 0 && grant.entries[first - 1].key_index == key) --first;
        Shorten(section, grant, first);
      }
      grant.keys = std::min(grant.keys, key);
      grant.shortened = true;
      return;
    }
    grant.entries.push_back({lookup.found[i].slot, key, i});
    grant.pinned.push_back(false);
    if (room && chunks_.table.at(lookup.found[i].slot).has_g2_space()) {
      room = PinForLease(grant, grant.entries.size() - 1);
    }
  }
}

void Granter::BringTheRest(Section& section, TenantId tenant, Grant& grant) {
  const auto& entries = grant.entries;
  const size_t parts = grant.lookup.chunks.parts.size();
  const auto bring = [&](size_t i) STORE_LOCKED {
    const ChunkSlot slot = entries[i].slot;
    const ChunkSlot parent = i >= parts ? entries[i - parts].slot : kNoSlot;
    const ChunkId id = grant.lookup.id(entries[i].chunk);
    if (!chunks_.table.StillIs(slot, id)) return false;
    return sessions_.leases.MayHold(*grant.holder, slot) &&
           promoter_.EnsureInG2(section, grant.lookup.requester, tenant, slot, parent,
                                grant.request.transient) &&
           PinForLease(grant, i);
  };
  for (size_t i = 0; i < entries.size(); ++i) {
    section.YieldIfSpent();
    chunks_.Count(work::kLook);
    if (Planted(Canary::kPromiseNotReserved) && !grant.pinned[i]) {
      grant.entries.erase(grant.entries.begin() + static_cast<ptrdiff_t>(i));
      grant.pinned.erase(grant.pinned.begin() + static_cast<ptrdiff_t>(i--));
      continue;
    }
    while (i < entries.size() && !grant.pinned[i] && !bring(i)) {
      // Gives up the whole last key: its space may be what is missing here.
      size_t last = entries.size() - 1;
      if (!chunks_.table.StillIs(entries[i].slot, grant.lookup.id(entries[i].chunk))) last = i;
      Shorten(section, grant, last);
    }
  }
}

void Granter::AddPlaces(Section& section, const std::vector<Lease::Entry>& entries, size_t* next,
                        LookupResult& result) {
  while (*next < entries.size() && !chunks_.Spent()) {
    const Lease::Entry& entry = entries[(*next)++];
    const Chunk& chunk = chunks_.table.at(entry.slot);
    chunks_.Count(work::kFind + work::kPlace);
    result.places.push_back({.chunk = entry.chunk,
                             .shape = chunk.shape,
                             .extents = chunk.g2,
                             .readable = chunk.resident()});
  }
  if (*next < entries.size()) section.Yield();
}

// Tells a repeated request of the lease that it has. Returns false if it has none.
absl::StatusOr<bool> Granter::TellKnownLease(Section& section, const SessionToken& token,
                                             Grant& grant) {
  LookupResult& result = grant.result;
  for (size_t next = 0;;) {
    KVKEEP_RETURN_IF_ERROR(sessions_.table.Find(token).status());
    const LeaseId known = grant.holder->FindRequest(grant.request.client_request_id);
    if (known == LeaseId(0)) return false;
    if (result.lease != known) {  // as at the first look
      result.places.clear();
      next = 0;
    }
    const Lease& lease = *grant.holder->Find(known);
    result.lease = known;
    result.leased_keys = lease.keys;
    result.leased_bytes = lease.bytes;
    if (!grant.request.want_places || next >= lease.entries.size()) {
      // The lease may have been shortened while its places were told.
      while (result.places.size() > lease.entries.size()) result.places.pop_back();
      return true;
    }
    AddPlaces(section, lease.entries, &next, result);
  }
}

absl::Status Granter::GrantLease(Section& section, const SessionToken& token, TenantId tenant,
                                 Grant& grant) {
  const auto give_back = [&](absl::Status why) STORE_LOCKED {
    Shorten(section, grant, 0);
    return why;
  };
  absl::StatusOr<bool> known = TellKnownLease(section, token, grant);
  if (!known.ok() || *known) return known.status();
  if (grant.request.lease_mode == LeaseMode::kNone) return absl::OkStatus();

  grant.result.places.clear();
  PinWhatIsInG2(section, grant);
  BringTheRest(section, tenant, grant);
  if (grant.shortened) ++chunks_.counters.leases_shortened;
  if (grant.entries.empty()) return absl::OkStatus();
  if (grant.request.want_places) {
    const size_t parts = grant.lookup.chunks.parts.size();
    for (size_t next = 0; next < grant.entries.size();) {
      const size_t first = grant.result.places.size();
      AddPlaces(section, grant.entries, &next, grant.result);
      for (const ChunkPlace& place : std::span(grant.result.places).subspan(first)) {
        const uint64_t bit = uint64_t{1} << (place.chunk % parts);
        const size_t key = place.chunk / parts;
        grant.served.Add((grant.lookup.g2_parts[key] & bit) != 0   ? Tier::kG2
                         : (grant.lookup.g3_parts[key] & bit) != 0 ? Tier::kG3
                                                                   : Tier::kG4,
                         place.shape.payload_bytes);
      }
    }
  }

  // Looks the session up again: it may have been closed, or the same request answered, meanwhile.
  absl::StatusOr<Session*> session = sessions_.table.Find(token);
  if (!session.ok()) return give_back(session.status());
  if (grant.holder->FindRequest(grant.request.client_request_id) != LeaseId(0)) {
    absl::Status ok = give_back(absl::OkStatus());
    known = TellKnownLease(section, token, grant);
    return known.ok() ? ok : known.status();
  }
  absl::Status allowed = sessions_.leases.CheckRoom(*grant.holder);
  if (!allowed.ok()) return give_back(allowed);
  File(**session, grant);
  return absl::OkStatus();
}

// Gives the lease to the session.
void Granter::File(Session& session, Grant& grant) {
  LookupResult& result = grant.result;
  result.leased_keys = grant.keys;
  result.leased_bytes = grant.bytes;
  result.lease =
      sessions_.leases.File(*grant.holder, {.entries = std::move(grant.entries),
                                            .client_request_id = grant.request.client_request_id,
                                            .keys = grant.keys,
                                            .bytes = grant.bytes,
                                            .paid = grant.request.want_places});
  result.is_new_lease = true;
  // A caller that is told the places reads there without asking, so its bytes are charged now.
  if (grant.request.want_places) {
    sessions_.table.ChargeBytes(session.tenant(), grant.payload_bytes);
    served_.Count(&session, grant.lookup.chunks.ns, grant.served);
  }
}

}  // namespace kvkeep::store_internal
