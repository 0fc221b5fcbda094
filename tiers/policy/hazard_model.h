// HazardModel: when do chunks come back? Learns online, from what is touched again and what is not,
// and says which kinds of chunks are worth the least.
//
// A chunk is described by some features of the request that touched it last, which give it a level,
// and by the bucket of time since: half octaves, from a quarter of a second to a week. For each
// cell - a level and a bucket - the model counts chunks that were touched in it and chunks that
// outlived it; the features' weights are a Poisson regression of the touches, so that levels part
// what comes back from what does not. The index of a cell is that of J. Gittins: the most hits per
// second of staying that a chunk in it can expect, from now up to the best time to give it up.
// Ranks order the cells by it, the least worth first.
//
// Weights of chunks are such that a request's chain weighs 1. Some 35 KB. Not thread-safe.
#pragma once

#include <absl/strings/string_view.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace kvkeep {

class HazardModel {
 public:
  static constexpr int kLevels = 24;
  static constexpr int kBuckets = 44;
  static constexpr int kCells = kLevels * kBuckets;
  static constexpr int kFeatures = 4;
  using Features = std::array<uint8_t, kFeatures>;  // which weight of each

  // Of a request for a chain: it has `length` chunks, the first `known` of which were known.
  struct Chain {
    bool continues = false;  // it goes on where an earlier one ended
    uint32_t length = 0;
    uint32_t known = 0;
  };
  // Of a chunk in it, with so many chunks behind it, that was touched `hits` times before.
  static Features Describe(const Chain& chain, uint32_t behind, uint32_t hits);
  static int Cell(int level, int bucket) { return level * kBuckets + bucket; }
  // When a chunk leaves the bucket for the next one, in seconds since its touch; it never leaves
  // the last one.
  static double EndOf(int bucket) { return kEnds[bucket]; }

  HazardModel();

  int LevelOf(const Features& features) const;
  // Chunks of that weight are in the cell from now on, or (negative) no more.
  void AddLive(int cell, double weight) { live_[cell] += weight; }
  // A chunk was touched in the cell, or lived through it.
  void Touched(const Features& features, int cell, double weight);
  void Outlived(const Features& features, int cell, double weight);

  // Ranks anew, from all that was told. Tens of microseconds; or in parts, each a few of them but
  // the last, which is some twenty. EstimatePart returns whether there are more; until there are
  // not, ranks are as they were.
  void Estimate();
  void BeginEstimate() { next_part_ = 0; }
  bool EstimatePart();
  // 0: the first to go.
  int RankOf(int cell) const { return ranks_[cell]; }
  int CellOf(int rank) const { return cells_[rank]; }

  // What was learned, for another process; Load refuses (false) what Save did not make.
  std::string Save() const;
  bool Load(absl::string_view saved);

 private:
  static constexpr int kWeights = 64;
  static const std::array<double, kBuckets> kEnds, kWidths;

  double Score(const Features& features) const;
  void Learn(const Features& features, double touched, double expected, double weight);
  void EstimateCommon();
  void EstimateLevel(int level);
  void Rank();
  void Age();

  // What is learned.
  std::array<double, kWeights> weights_{};
  std::array<double, kWeights> certainty_{};
  std::array<double, kCells> touched_{};
  std::array<double, kCells> outlived_{};
  // What is there, and what follows.
  std::array<double, kCells> live_{};
  std::array<double, kBuckets> common_{};  // chance of a touch in the bucket, of all levels
  std::array<double, kCells> index_{};
  std::array<uint16_t, kCells> ranks_{};
  std::array<uint16_t, kCells> cells_{};  // by rank
  int next_part_ = 0;                     // of the estimate: counts, levels, ranks
};

}  // namespace kvkeep
