// Populate: maps the pages of the tenant's own segments into this process ahead of use, slice by
// slice, so that the first gets and reads in place do not fault for each 64 KiB. It maps up to
// kMostBytes, as page tables of 4 KiB pages take a five-hundredth of the memory they map, in every
// worker; the rest is mapped when it is touched. So is a segment whose pages the daemon had not all
// made when it was mapped: reading a hole of shared memory makes its page, and the maker is charged
// for it.
// Internal; one thread.
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
  // Maps the next slice, which takes some tenths of a millisecond. REQUIRES: !done().
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
