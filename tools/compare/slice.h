// One slice of a contestant's time: the same operation over and over, each call timed, every byte
// of a get compared with what its key says it must be while the clock stands, puts read back.
//
// Memory is the same for all: what is put is read from, and what is got is written to, regions of
// their own larger than the last-level cache, populated, of the arena's page kind, gone through in
// turn. One thread.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <vector>

#include "tools/bench/measured.h"
#include "tools/bench/shared_pages.h"
#include "tools/compare/contestant.h"

namespace kvkeep::compare {

class Slices {
 public:
  // `region_bytes` of each region. ResourceExhausted: not enough memory.
  static absl::StatusOr<std::unique_ptr<Slices>> Create(std::unique_ptr<Contestant> contestant,
                                                        uint64_t region_bytes);

  // Clears the contestant and puts `keys` chunks of `size` bytes.
  // REQUIRES: size not more than a region.
  absl::Status Load(uint64_t size, uint64_t keys);
  // Of what was loaded last. A lookup is of `batch` keys.
  absl::StatusOr<bench::Measured> Run(Operation operation, uint64_t batch, double seconds);
  // Whether bytes are kept at all; a bare stream's are not what was put.
  void set_keeps_bytes(bool keeps) { keeps_bytes_ = keeps; }

 private:
  Slices(std::unique_ptr<Contestant> contestant, bench::SharedPages targets)
      : contestant_(std::move(contestant)), targets_(std::move(targets)) {}

  std::span<const std::byte> Payload(const ChunkKey& key) const;
  std::span<std::byte> Target(uint64_t number) const;
  absl::Status RunGets(double seconds, bench::Measured* measured);
  absl::Status RunPuts(double seconds, bench::Measured* measured);
  absl::Status RunLookups(uint64_t batch, double seconds, bench::Measured* measured);
  void Compare(const ChunkKey& key, std::span<const std::byte> got, bench::Measured* measured);

  const std::unique_ptr<Contestant> contestant_;
  const bench::SharedPages targets_;
  std::unique_ptr<bench::SharedPages> own_sources_;  // null: the contestant has a place for them
  std::span<std::byte> sources_;
  bool keeps_bytes_ = true;
  uint64_t size_ = 0;
  std::vector<ChunkKey> keys_;
  uint64_t next_get_ = 0, next_lookup_ = 0, next_put_ = 0;
};

}  // namespace kvkeep::compare
