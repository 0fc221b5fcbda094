// MemoryRemovalLog: the log of removals beyond the node, in memory that outlives processes; for the
// store's tests and the simulator.
//
// Each process has one, over the same `left`. A write is done when the executor runs it, and lost
// if the process ends before. Not thread-safe.
#pragma once

#include <set>
#include <utility>

#include "tests/fakes/manual_executor.h"
#include "tiers/nvme/removal_log.h"

namespace kvkeep {

class MemoryRemovalLog final : public RemovalLog {
 public:
  MemoryRemovalLog(std::set<ChunkId>* left, ManualExecutor* executor)
      : left_(*left), executor_(*executor) {}

  std::vector<ChunkId> Left() const override { return {left_.begin(), left_.end()}; }
  void Write(Notes notes, bool, std::function<void(absl::Status)> done) override {
    executor_.Post([this, notes = std::move(notes), done = std::move(done)] {
      if (fails) return done(absl::ResourceExhaustedError("the disk is full"));
      for (const Note& note : *notes) {
        note.ended ? static_cast<void>(left_.erase(note.id))
                   : static_cast<void>(left_.insert(note.id));
      }
      done(absl::OkStatus());
    });
  }

  bool fails = false;

 private:
  std::set<ChunkId>& left_;
  ManualExecutor& executor_;
};

}  // namespace kvkeep
