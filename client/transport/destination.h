// Destinations of a get's chunks: each chunk goes to one span of the caller's, or fills several one
// after the other, some of which may be skipped (GetOptions). Internal.
#pragma once

#include <absl/types/span.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/values/types.h"
#include "tiers/base/checksum.h"

namespace kvkeep::client {

// Destination of one chunk. One thread at a time.
class Destination {
 public:
  using Runs = absl::Span<const std::span<std::byte>>;

  Destination() = default;
  // A destination of one span.
  explicit Destination(std::span<std::byte> whole) : whole_(whole), bytes_(whole.size()) {}
  // A destination of several spans. `runs` must outlive it.
  explicit Destination(Runs runs);

  uint64_t bytes() const { return bytes_; }
  // Copies the next bytes. `checksums` gets all of them, even skipped ones; may be null. REQUIRES:
  // they fit.
  void Fill(std::span<const std::byte> bytes, PayloadCopier* checksums);
  // Returns the place of the next `bytes` bytes if it is one run; else, and for skipped bytes, an
  // empty span.
  std::span<std::byte> Place(uint64_t bytes) const;
  // The next bytes are in their Place.
  void Skip(uint64_t bytes);

 private:
  size_t runs() const { return runs_.empty() ? 1 : runs_.size(); }
  std::span<std::byte> run(size_t at) const { return runs_.empty() ? whole_ : runs_[at]; }

  std::span<std::byte> whole_;  // unless there are runs_
  Runs runs_;
  uint64_t bytes_ = 0;
  size_t next_ = 0;    // run
  uint64_t done_ = 0;  // bytes of that run
};

// Destinations of all chunks of a call.
class Destinations {
 public:
  // REQUIRES: CheckDestinations.
  explicit Destinations(const GetOptions& options);

  // Returns the destination of `bytes` bytes. Asks GetOptions::allocate, if there is one, once for
  // each chunk.
  Destination Of(GetOptions& options, size_t chunk, uint64_t bytes) const;

 private:
  std::vector<size_t> starts_;  // of each chunk's runs; empty: one run each
};

}  // namespace kvkeep::client
