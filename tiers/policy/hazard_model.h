// HazardModel: when do chunks come back? Learns online, from what is touched again and what is not,
// and says which kinds of chunks are worth the least.
//
// A chunk is described by some features of the request that touched it last, which give it a level,
// and by the bucket of time since: half octaves, from a quarter of a second to a week. For each
// cell - a level and a bucket - the model counts chunks that were touched in it and chunks that
// outlived it; the features' weights are a Poisson regression of the touches, so that levels
// separate what comes back from what does not. The index of a cell is that of J. Gittins: the most
// hits per second of staying that a chunk in it can expect, from now up to the best time to give it
// up. Ranks order the cells by it, the least worth first.
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

  // Describes a request for a chain of `length` chunks, the first `known` of which were known.
  struct Chain {
    bool continues = false;  // it goes on where an earlier one ended
    uint32_t length = 0;
    uint32_t known = 0;
  };
  // Returns the features of a chunk of the chain that has `behind` chunks behind it and was touched
  // `hits` times before.
  static Features Describe(const Chain& chain, uint32_t behind, uint32_t hits);
  static int Cell(int level, int bucket) { return level * kBuckets + bucket; }
  // Returns the seconds since its touch at which a chunk leaves the bucket for the next one. A
  // chunk never leaves the last bucket.
  static double EndOf(int bucket) { return kEnds[bucket]; }

  // Returns how many levels are between chunks of which one comes back so many times as often.
  static int LevelsBetween(double times);

  HazardModel();

  int LevelOf(const Features& features) const;
  // Adds chunks of that weight to the cell, or removes them (negative weight).
  void AddLive(int cell, double weight) { live_[cell] += weight; }
  // A chunk was touched in the cell, or lived through it.
  void Touched(const Features& features, int cell, double weight);
  void Outlived(const Features& features, int cell, double weight);

  // Computes the ranks anew from all observations. Takes tens of microseconds. BeginEstimate and
  // EstimatePart do it in parts: a few microseconds each, the last one about twenty. EstimatePart
  // returns whether there are more parts; ranks change after the last one only.
  void Estimate();
  void BeginEstimate() { next_part_ = 0; }
  bool EstimatePart();
  // Returns the cell's rank. 0: the first to go.
  int RankOf(int cell) const { return ranks_[cell]; }
  int CellOf(int rank) const { return cells_[rank]; }

  // Returns the learned state for another process. Load returns false for bytes that Save did not
  // make.
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

  // Learned state.
  std::array<double, kWeights> weights_{};
  std::array<double, kWeights> certainty_{};
  std::array<double, kCells> touched_{};
  std::array<double, kCells> outlived_{};
  // Weights of present chunks, and the estimate made of them.
  std::array<double, kCells> live_{};
  std::array<double, kBuckets> common_{};  // chance of a touch in the bucket, of all levels
  std::array<double, kCells> index_{};
  std::array<uint16_t, kCells> ranks_{};
  std::array<uint16_t, kCells> cells_{};  // by rank
  int next_part_ = 0;                     // of the estimate: counts, levels, ranks
};

}  // namespace kvkeep
