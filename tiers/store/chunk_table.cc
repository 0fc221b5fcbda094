#include "tiers/store/chunk_table.h"

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

// How many chunks each step of FindAll is ahead of the next: as many cache lines are on their way.
constexpr size_t kAhead = 16;
constexpr size_t kCacheLine = 64;

// At most two thirds of the entries are taken, and at least one is free, so that every search ends.
constexpr uint64_t EntriesFor(uint64_t chunks) { return chunks + chunks / 2 + 2; }

}  // namespace

// Touches all of the map at once, since its first use may be anywhere.
ChunkTable::ChunkTable(std::shared_ptr<SlotArrays> slots, uint64_t hash_seed)
    : slots_(std::move(slots)),
      hash_{.seed = hash_seed},
      entries_end_(EntriesFor(slots_->max_slots())),
      map_(entries_end_ * sizeof(Entry), slots_->toucher() == nullptr ? nullptr : &map_toucher_),
      entries_(reinterpret_cast<Entry*>(map_.data())),
      chunks_(slots_->Add<Chunk>()) {
  static_assert(sizeof(Entry) == 8);
  KVKEEP_CHECK(slots_->max_slots() > 0 && slots_->max_slots() <= kMostChunks);
  KVKEEP_CHECK(entries_end_ <= uint64_t{1} << 32);  // so that tags say where entries belong
  map_.Use(map_.bytes());
}

ChunkTable::~ChunkTable() { std::destroy_n(chunks_, slot_end_); }

ChunkSlot ChunkTable::Candidate(uint64_t hash) const {
  const uint32_t tag = TagOf(hash);
  for (uint64_t i = Home(tag); !entries_[i].empty(); i = Next(i)) {
    if (entries_[i].tag == tag) return entries_[i].slot();
  }
  return kNoSlot;
}

ChunkSlot ChunkTable::FindHashed(const ChunkId& id, uint64_t hash) const {
  const uint32_t tag = TagOf(hash);
  for (uint64_t i = Home(tag); !entries_[i].empty(); i = Next(i)) {
    if (entries_[i].tag == tag && at(entries_[i].slot()).id == id) return entries_[i].slot();
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
  // There are three steps, each some chunks behind the one before, so that the memory that a step
  // reads has arrived. The hash says which entry to read, the entry which chunk, and the chunk
  // whether it is the right one.
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
      if (link.slot != kNoSlot) {  // its fields may be in two cache lines
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
        link.slot = FindHashed(wanted, link.fingerprint.value());  // another chunk has its tag
      }
    }
  }
}

ChunkSlot ChunkTable::Create(const ChunkId& id, const ImageShape& shape) {
  if (full()) return kNoSlot;
  ChunkSlot slot = free_;
  if (slot != kNoSlot) {
    free_ = ChunkSlot(at(slot).pins);
  } else {
    slot = ChunkSlot(slot_end_++);
    slots_->Use(slot_end_);
    std::construct_at(&at(slot));
  }
  Chunk& chunk = at(slot);
  KVKEEP_CHECK(!chunk.live);
  chunk.pins = 0;
  chunk.id = id;
  chunk.shape = shape;
  chunk.live = true;
  const uint32_t tag = TagOf(hash_(id));
  uint64_t into = Home(tag);
  for (; !entries_[into].empty(); into = Next(into)) {
    KVKEEP_CHECK(entries_[into].tag != tag || at(entries_[into].slot()).id != id);
  }
  entries_[into] = {.tag = tag, .slot_plus_one = slot.value() + 1};
  ++size_;
  return slot;
}

void ChunkTable::Detach(ChunkSlot slot) {
  Chunk& chunk = at(slot);
  KVKEEP_CHECK(chunk.live && !chunk.detached);
  chunk.detached = true;
  uint64_t hole = Home(TagOf(hash_(chunk.id)));
  while (entries_[hole].slot() != slot) {
    KVKEEP_CHECK(!entries_[hole].empty());
    hole = Next(hole);
  }
  // Entries behind it move up, but not before their own places. So probing needs no tombstones.
  for (uint64_t i = Next(hole); !entries_[i].empty(); i = Next(i)) {
    if (Behind(Home(entries_[i].tag), i) < Behind(hole, i)) continue;
    entries_[hole] = entries_[i];
    hole = i;
  }
  entries_[hole] = Entry{};
}

void ChunkTable::Destroy(ChunkSlot slot) {
  KVKEEP_CHECK(at(slot).live && size_ > 0);
  if (!at(slot).detached) Detach(slot);
  at(slot) = Chunk{};
  at(slot).pins = free_.value();
  free_ = slot;
  --size_;
}

}  // namespace kvkeep::store_internal
