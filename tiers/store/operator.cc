#include "tiers/store/operator.h"

#include <absl/container/btree_map.h>

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

constexpr size_t kMaxNamespaces = 4096;  // listed apart; the others count as one, without digest

}  // namespace

Operator::Operator(const StoreOptions& options, Parts parts)
    : options_(options),
      chunks_(*parts.chunks),
      tiers_(*parts.tiers),
      space_(*parts.space),
      sessions_(*parts.sessions),
      owners_(*parts.owners),
      scrubber_(*parts.scrubber) {}

std::vector<NamespaceUse> Operator::Namespaces() {
  absl::btree_map<NamespaceDigest, NamespaceUse> found;
  {
    Section section(&chunks_);
    for (uint32_t i = 0; i < chunks_.table.slot_end(); ++i) {
      section.YieldIfSpent();
      chunks_.Count(work::kFind);
      const Chunk& chunk = chunks_.table.at(ChunkSlot(i));
      if (!chunk.live || chunk.detached) continue;
      const bool room = found.size() < kMaxNamespaces || found.contains(chunk.id.ns);
      NamespaceUse& use = found[room ? chunk.id.ns : NamespaceDigest()];
      const TenantId owner = owners_.OwnerOf(chunk.id.ns);
      if (owner != owners_.nobody()) use.tenant = owners_.at(owner).shown_name();
      const uint64_t bytes = chunk.blocks() * kBlockBytes;
      ++use.chunks;
      if (chunk.in_g2()) use.g2_bytes += bytes;
      if (tiers_.InG3(chunk)) use.g3_bytes += bytes;
    }
    std::optional<SessionToken> last;
    while (const Session* session = sessions_.table.Next(last)) {
      chunks_.Count(work::kSession);
      for (const auto& [digest, spec] : session->namespaces) {
        const auto use = found.find(digest);
        if (use == found.end()) continue;
        ++use->second.sessions;
        use->second.model = spec.model;
      }
      last = session->token;
      section.YieldIfSpent();
    }
  }
  std::vector<NamespaceUse> uses;
  for (auto& [digest, use] : found) {
    uses.push_back(std::move(use));
    uses.back().digest = digest;
  }
  return uses;
}

absl::StatusOr<EvictResult> Operator::Evict(const EvictRequest& request) {
  Section section(&chunks_);
  std::vector<uint32_t> tenants;
  for (uint32_t t = 0; t < chunks_.pools.size(); ++t) {
    if (request.tenant.empty() || options_.tenants[t].shown_name() == request.tenant) {
      tenants.push_back(t);
    }
  }
  if (tenants.empty()) return absl::NotFoundError("there is no tenant of that name");
  EvictResult result;
  // Takes tenants in turn, so that all give up as many chunks.
  while (!tenants.empty() && result.bytes < request.bytes) {
    std::erase_if(tenants, [&](uint32_t t) STORE_LOCKED {
      return result.bytes < request.bytes &&
             !EvictOneOf(section, TenantId(t), request.of_g3, result);
    });
  }
  return result;
}

bool Operator::EvictOneOf(Section& section, TenantId tenant, bool of_g3, EvictResult& result) {
  const size_t places = of_g3 ? tiers_.size() : 1;
  for (size_t place = 0; place < places; ++place) {
    Evicted evicted = Evicted::kSpent;
    while (evicted == Evicted::kSpent) {
      section.YieldIfSpent();
      const uint64_t held = of_g3 ? tiers_.shares.held(tenant) : chunks_.pool(tenant).used_blocks();
      evicted = of_g3 ? space_.EvictOne(tiers_.at(place), tenant)
                      : chunks_.EvictOne(chunks_.pool(tenant));
      const uint64_t left = of_g3 ? tiers_.shares.held(tenant) : chunks_.pool(tenant).used_blocks();
      if (evicted != Evicted::kOne) continue;
      ++result.chunks;
      result.bytes += (held - left) * kBlockBytes;
    }
    if (evicted == Evicted::kOne) return true;
  }
  return false;
}

void Operator::ScrubRound(uint64_t bytes_per_second) {
  Section section(&chunks_);
  scrubber_.AskRound(bytes_per_second);
}

}  // namespace kvkeep::store_internal
