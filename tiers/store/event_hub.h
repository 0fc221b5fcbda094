// EventHub: tells readers, in order, which chunks enter and leave the tiers (events.h).
//
// Owns the readers, the log that they read, and what they were told: of each device whether its
// chunks can be read, of each chunk the bits `told_g2` and `told_g3`. Whoever changes a chunk calls
// NoteTiers when the change is whole; whoever changes a device's state calls NoteReadable. A
// reader that has fallen out of the log begins anew with a snapshot, a walk over the table in
// slices; so do all of them when a device came or went.
//
// Reads the table, changes nothing of it but those two bits. Calls nobody: a reader is woken
// through Hold. The store's lock protects it.
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

  // Readers of sessions that a tenant has.
  uint64_t SessionReadersOf(TenantId tenant) const;
  // The number of the new reader. `memory` is taken when it is the first.
  uint64_t Begin(std::unique_ptr<EventReaderState> reader, EventLog::Memory& memory);
  // Whoever waits for it is woken. `unused`: the log's memory after the last reader's end.
  std::unique_ptr<EventReaderState> End(uint64_t reader, EventLog::Memory* unused);
  // The session that must be open for the reader to go on.
  std::optional<SessionToken> SessionOf(uint64_t reader) const {
    return readers_.at(reader)->session;
  }
  // Adds what is next: at most kMostInBatch and one, and as much as this hold may do.
  static constexpr size_t kMostInBatch = 512;
  void Next(uint64_t reader, EventBatch* batch);
  // Once: when there is more, when its session is closed, when it ends.
  void WhenMore(uint64_t reader, Wake wake, bool session_closed);
  void WakeReadersOf(const SessionToken& token);

  void NoteTiers(Chunk& chunk);
  // Lookups find what is on a device while it can be read: all of its chunks came or went at once.
  void NoteReadable(uint16_t device, bool readable);

  // What was told is what lookups find.
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
