// FadingMap: a value for each of some chunks, for a while. All entries last equally long; if there
// would be more than `most`, the oldest ones end first.
//
// Not thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "tiers/base/clock.h"
#include "tiers/base/key.h"

namespace kvkeep {

template <typename Value>
class FadingMap {
 public:
  FadingMap(size_t most, std::chrono::milliseconds lasts, uint64_t hash_seed)
      : most_(most), lasts_(lasts), entries_(0, ChunkIdHash{hash_seed}) {}

  // Replaces the chunk's entry, if there is one.
  void Put(const ChunkId& id, Value value, MonotonicTime now) {
    entries_[id] = {std::move(value), now + lasts_};
    ends_.emplace_back(id, now + lasts_);
    while (!ends_.empty() && (ends_.front().second <= now || ends_.size() > most_)) {
      const auto entry = entries_.find(ends_.front().first);
      // An entry that was replaced has a later end, too.
      if (entry != entries_.end() && entry->second.until == ends_.front().second) {
        entries_.erase(entry);
      }
      ends_.pop_front();
    }
  }
  // Returns the chunk's value, null if it has none. Valid until the next call of Put or Take.
  Value* Find(const ChunkId& id, MonotonicTime now) {
    const auto entry = entries_.find(id);
    return entry == entries_.end() || entry->second.until <= now ? nullptr : &entry->second.value;
  }
  // Ends the chunk's entry and returns its value.
  std::optional<Value> Take(const ChunkId& id, MonotonicTime now) {
    const auto entry = entries_.find(id);
    if (entry == entries_.end()) return std::nullopt;
    std::optional<Value> value;
    if (entry->second.until > now) value = std::move(entry->second.value);
    entries_.erase(entry);
    return value;
  }

 private:
  struct Entry {
    Value value;
    MonotonicTime until{0};
  };
  const size_t most_;
  const std::chrono::milliseconds lasts_;
  absl::flat_hash_map<ChunkId, Entry, ChunkIdHash> entries_;
  // When entries end, oldest first. An entry that was replaced is there twice.
  std::deque<std::pair<ChunkId, MonotonicTime>> ends_;
};

}  // namespace kvkeep
