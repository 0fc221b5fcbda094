// RunList: runs of registered memory in the order of a payload; adjacent ones are joined.
// Numbers only.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "client/gpu/gpu_run.h"

namespace kvkeep::client {

class RunList {
 public:
  explicit RunList(size_t max_runs) : max_runs_(max_runs) {}

  void Add(const GpuRun& run) {
    GpuRun* const last = runs_.empty() ? nullptr : &runs_.back();
    if (last != nullptr && last->region == run.region && last->offset + last->bytes == run.offset) {
      last->bytes += run.bytes;
    } else if (runs_.size() == max_runs_) {
      full_ = true;
    } else {
      runs_.push_back(run);
    }
  }
  // Returns whether there were more than max_runs runs, so that Take does not return all.
  bool full() const { return full_; }
  std::vector<GpuRun> Take() { return std::move(runs_); }

 private:
  const size_t max_runs_;
  std::vector<GpuRun> runs_;
  bool full_ = false;
};

}  // namespace kvkeep::client
