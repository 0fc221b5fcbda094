#include "tiers/store/deletes.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tiers/store/gathering.h"

namespace kvkeep::store_internal {

Deletes::Deletes(const Clock* clock, Parts parts)
    : clock_(*clock),
      chunks_(*parts.chunks),
      tiers_(*parts.tiers),
      records_(*parts.records),
      committer_(*parts.committer),
      sessions_(*parts.sessions),
      reuse_(*parts.reuse),
      beyond_(parts.beyond) {}

absl::StatusOr<uint64_t> Deletes::Delete(const SessionToken& token, const ChunkSet& chunks) {
  constexpr size_t kGroup = 32;  // chunks that are found together
  std::array<EvictionPolicy::ChainLink, kGroup> found;
  ReuseMeter::Note note(&reuse_);
  Section section(&chunks_);
  const absl::StatusOr<Session*> session = sessions_.table.FindFor(token, chunks, &Grants::write);
  if (!session.ok()) return session.status();
  const size_t names = chunks.keys.size() * chunks.parts.size();
  if (beyond_ != nullptr && beyond_->tier.keeps() &&
      !beyond_->tier.removals.HasRoom(chunks.ns, names)) {
    ++beyond_->tier.counters.refused_deletes;
    return absl::ResourceExhaustedError(absl::StrCat(
        "nothing is deleted: of this tenant at most ", beyond_->tier.removals.most_of_tenant(),
        " chunks may wait to be removed beyond the node, this call names ", names,
        "; delete again when some are removed there"));
  }
  uint64_t deleted = 0;
  for (const PartId& part : chunks.parts) {
    for (size_t begin = 0; begin < chunks.keys.size(); begin += kGroup) {
      section.YieldIfSpent();
      const auto keys = chunks.keys.subspan(begin, std::min(kGroup, chunks.keys.size() - begin));
      chunks_.table.FindAll(chunks.ns, keys, std::span(&part, 1),
                            std::span(found).first(keys.size()));
      chunks_.Count(static_cast<uint32_t>(work::kFind * keys.size()));
      const uint32_t yields = section.yields();
      for (size_t i = 0; i < keys.size(); ++i) {
        if (found[i].slot != kNoSlot) section.YieldIfSpent();
        const ChunkId id{chunks.ns, keys[i], part};
        // In the same hold as the look at the table, since a device may come or go between holds.
        tiers_.NoteMissed({chunks.ns, keys.subspan(i, 1), std::span(&part, 1)});
        ChunkSlot slot = found[i].slot;
        // The chunk may be in another slot by now. Or there is none, as the call named it twice or
        // another call has deleted it.
        if (section.yields() != yields || (slot != kNoSlot && !chunks_.table.StillIs(slot, id))) {
          slot = chunks_.table.Find(id);
        }
        if (beyond_ != nullptr) {
          beyond_->changes.Remove(
              id, slot == kNoSlot ? RemoteRemovals::Why::kUnseen : RemoteRemovals::Why::kDeleted);
        }
        if (slot == kNoSlot) continue;
        records_.Detach(slot);
        note.Removed(chunks_.table.fingerprint(id));
        ++deleted;
        ++chunks_.counters.deleted_chunks;
      }
    }
  }
  return deleted;
}

void Deletes::WhenDeleted(bool durable, StatusCallback done) {
  Section section(&chunks_);
  if (beyond_ == nullptr) return committer_.WhenRemoved(durable, std::move(done));
  const auto both = std::make_shared<Gathering>(2, std::move(done));
  const auto end = [both](const absl::Status& status) { both->End(status); };
  committer_.WhenRemoved(durable, end);
  beyond_->changes.WhenNoted(durable, end);
}

uint64_t Deletes::Clear(const std::optional<NamespaceDigest>& ns) {
  uint64_t cleared = 0;
  {
    Section section(&chunks_);
    uint64_t moves = 0;
    do {  // again if a chunk has changed its slot meanwhile: the walk may have missed it
      moves = chunks_.moves;
      tiers_.NoteMissed(ns);
      for (uint32_t i = 0; i < chunks_.table.slot_end(); ++i) {
        section.YieldIfSpent();
        chunks_.Count(work::kLook);
        const Chunk& chunk = chunks_.table.at(ChunkSlot(i));
        if (!chunk.live || chunk.detached || (ns.has_value() && chunk.id.ns != *ns)) continue;
        records_.Detach(ChunkSlot(i));
        ++cleared;
        ++chunks_.counters.deleted_chunks;
      }
    } while (moves != chunks_.moves);
  }
  if (!ns.has_value()) reuse_.Clear(clock_.Now());
  return cleared;
}

}  // namespace kvkeep::store_internal
