// ChunkSummary: which chunks a node has, in about 12 bits each, so that other nodes of the fleet
// ask it only for what it may have.
//
// It is a Bloom filter whose probes stay in one block of 64 bytes. About one in 200 chunks that the
// node does not have seems to be there. A node with more chunks than fit keeps a sample: those
// whose hash has `level` zeros at its end. All nodes hash alike (NameHash), so that a question is
// hashed once for all peers, and samples of unlike levels contain each other.
//
// Format of the bits, as they are sent: blocks of 64 bytes. The hash's upper 32 bits, times the
// number of blocks, over 2^32, choose the block. Bits 0-8, 9-17, ... 54-62 of
// (hash ^ hash >> 32) * 0x9E3779B97F4A7C15 are the chunk's seven bits; bit b is in byte b / 8, at
// value 1 << b % 8.
//
// A plain value, constant once made. Thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/key.h"

namespace kvkeep {

// Hashes names of chunks as all nodes of a fleet do.
class NameHash {
 public:
  // `place`: the fleet's. Tenants do not know it, and so cannot choose colliding names.
  explicit NameHash(const Uuid& place);
  uint64_t operator()(const ChunkId& id) const { return hash_(id); }

 private:
  ChunkIdHash hash_;
};

class ChunkSummary {
 public:
  static constexpr size_t kBlockBytes = 64;
  static constexpr size_t kBitsAChunk = 12;
  static constexpr size_t kMostBytes = 2 << 20;
  static constexpr uint32_t kMostLevel = 40;

  // What a summary says of a run of chunks.
  struct Answer {
    size_t sampled = 0;  // chunks that it speaks of, up to the first one that is not there
    size_t there = 0;    // of these, chunks that seem to be there: all, or all but the last
    size_t reach = 0;    // chunks of the run up to the last one of these
  };

  // Parses what another node sent. InvalidArgument: it is no whole number of blocks, or too long.
  static absl::StatusOr<ChunkSummary> Parse(uint32_t level, std::string bits);

  uint32_t level() const { return level_; }
  const std::string& bits() const { return bits_; }
  bool Samples(uint64_t hash) const { return IsSampled(hash, level_); }
  // REQUIRES: Samples(hash).
  bool MayHave(uint64_t hash) const;
  // Looks at the run from its front, or from its back.
  Answer LookFromFront(std::span<const uint64_t> hashes) const;
  Answer LookFromBack(std::span<const uint64_t> hashes) const;

 private:
  friend class SummaryBuilder;
  ChunkSummary(uint32_t level, std::string bits);
  // `looked`: chunks of the run up to this one. Returns false if it is not there.
  bool LookAt(uint64_t hash, size_t looked, Answer* answer) const;
  void Add(uint64_t hash);

  static bool IsSampled(uint64_t hash, uint32_t level) {
    return (hash & ((uint64_t{1} << level) - 1)) == 0;
  }

  uint32_t level_;
  std::string bits_;
};

// Gathers the hashes of a node's chunks. Uses eight bytes for each chunk that is in the sample.
class SummaryBuilder {
 public:
  // `most_bytes`: of the summary; at least a block, at most ChunkSummary::kMostBytes.
  explicit SummaryBuilder(size_t most_bytes);
  void Add(uint64_t hash);
  ChunkSummary Build();

 private:
  void Thin();

  const size_t most_chunks_;
  uint32_t level_ = 0;
  std::vector<uint64_t> hashes_;
};

}  // namespace kvkeep
