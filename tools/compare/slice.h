// One slice of a contestant's time: the same operation over and over, each call timed, every byte
// of a get compared with what its key says it must be while the clock stands, puts read back.
// A call is of one chunk or of a batch of them.
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

  // Clears the contestant, after a put, a lookup and a get of one chunk: what only the first calls
  // pay, connections and mappings, is nobody's time. From now on chunks are of `size` bytes, and
  // calls of `batch` chunks. REQUIRES: size * batch not more than a region; of a lookup's batch
  // size alone.
  absl::Status Load(uint64_t size, uint64_t batch);
  // Puts so many calls' chunks more. They are what is got and looked up.
  absl::StatusOr<bench::Measured> Fill(uint64_t calls);
  // Of what was filled in since Load.
  absl::StatusOr<bench::Measured> Run(Operation operation, double seconds);
  // Whether bytes are kept at all; a bare stream's are not what was put.
  void set_keeps_bytes(bool keeps) { keeps_bytes_ = keeps; }

 private:
  Slices(std::unique_ptr<Contestant> contestant, bench::SharedPages targets)
      : contestant_(std::move(contestant)), targets_(std::move(targets)) {}

  std::span<const std::byte> Payload(const ChunkKey& key) const;
  std::span<std::byte> Target(uint64_t number) const;
  // The next `batch_` of the keys that were filled in, and on from there.
  absl::Span<const ChunkKey> NextKeys(uint64_t* next) const;
  // So many calls until what they did is compared.
  uint64_t CallsBetweenChecks() const;
  absl::Status PutTimed(absl::Span<const ChunkKey> keys, bench::Measured* measured);
  absl::Status RunGets(bool lookup_first, double seconds, bench::Measured* measured);
  absl::Status RunPuts(double seconds, bench::Measured* measured);
  absl::Status RunLookups(double seconds, bench::Measured* measured);
  absl::Status WarmUp();
  absl::Status LookUp(absl::Span<const ChunkKey> keys);
  void Compare(absl::Span<const ChunkKey> keys, uint64_t first_target, bench::Measured* measured);

  const std::unique_ptr<Contestant> contestant_;
  const bench::SharedPages targets_;
  std::unique_ptr<bench::SharedPages> own_sources_;  // null: the contestant has a place for them
  std::span<std::byte> sources_;
  bool keeps_bytes_ = true;
  uint64_t size_ = 0, batch_ = 1;
  std::vector<ChunkKey> keys_;
  // Where gets, lookups and puts go on; targets are gone through on their own.
  uint64_t next_get_ = 0, next_lookup_ = 0, next_put_ = 0, next_target_ = 0;
};

}  // namespace kvkeep::compare
