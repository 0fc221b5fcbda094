// Events tell, in order, which chunks enter and leave the tiers: ChunkEvent. EventReader reads
// them.
//
// A reader first gets every chunk that is there (a snapshot), then each chunk that enters or leaves
// a tier. A reader that applies the events in order knows exactly what a lookup would find. Events
// of the snapshot and of changes may be mixed; each chunk's last event is right all the same.
//
// The store waits for no reader. It keeps the last EventLimits::log_entries events for all readers
// together. A reader that falls behind by more is told so (begins_anew) and gets a new snapshot; so
// do all readers when a device goes or comes back. Events cost nothing while there is no reader.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <vector>

#include "tiers/base/image.h"
#include "tiers/base/key.h"

namespace kvkeep {

class Store;
namespace store_internal {
class Watches;
}

struct EventLimits {
  uint32_t max_readers = 64;     // of sessions; each tenant has its part, at least one
  uint64_t log_entries = 65536;  // kept for readers that are behind, 64 bytes each
};

struct ChunkEvent {
  ChunkId id;
  Tier tier = Tier::kG2;
  bool stored = false;        // true: it entered the tier; false: it left
  bool has_metadata = false;  // Store::ReadMetadata reads it

  bool operator==(const ChunkEvent&) const = default;
};

struct EventBatch {
  bool begins_anew = false;  // forget all earlier events; a snapshot begins
  bool whole = false;        // the snapshot ends with this batch
  bool more = false;         // more events can be read now
  std::vector<ChunkEvent> events;

  // Returns false if the batch says nothing but whether there is more.
  bool tells() const { return begins_anew || whole || !events.empty(); }
};

// Move-only. Must be destroyed before the store. One thread at a time, but for WhenMore's callback.
class EventReader {
 public:
  EventReader() = default;  // reads nothing
  EventReader(EventReader&& other) noexcept;
  EventReader& operator=(EventReader&& other) noexcept;
  ~EventReader();

  explicit operator bool() const { return watches_ != nullptr; }
  // Returns the next events, if there are any. Never waits. FailedPrecondition: its session was
  // closed.
  absl::StatusOr<EventBatch> Next();
  // Calls `wake` once, perhaps inside this call: when there is more for Next, its session was
  // closed, or the reader is gone. REQUIRES: an earlier `wake` was called.
  void WhenMore(absl::AnyInvocable<void() &&> wake);

 private:
  friend class Store;
  store_internal::Watches* watches_ = nullptr;
  uint64_t id_ = 0;
};

}  // namespace kvkeep
