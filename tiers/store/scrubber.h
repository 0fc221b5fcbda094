// Scrubber: says which chunk of G3 is scrubbed next, and keeps to the rate.
//
// Owns the position of the round, the budget in bytes, and three queues. The first has chunks in
// doubt of which another record is kept (records.h). The second has chunks that could not be read
// (suspects.h). These two come before all others, whatever the rate. The third has other chunks in
// doubt, the most recently used first. They come before the round. One chunk is scrubbed at a time.
// Scrubber reads the table and changes no chunk: ScrubReader (scrub_reader.h) reads the chunk that
// Next returns, and reports how that ended. The store's lock protects it.
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
  // Questions about a chunk that the table does not answer.
  struct Questions {
    Question only_in_g3;  // and it can be read from there now
    Question has_tenant;
    Question doubted_twice;
  };

  static constexpr size_t kMostUnsure = 1 << 20;

  // All outlive it.
  Scrubber(const ChunkTable* table, Hold* hold, StoreCounters* counters)
      : table_(*table), hold_(*hold), counters_(*counters) {}

  // Sets the rate at which rounds follow each other. 0: there are none.
  void SetRate(uint64_t bytes_per_second) { rate_ = bytes_per_second; }
  // Asks for one round from the table's start, at this rate at least. 0: ends such a round.
  void AskRound(uint64_t bytes_per_second);
  // Adds a chunk of which another record is kept. This may have changed by the chunk's turn.
  void AddInDoubt(ChunkSlot slot) { in_doubt_.push_back(slot); }
  // Adds another chunk in doubt, which goes before those that were added earlier. Beyond
  // kMostUnsure the earliest are forgotten: a round reads them all.
  void AddUnsure(ChunkSlot slot) {
    unsure_.push_front(slot);
    if (unsure_.size() > kMostUnsure) unsure_.pop_back();
  }

  // Notes that a read of the chunk's copy in G3 failed. Returns whether to keep its record.
  bool NoteUnreadable(const Chunk& chunk, MonotonicTime now);
  // Notes that the chunk was read whole and is right.
  void NoteReadable(const ChunkId& id);

  // Adds to the budget what is due since the last call. At most one second's bytes are saved up. A
  // debt is paid off first.
  void Pay(MonotonicTime now);
  // Begins a look for the next chunk. It skips a limited number of chunks in doubt that cannot be
  // read now.
  void BeginLook() { put_off_ = 0; }
  // Returns the next chunk, which is being read until Ended is called; none: not now.
  std::optional<ChunkSlot> Next(const Questions& questions);
  // Takes `bytes` from the budget for the read under way.
  void Reading(uint64_t bytes) { budget_bytes_ -= static_cast<double>(bytes); }
  // Ends the read. `was_read`: false if the chunk could not be read.
  void Ended(bool was_read);

  // Returns whether there are chunks to be read now or later.
  bool on() const {
    return rate_ > 0 || round_rate_ > 0 || !in_doubt_.empty() || !suspects_.empty();
  }
  bool round_asked() const { return round_rate_ > 0; }
  uint32_t looked_at() const { return next_.value(); }  // slots, in this round
  bool IsInDoubt(ChunkSlot slot) const;

 private:
  std::optional<ChunkSlot> NextInDoubt(const Questions& questions);
  std::optional<ChunkSlot> NextUnsure(const Questions& questions);
  std::optional<ChunkSlot> NextSuspect(const Questions& questions);
  // Looks at the round's next slot.
  std::optional<ChunkSlot> NextOfRound(const Questions& questions);

  const ChunkTable& table_;
  Hold& hold_;
  StoreCounters& counters_;
  uint64_t rate_ = 0;
  uint64_t round_rate_ = 0;  // asked for until the table's end; 0: no round was asked for
  ChunkSlot next_{0};        // the slot to look at next
  double budget_bytes_ = 0;  // below zero after a large chunk
  MonotonicTime paid_until_{0};
  bool reading_ = false;
  bool reading_in_doubt_ = false;
  std::deque<ChunkSlot> in_doubt_, unsure_;
  Suspects suspects_;
  size_t put_off_ = 0;
};

}  // namespace kvkeep::store_internal
