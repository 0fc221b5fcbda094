// Scrubber: which chunk of G3 is read and checked next, and how many bytes a second may be.
//
// Owns the position of the round, the budget in bytes, and three queues. The first has chunks in
// doubt of which another record is kept (records.h), the second those that could not be read
// (suspects.h); they come before all, whatever the rate. The third has other chunks in doubt, the
// most recently used first; they come before the round. One chunk at a time. Reads the table,
// changes no chunk: ScrubReader (scrub_reader.h) reads the chunk that Next names and says how that
// ended. The store's lock protects it.
#pragma once

#include <absl/functional/function_ref.h>

#include <cstdint>
#include <deque>
#include <optional>

#include "tiers/base/clock.h"
#include "tiers/store/chunk_table.h"
#include "tiers/store/counters.h"
#include "tiers/store/hold.h"
#include "tiers/store/suspects.h"

namespace kvkeep::store_internal {

class Scrubber {
 public:
  using Question = absl::FunctionRef<bool(const Chunk&)>;
  // What the table does not say of a chunk.
  struct Questions {
    Question only_in_g3;  // and can be read from there now
    Question has_tenant;
    Question doubted_twice;
  };

  static constexpr size_t kMostUnsure = 1 << 20;

  // All outlive it.
  Scrubber(const ChunkTable* table, Hold* hold, StoreCounters* counters)
      : table_(*table), hold_(*hold), counters_(*counters) {}

  // Rounds follow each other at this rate. 0: there are none.
  void SetRate(uint64_t bytes_per_second) { rate_ = bytes_per_second; }
  // One round from the table's start, at least so fast. 0: no such round any more.
  void AskRound(uint64_t bytes_per_second);
  // A chunk of which another record is kept as well; it may not be so any more by its turn.
  void AddInDoubt(ChunkSlot slot) { in_doubt_.push_back(slot); }
  // A chunk in doubt, likewise, that goes before those that were added earlier. Beyond kMostUnsure
  // the earliest are forgotten: a round comes by them all.
  void AddUnsure(ChunkSlot slot) {
    unsure_.push_front(slot);
    if (unsure_.size() > kMostUnsure) unsure_.pop_back();
  }

  // A read of the chunk's copy in G3 failed. Returns whether its record is to stay.
  bool NoteUnreadable(const Chunk& chunk, MonotonicTime now);
  // It was read whole, and is right.
  void NoteReadable(const ChunkId& id);

  // The budget grows by what is due since the last time. What was not used is not saved up beyond a
  // second's; what was too much is paid off first.
  void Pay(MonotonicTime now);
  // Chunks that cannot be read now are passed by from here on: of those in doubt a limited number.
  void BeginLook() { put_off_ = 0; }
  // The next chunk to be read, until Ended is called. None: not now.
  std::optional<ChunkSlot> Next(const Questions& questions);
  // It is under way, and costs so much.
  void Reading(uint64_t bytes) { budget_bytes_ -= static_cast<double>(bytes); }
  // It was read, or could not be.
  void Ended(bool was_read);

  // There is something to be read now or later.
  bool on() const {
    return rate_ > 0 || round_rate_ > 0 || !in_doubt_.empty() || !suspects_.empty();
  }
  bool round_asked() const { return round_rate_ > 0; }
  uint32_t looked_at() const { return next_.value(); }  // slots of this round
  bool IsInDoubt(ChunkSlot slot) const;

 private:
  std::optional<ChunkSlot> NextInDoubt(const Questions& questions);
  std::optional<ChunkSlot> NextUnsure(const Questions& questions);
  std::optional<ChunkSlot> NextSuspect(const Questions& questions);
  // Looks at the next slot.
  std::optional<ChunkSlot> NextOfRound(const Questions& questions);

  const ChunkTable& table_;
  Hold& hold_;
  StoreCounters& counters_;
  uint64_t rate_ = 0;
  uint64_t round_rate_ = 0;  // asked for until the table's end; 0: nobody did
  ChunkSlot next_{0};        // to look at
  double budget_bytes_ = 0;  // below zero after a large one
  MonotonicTime paid_until_{0};
  bool reading_ = false;
  bool reading_in_doubt_ = false;
  std::deque<ChunkSlot> in_doubt_, unsure_;
  Suspects suspects_;
  size_t put_off_ = 0;
};

}  // namespace kvkeep::store_internal
