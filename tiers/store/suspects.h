// Suspects: the chunks of G3 whose last read failed. A drive may fail once and work the next time.
//
// A copy keeps its record until kMostFailures reads of it have failed, kAgain or more apart. The
// scrub reads a suspect again when it is due, whether or not anybody asks for the chunk. A restart
// forgets the failures. The store's lock protects it.
#pragma once

#include <absl/container/btree_map.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "tiers/base/clock.h"
#include "tiers/store/chunk_table.h"

namespace kvkeep::store_internal {

class Suspects {
 public:
  static constexpr uint32_t kMostFailures = 4;
  static constexpr std::chrono::seconds kAgain{10};
  // At most this many suspects. Beyond that a failed read of another chunk is not remembered.
  static constexpr size_t kMost = 1 << 16;

  // Notes that a read of the chunk's copy failed. Returns false if reads have failed often enough,
  // over time, to give the copy up. Then it is forgotten here.
  bool NoteFailed(const Chunk& chunk, MonotonicTime now) {
    const auto [it, added] = failed_.try_emplace(chunk.id);
    Entry& entry = it->second;
    if (!added && entry.generation == chunk.g3_generation) {
      if (now < entry.counts_from) return true;
      if (++entry.failures >= kMostFailures) {
        failed_.erase(it);
        return false;
      }
    } else if (added && failed_.size() > kMost) {
      failed_.erase(it);
      return true;
    } else {
      entry = {.generation = chunk.g3_generation, .failures = 1};
      Queue(chunk.id, entry, now);
    }
    entry.counts_from = now + kAgain;
    return true;
  }

  // Notes that the chunk was read whole and is right. Returns whether it was a suspect.
  bool NoteGood(const ChunkId& id) { return failed_.erase(id) > 0; }

  // Returns whether a read failed so recently that another one would tell nothing new.
  bool IsRecent(const Chunk& chunk, MonotonicTime now) const {
    const auto it = failed_.find(chunk.id);
    return it != failed_.end() && it->second.generation == chunk.g3_generation &&
           now < it->second.counts_from;
  }

  bool due(MonotonicTime now) const { return !queue_.empty() && queue_.front().at <= now; }
  // Returns the first suspect that is due. It is due again after kAgain, unless it is found to be
  // good or lost. None: that one is not a suspect any more. REQUIRES: due(now).
  std::optional<ChunkSlot> Next(const ChunkTable& table, MonotonicTime now) {
    const Queued next = queue_.front();
    queue_.pop_front();
    const auto it = failed_.find(next.id);
    if (it == failed_.end() || it->second.queued != next.at) return std::nullopt;
    const ChunkSlot slot = table.Find(next.id);
    if (slot == kNoSlot || table.at(slot).g3_state != G3State::kStored ||
        table.at(slot).g3_generation != it->second.generation) {
      failed_.erase(it);
      return std::nullopt;
    }
    Queue(next.id, it->second, now);
    return slot;
  }

  bool empty() const { return failed_.empty(); }

 private:
  struct Entry {
    Generation generation;  // of the copy that could not be read
    uint32_t failures = 0;
    MonotonicTime counts_from{0};  // earlier failures count as one with the last
    MonotonicTime queued{0};       // its entry in the queue; other entries of the chunk are void
  };
  struct Queued {
    ChunkId id;
    MonotonicTime at;
  };
  void Queue(const ChunkId& id, Entry& entry, MonotonicTime now) {
    entry.queued = now + kAgain;
    queue_.push_back({id, entry.queued});
  }

  absl::btree_map<ChunkId, Entry> failed_;
  std::deque<Queued> queue_;  // ordered by time
};

}  // namespace kvkeep::store_internal
