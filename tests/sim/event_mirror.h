// EventMirror: a reader's view of the tiers, from the batches of events that it has read.
#pragma once

#include <set>
#include <utility>

#include "tiers/store/store.h"

namespace kvkeep {

class EventMirror {
 public:
  explicit EventMirror(EventReader reader) : reader_(std::move(reader)) {}

  // Reads all batches, or this many.
  absl::Status Read(uint64_t batches = UINT64_MAX) {
    for (bool more = true; more && batches > 0; --batches) {
      const absl::StatusOr<EventBatch> batch = reader_.Next();
      if (!batch.ok()) return batch.status();
      if (batch->begins_anew) {
        ++begun;
        there_.clear();
      }
      for (const ChunkEvent& event : batch->events) {
        if (event.stored) {
          there_.emplace(event.id, event.tier);
        } else {
          there_.erase({event.id, event.tier});
        }
      }
      whole += batch->whole;
      told += batch->events.size();
      more = batch->more;
    }
    return absl::OkStatus();
  }
  // Returns the tiers that have it: "", "2", "3" or "23".
  std::string Where(const ChunkId& id) const {
    std::string where;
    if (there_.contains({id, Tier::kG2})) where += "2";
    if (there_.contains({id, Tier::kG3})) where += "3";
    return where;
  }
  const std::set<std::pair<ChunkId, Tier>>& there() const { return there_; }
  EventReader& reader() { return reader_; }

  uint64_t begun = 0, whole = 0;  // snapshots
  uint64_t told = 0;              // events

 private:
  EventReader reader_;
  std::set<std::pair<ChunkId, Tier>> there_;
};

}  // namespace kvkeep
