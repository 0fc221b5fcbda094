// EventHub: tells readers, in order, which chunks enter and leave the tiers (events.h).
//
// Owns the readers, the log that they read, and a note of what they were told: for each device,
// whether its chunks can be read; for each chunk, the bits `told_g2` and `told_g3`. Code that
// changes a chunk calls NoteTiers when the change is complete. Code that changes a device's state
// calls NoteReadable. A reader that has fallen out of the log begins anew with a snapshot, a walk
// over the table in slices. All readers begin anew when a device came or went.
//
// Reads the table, and changes only those two bits of it. Calls nobody: Hold wakes readers. The
// store's lock protects it.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tiers/store/chunk_table.h"
#include "tiers/store/counters.h"
#include "tiers/store/event_log.h"
#include "tiers/store/event_reader_state.h"
#include "tiers/store/hold.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

class EventHub {
 public:
  using Wake = absl::AnyInvocable<void() &&>;

  // All outlive it.
  EventHub(uint64_t log_entries, size_t devices, const ChunkTable* table, Hold* hold,
           StoreCounters* counters);

  // Returns how many readers the tenant's sessions have.
  uint64_t SessionReadersOf(TenantId tenant) const;
  // Returns the number of the new reader. Takes `memory` if it is the first reader.
  uint64_t Begin(std::unique_ptr<EventReaderState> reader, EventLog::Memory& memory);
  // Removes the reader, and wakes its waiter. `unused`: gets the log's memory when the last reader
  // ends.
  std::unique_ptr<EventReaderState> End(uint64_t reader, EventLog::Memory* unused);
  // Returns the session that must be open for the reader to go on.
  std::optional<SessionToken> SessionOf(uint64_t reader) const {
    return readers_.at(reader)->session;
  }
  // Adds the next events to the batch, at most kMostInBatch + 1, and as many as this hold may do.
  static constexpr size_t kMostInBatch = 512;
  void Next(uint64_t reader, EventBatch* batch);
  // Calls `wake` once: when there are more events, its session is closed, or the reader ends.
  void WhenMore(uint64_t reader, Wake wake, bool session_closed);
  void WakeReadersOf(const SessionToken& token);

  void NoteTiers(Chunk& chunk);
  // Notes whether the device can be read now. If that changes, all of its chunks come or go at once
  // for lookups.
  void NoteReadable(uint16_t device, bool readable);

  // Checks that readers were told what lookups find.
  void Check(const Chunk& chunk) const;
  void Check(uint16_t device, bool readable) const;

 private:
  void Tell(const ChunkEvent& event);
  void WakeReader(EventReaderState& reader);
  void Walk(EventReaderState& reader, EventBatch* batch);

  const ChunkTable& table_;
  Hold& hold_;
  StoreCounters& counters_;
  EventLog log_;                     // on while there are readers
  std::vector<bool> told_readable_;  // by device
  absl::btree_map<uint64_t, std::unique_ptr<EventReaderState>> readers_;
  uint64_t next_reader_ = 1;
  uint64_t waiting_ = 0;  // readers with a wake
};

}  // namespace kvkeep::store_internal
