#include "tiers/store/chunk_table.h"

#include <bit>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

// Growing a shard of this many takes some microseconds. Most never grow beyond twice that.
constexpr uint64_t kChunksPerShard = 2048;
constexpr uint32_t kFirstEntries = 64;
// No shard ever holds so many times that: hashes are seeded, it is some hundred deviations away.
constexpr uint64_t kFullestShard = 4;
// How many chunks FindAll is ahead with each of its steps: as many cache lines are on their way.
constexpr size_t kAhead = 16;

// At most two thirds full.
constexpr bool Fits(uint64_t chunks, uint64_t entries) { return 3 * chunks <= 2 * entries; }

constexpr uint32_t EntriesFor(uint64_t chunks) {
  uint32_t entries = kFirstEntries;
  while (!Fits(chunks, entries)) entries *= 2;
  return entries;
}

}  // namespace

ChunkTable::ChunkTable(uint64_t max_chunks, uint64_t hash_seed)
    : max_chunks_(max_chunks),
      hash_{.seed = hash_seed},
      // At least two shards, so that the shift below stays inside the word.
      shards_(std::bit_ceil(std::max<uint64_t>(2, max_chunks / kChunksPerShard))),
      shard_shift_(64 - std::countr_zero(shards_.size())),
      arrays_(shards_.size(), kFirstEntries,
              EntriesFor(std::min<uint64_t>(max_chunks, kFullestShard * kChunksPerShard))),
      memory_(max_chunks * sizeof(Chunk)),
      chunks_(reinterpret_cast<Chunk*>(memory_.data())) {
  KVKEEP_CHECK(max_chunks > 0 && max_chunks < kNoSlot.value());
}

ChunkTable::~ChunkTable() { std::destroy_n(chunks_, slot_end_); }

ChunkSlot ChunkTable::Candidate(uint64_t hash) const {
  const Shard& in = shard(hash);
  if (in.entries == nullptr) return kNoSlot;
  const auto tag = static_cast<uint32_t>(hash);
  for (uint32_t i = tag & in.mask; !in.entries[i].empty(); i = (i + 1) & in.mask) {
    if (in.entries[i].tag == tag) return ChunkSlot(in.entries[i].slot);
  }
  return kNoSlot;
}

ChunkSlot ChunkTable::FindHashed(const ChunkId& id, uint64_t hash) const {
  const Shard& in = shard(hash);
  if (in.entries == nullptr) return kNoSlot;
  const auto tag = static_cast<uint32_t>(hash);
  for (uint32_t i = tag & in.mask; !in.entries[i].empty(); i = (i + 1) & in.mask) {
    const ChunkSlot slot(in.entries[i].slot);
    if (in.entries[i].tag == tag && at(slot).id == id) return slot;
  }
  return kNoSlot;
}

void ChunkTable::FindAll(const NamespaceDigest& ns, std::span<const ChunkKey> keys,
                         std::span<const PartId> parts, std::span<Link> found) const {
  KVKEEP_CHECK(found.size() == keys.size() * parts.size());
  // Walks the chunks in order.
  struct Place {
    size_t key = 0;
    size_t part = 0;
    void Advance(size_t parts) {
      if (++part < parts) return;
      part = 0;
      ++key;
    }
  };
  // Three steps, each some chunks behind the one before, so that what a step reads has arrived:
  // the hash says which entry, the entry which chunk, the chunk whether it is the one.
  Place to_hash;
  Place to_compare;
  const uint64_t seed = hash_.NamespaceSeed(ns);
  const size_t end = found.size();
  for (size_t i = 0; i < end + 2 * kAhead; ++i) {
    if (i < end) {
      const uint64_t hash = ChunkIdHash::InNamespace(seed, keys[to_hash.key], parts[to_hash.part]);
      to_hash.Advance(parts.size());
      found[i].fingerprint = Fingerprint(hash);
      PrefetchEntry(hash);
    }
    if (i >= kAhead && i - kAhead < end) {
      Link& link = found[i - kAhead];
      link.slot = Candidate(link.fingerprint.value());
      if (link.slot != kNoSlot) {  // what is looked at of it may lie in two lines
        const auto* const first = reinterpret_cast<const std::byte*>(&at(link.slot));
        __builtin_prefetch(first);
        __builtin_prefetch(first + kCacheLine - 1);
      }
    }
    if (i >= 2 * kAhead) {
      Link& link = found[i - 2 * kAhead];
      const ChunkId wanted{ns, keys[to_compare.key], parts[to_compare.part]};
      to_compare.Advance(parts.size());
      if (link.slot != kNoSlot && at(link.slot).id != wanted) {
        link.slot = FindHashed(wanted, link.fingerprint.value());  // another one has its tag
      }
    }
  }
}

void ChunkTable::Insert(Shard& shard, Entry entry) {
  uint32_t i = entry.tag & shard.mask;
  while (!shard.entries[i].empty()) i = (i + 1) & shard.mask;
  shard.entries[i] = entry;
}

void ChunkTable::Grow(Shard& shard) {
  const uint32_t before = shard.entries == nullptr ? 0 : shard.mask + 1;
  const uint32_t after = std::max(kFirstEntries, 2 * before);
  Entry* const old = shard.entries;
  shard.entries = arrays_.Take(after);
  shard.mask = after - 1;
  for (uint32_t i = 0; i < before; ++i) {
    if (!old[i].empty()) Insert(shard, old[i]);
  }
  if (old != nullptr) arrays_.GiveBack(old, before);
}

ChunkSlot ChunkTable::Create(const ChunkId& id, const ImageShape& shape) {
  if (full()) return kNoSlot;
  ChunkSlot slot = free_;
  if (slot != kNoSlot) {
    free_ = ChunkSlot(at(slot).pins);
  } else {
    slot = ChunkSlot(slot_end_++);
    std::construct_at(&at(slot));
  }
  Chunk& chunk = at(slot);
  KVKEEP_CHECK(!chunk.live);
  chunk.pins = 0;
  chunk.id = id;
  chunk.shape = shape;
  chunk.live = true;
  const uint64_t hash = hash_(id);
  Shard& into = this->shard(hash);
  if (into.entries == nullptr || !Fits(into.used + 1, into.mask + 1)) Grow(into);
  Insert(into, {.tag = static_cast<uint32_t>(hash), .slot = slot.value()});
  ++into.used;
  ++size_;
  return slot;
}

void ChunkTable::Detach(ChunkSlot slot) {
  Chunk& chunk = at(slot);
  KVKEEP_CHECK(chunk.live && !chunk.detached);
  chunk.detached = true;
  const uint64_t hash = hash_(chunk.id);
  Shard& from = shard(hash);
  KVKEEP_CHECK(from.entries != nullptr);
  uint32_t hole = static_cast<uint32_t>(hash) & from.mask;
  while (from.entries[hole].slot != slot.value()) {
    KVKEEP_CHECK(!from.entries[hole].empty());
    hole = (hole + 1) & from.mask;
  }
  // Those behind it move up unless that is before where they belong: probing needs no tombstones.
  for (uint32_t i = (hole + 1) & from.mask; !from.entries[i].empty(); i = (i + 1) & from.mask) {
    const uint32_t home = from.entries[i].tag & from.mask;
    if (((i - home) & from.mask) < ((i - hole) & from.mask)) continue;
    from.entries[hole] = from.entries[i];
    hole = i;
  }
  from.entries[hole] = Entry{};
  --from.used;
}

void ChunkTable::Destroy(ChunkSlot slot) {
  if (!at(slot).detached) Detach(slot);
  at(slot) = Chunk{};
  at(slot).pins = free_.value();
  free_ = slot;
  --size_;
}

}  // namespace kvkeep::store_internal
