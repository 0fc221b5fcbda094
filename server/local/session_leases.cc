#include "server/local/session_leases.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {

SessionLeases::SessionLeases(std::shared_ptr<const LocalContext> context,
                             std::shared_ptr<ProgressMemory> progress)
    : context_(std::move(context)), progress_(std::move(progress)) {}

SessionLeases::~SessionLeases() { End(); }

void SessionLeases::Note(const LookupResult& granted, size_t parts) {
  const auto [found, inserted] = leases_.try_emplace(granted.lease.value());
  if (!inserted) return;
  KVKEEP_CHECK(!granted.places.empty());
  found->second.parts = static_cast<uint32_t>(parts);
  found->second.first_key = granted.places.front().chunk / found->second.parts;
}

// Returns whether a read found the leased chunk: by key it may find another one, put after a
// delete.
bool SessionLeases::IsAt(const ChunkReader& reader, const ChunkPlace& place) const {
  if (reader.shape() != place.shape) return false;
  const ByteRun payload = LocateInImage(place.extents, kHeaderBytes, 1);
  const std::span<std::byte> block =
      context_->arena->Memory({BlockNumber(payload.tier_offset / kBlockBytes), BlockCount(1)});
  return reader.Payload(0, 1).data() == block.data();
}

absl::StatusOr<uint32_t> SessionLeases::WordOf(const SessionToken& session, LeaseId lease_id,
                                               const ChunkId& id, const ChunkPlace& place,
                                               bool transient) {
  Lease& lease = leases_.at(lease_id.value());
  const auto at = std::lower_bound(
      lease.arriving.begin(), lease.arriving.end(), place.chunk,
      [](const Arriving& arriving, uint32_t chunk) { return arriving.chunk < chunk; });
  if (at != lease.arriving.end() && at->chunk == place.chunk) return at->word;
  const std::optional<uint32_t> word = progress_->TakeWord();
  if (!word.has_value()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("progress words: all ", local::kProgressWords - 1,
                     " of this session tell of leased chunks on their way; release leases"));
  }
  context_->counters->progress_words.fetch_add(1, std::memory_order_relaxed);
  context_->counters->arriving_chunks.fetch_add(1, std::memory_order_relaxed);
  auto arrival = std::make_shared<ChunkArrival>(progress_, *word);
  lease.arriving.insert(at, {.chunk = place.chunk, .word = *word, .arrival = arrival});
  absl::StatusOr<ReadResult> read = context_->store->Read(session, id, lease_id, transient);
  if (read.ok() && read->outcome == ReadOutcome::kHit && IsAt(read->reader, place)) {
    arrival->Follow(std::move(read->reader));
  } else {
    arrival->Fail();
  }
  return *word;
}

void SessionLeases::Forget(const Arriving& arriving) {
  arriving.arrival->End();
  progress_->GiveBack(arriving.word);
  context_->counters->progress_words.fetch_sub(1, std::memory_order_relaxed);
}

void SessionLeases::Release(LeaseId lease_id, uint32_t keep_keys) {
  const auto found = leases_.find(lease_id.value());
  if (found == leases_.end()) return;
  Lease& lease = found->second;
  std::erase_if(lease.arriving, [&](const Arriving& arriving) {
    if (arriving.chunk / lease.parts < keep_keys) return false;
    Forget(arriving);
    return true;
  });
  if (keep_keys <= lease.first_key) leases_.erase(found);
}

void SessionLeases::End() {
  for (const auto& [id, lease] : leases_) {
    for (const Arriving& arriving : lease.arriving) Forget(arriving);
  }
  leases_.clear();
}

}  // namespace kvkeep
