// Prefaulter: touches every page of some memory in the background, so that the first store does not
// pay for it. It never changes the pages' contents; others may write them meanwhile.
//
// Works in slices on an executor, a few at a time; each slice is one task that posts the next, so
// other work of the executor gets its turn in between. Destroying it stops it: waits for the slices
// that run, drops the rest. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tiers/base/executor.h"

namespace kvkeep {

class Prefaulter {
 public:
  static constexpr size_t kSliceBytes = 16 << 20;
  static constexpr size_t kParallelSlices = 4;

  struct Stats {
    uint64_t done_bytes = 0;       // pages there now
    uint64_t touched_bytes = 0;    // of these, page by page (no MADV_POPULATE_WRITE)
    uint64_t failed_bytes = 0;     // the kernel refused
    uint64_t huge_page_bytes = 0;  // measured whenever all slices are through
  };

  // Starts at once. `memory`: page-aligned mappings that outlive this. REQUIRES: executor not null.
  Prefaulter(std::vector<std::span<std::byte>> memory, Executor* executor);
  ~Prefaulter();
  // Adds more memory, under the constructor's conditions.
  void Add(std::span<std::byte> mapping);
  Prefaulter(const Prefaulter&) = delete;
  Prefaulter& operator=(const Prefaulter&) = delete;

  Stats stats() const;

 private:
  struct State;
  // Shared with queued tasks, which may outlive this object.
  const std::shared_ptr<State> state_;
};

// Makes every page of `memory` present and writable without changing a byte, by writing its own
// bytes back. For kernels without MADV_POPULATE_WRITE.
void TouchPages(std::span<std::byte> memory);

}  // namespace kvkeep
