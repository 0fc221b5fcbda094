// Populate: maps the arena's pages into this process ahead, slice by slice, so that the first gets
// and reads in place do not fault for each 64 KiB. Up to kMostBytes: page tables of 4 KiB pages are
// a five-hundredth of what they map, in every worker; the rest is mapped as it is touched. So is a
// segment of which the daemon had not yet made all pages when it was mapped: to read a hole of
// shared memory makes its page, and whoever makes it is charged for it. Internal; one thread.
#pragma once

#include <memory>

#include "client/internal/mappings.h"
#include "tiers/base/units.h"

namespace kvkeep::client {

class Populate {
 public:
  static constexpr uint64_t kMostBytes = 4 * kGiB;

  explicit Populate(std::shared_ptr<const ArenaMap> arena, uint64_t most_bytes = kMostBytes)
      : arena_(std::move(arena)), most_bytes_(most_bytes) {}

  bool done() const { return done_; }
  // Maps the next slice: some tenths of a millisecond. REQUIRES: !done().
  void Step();

  uint64_t bytes() const { return bytes_; }  // mapped so far

 private:
  const std::shared_ptr<const ArenaMap> arena_;
  const uint64_t most_bytes_;
  size_t segment_ = 0;
  uint64_t offset_ = 0;  // in it
  uint64_t bytes_ = 0;
  bool done_ = false;
};

}  // namespace kvkeep::client
