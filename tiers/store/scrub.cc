// Scrub: chunks that only G3 holds are read and checked in turn, so many bytes a second, so that
// what has rotted there is found before somebody wants it.
//
// One at a time, as a promotion of a transient chunk that nobody waits for: what a promotion checks
// is checked, its damage is dealt with as there, and its space in G2 is given back at once. It may
// cost G2 the least wanted of its chunks, one chunk's worth of space. What is in G2 as well is left
// for a later round, as is what cannot be read now. What a tenant left that is no more has no space
// in G2 and no reader: it is passed by and counted, and goes first when space is wanted (shares.h).
//
// Before that, and whatever the rate: chunks in doubt of which another record is kept (replace.cc).
#include <algorithm>

#include "tiers/store/core.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint64_t kInDoubtBytesPerSecond = 64 * kMiB;  // at least
constexpr size_t kMostPutOff = 64;  // of those in doubt that cannot be read now, a Tick

}  // namespace

void Core::StartScrub(Section& section, MonotonicTime now) {
  const uint64_t in_doubt = scrub_.in_doubt.empty() ? 0 : kInDoubtBytesPerSecond;
  const uint64_t asked = std::max({limits_.scrub_bytes_per_second, scrub_.round_rate, in_doubt});
  if (asked == 0) return;
  const auto rate = static_cast<double>(asked);
  const double seconds = std::chrono::duration<double>(now - scrub_.paid_until).count();
  scrub_.paid_until = now;
  // What was not used is not saved up beyond a second's; what was too much is paid off first.
  scrub_.budget_bytes = std::min(scrub_.budget_bytes + seconds * rate, rate);
  ScrubNext(section);
}

void Core::ScrubNext(Section& section) {
  size_t put_off = 0;
  while (!scrub_.reading && scrub_.budget_bytes > 0 && !draining_) {
    if (Spent()) return;  // the next Tick goes on
    if (!scrub_.in_doubt.empty() && put_off < kMostPutOff) {
      put_off += !ScrubInDoubt(section);
      continue;
    }
    if (limits_.scrub_bytes_per_second == 0 && scrub_.round_rate == 0) return;
    if (scrub_.next.value() >= table_.slot_end()) {
      ++counters_.scrub_rounds;
      scrub_.round_rate = 0;
      scrub_.next = ChunkSlot(0);
      return;  // a round ends a Tick's scrub: an empty table is no work
    }
    Count(work::kLook);
    const ChunkSlot slot = scrub_.next;
    scrub_.next = ChunkSlot(slot.value() + 1);
    const Chunk& chunk = table_.at(slot);
    if (!chunk.live || chunk.detached || chunk.has_g2_space() || !InG3(chunk)) continue;
    if (!HasPool(chunk.tenant)) {
      ++counters_.scrub_skipped_chunks;
      continue;
    }
    ScrubChunk(section, slot);
  }
}

// False: not now.
bool Core::ScrubInDoubt(Section& section) {
  Count(work::kFind);
  const ChunkSlot slot = scrub_.in_doubt.front();
  scrub_.in_doubt.pop_front();
  const Chunk& chunk = table_.at(slot);
  if (!chunk.live || chunk.detached || !chunk.doubtful || !HasPool(chunk.tenant)) return true;
  if (!replaced_.HasAny(chunk.id)) return true;
  scrub_.in_doubt.push_back(slot);
  if (!chunk.has_g2_space() && InG3(chunk)) ScrubChunk(section, slot);
  return scrub_.reading;
}

void Core::ScrubChunk(Section& section, ChunkSlot slot) {
  const ChunkId id = table_.at(slot).id;
  const bool transient = table_.at(slot).transient;
  scrub_.reading = true;  // also while the next line lets go of the lock
  const TenantId tenant = table_.at(slot).tenant;
  const bool coming = EnsureInG2(section, {tenant, {}}, tenant, slot, kNoSlot, true);
  const auto promotion = promotions_.find(slot);
  // No space; or gone, or somebody wanted it in the meantime.
  if (!coming || !StillIs(slot, id) || promotion == promotions_.end()) {
    scrub_.reading = false;
    return;
  }
  scrub_.budget_bytes -= static_cast<double>(table_.at(slot).blocks() * kBlockBytes);
  // Not pinned: where the device goes away, the chunk stays what it was.
  const Promotion& begun = *promotion->second;
  promotion->second->waiters.Add(
      0, begun.pieces.size(), [&begun](size_t piece) { return begun.IsReady(piece); },
      [this, slot, id, transient](const absl::Status& status) {
        OnScrubbed(slot, id, transient, status);
      });
}

void Core::OnScrubbed(ChunkSlot slot, const ChunkId& id, bool transient,
                      const absl::Status& status) {
  Section section(this);
  scrub_.reading = false;
  ++counters_.scrubbed_chunks;
  if (absl::IsDataLoss(status)) ++counters_.scrub_damaged_chunks;
  if (StillIs(slot, id)) {
    Change chunk(this, slot);
    chunk->transient = transient;
    if (status.ok()) counters_.scrubbed_bytes += chunk->shape.payload_bytes;
    if (EvictableFromG2(*chunk)) {
      FreeG2Copy(*chunk, slot, EvictionPolicy::EraseReason::kRemoved);
    }
  }
  ScrubNext(section);
}

}  // namespace kvkeep::store_internal
