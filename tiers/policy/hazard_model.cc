#include "tiers/policy/hazard_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// The constants are those that held on all traces tried; half or twice of each changes little.
constexpr double kLevelWidth = 0.4;
constexpr double kLowestScore = -4;
constexpr double kMostChance = 0.95;
constexpr double kStep = 0.5;  // of the regression
constexpr double kPrior = 8;   // what the first touches are held against
constexpr double kMostCertainty = 4000;
constexpr double kCellPrior = 5;        // chains, in a cell with few observations
constexpr double kFirstChance = 0.08;   // of a touch in the first bucket, unseen
constexpr double kUnseenFall = 0.8;     // from bucket to bucket: unseen, recency is all there is
constexpr double kMostChains = 20'000;  // before the oldest count half

constexpr uint32_t kLengths = 12, kHitClasses = 8;
constexpr uint32_t kLengthAt = 0;                         // 2 x kLengths
constexpr uint32_t kNewAt = kLengthAt + 2 * kLengths;     // kLengths, and 3
constexpr uint32_t kHitsAt = kNewAt + kLengths + 3;       // 2 x kHitClasses
constexpr uint32_t kPlaceAt = kHitsAt + 2 * kHitClasses;  // 3
static_assert(kPlaceAt + 3 <= 64);

uint32_t Log2Class(uint32_t n) {
  return std::min<uint32_t>(static_cast<uint32_t>(std::bit_width(n)), kLengths - 1);
}

uint32_t HitClass(uint32_t hits) {
  constexpr std::array<uint32_t, kHitClasses - 1> kFrom = {1, 2, 3, 6, 12, 32, 100};
  return static_cast<uint32_t>(std::upper_bound(kFrom.begin(), kFrom.end(), hits) - kFrom.begin());
}

std::array<double, HazardModel::kBuckets> Ends() {
  std::array<double, HazardModel::kBuckets> ends;
  for (int b = 0; b < HazardModel::kBuckets; ++b) ends[b] = 0.25 * std::exp2(b / 2.0);
  return ends;
}

std::array<double, HazardModel::kBuckets> Widths() {
  std::array<double, HazardModel::kBuckets> widths = Ends();
  for (int b = HazardModel::kBuckets - 1; b > 0; --b) widths[b] -= widths[b - 1];
  return widths;
}

}  // namespace

const std::array<double, HazardModel::kBuckets> HazardModel::kEnds = Ends();
const std::array<double, HazardModel::kBuckets> HazardModel::kWidths = Widths();

HazardModel::HazardModel() { Estimate(); }

HazardModel::Features HazardModel::Describe(const Chain& chain, uint32_t behind, uint32_t hits) {
  const uint32_t again = chain.continues ? 1 : 0;
  KVKEEP_CHECK(chain.known <= chain.length);
  uint32_t fresh = Log2Class(chain.length - chain.known);
  if (!chain.continues) {
    fresh = kLengths + (chain.known < 2 ? 0 : chain.known < chain.length / 2 ? 1 : 2);
  }
  const uint32_t place = behind == 0 ? 0 : behind < 3 ? 1 : 2;
  return {static_cast<uint8_t>(kLengthAt + again * kLengths + Log2Class(chain.length)),
          static_cast<uint8_t>(kNewAt + fresh),
          static_cast<uint8_t>(kHitsAt + again * kHitClasses + HitClass(hits)),
          static_cast<uint8_t>(kPlaceAt + place)};
}

int HazardModel::LevelsBetween(double times) {
  return static_cast<int>(std::round(std::log(times) / kLevelWidth));
}

double HazardModel::Score(const Features& features) const {
  double score = 0;
  for (const uint8_t feature : features) score += weights_[feature];
  return score;
}

int HazardModel::LevelOf(const Features& features) const {
  const double level = std::round((Score(features) - kLowestScore) / kLevelWidth);
  return static_cast<int>(std::clamp(level, 0.0, kLevels - 1.0));
}

// A step of online Poisson regression, the smaller the surer the weight is.
void HazardModel::Learn(const Features& features, double touched, double expected, double weight) {
  const double mean = std::min(kMostChance, expected * std::exp(Score(features)));
  for (const uint8_t f : features) {
    certainty_[f] = std::min(kMostCertainty, certainty_[f] + weight * mean);
    weights_[f] += kStep * weight * (touched - mean) / (kPrior + certainty_[f]);
  }
}

void HazardModel::Touched(const Features& features, int cell, double weight) {
  KVKEEP_CHECK(cell >= 0 && cell < kCells && weight > 0);
  touched_[cell] += weight;
  Learn(features, 1, common_[cell % kBuckets] / 2, weight);  // half of the bucket was lived through
}

void HazardModel::Outlived(const Features& features, int cell, double weight) {
  KVKEEP_CHECK(cell >= 0 && cell < kCells);
  outlived_[cell] += weight;
  Learn(features, 0, common_[cell % kBuckets], weight);
}

// Chunks in a bucket now count as half of it outlived: hits are seen at once, the lack of them only
// at the bucket's end, which would make old garbage look good.
void HazardModel::EstimateCommon() {
  double before = kFirstChance;
  for (int b = 0; b < kBuckets; ++b) {
    double touched = 0, seen = 0;
    for (int level = 0; level < kLevels; ++level) {
      const int cell = Cell(level, b);
      touched += touched_[cell];
      seen += touched_[cell] + outlived_[cell] + live_[cell] / 2;
    }
    before = (touched + kCellPrior * kUnseenFall * before) / (seen + kCellPrior);
    common_[b] = before;
  }
}

void HazardModel::EstimateLevel(int level) {
  const double factor = std::exp(kLowestScore + kLevelWidth * level);
  std::array<double, kBuckets> raw, chance;
  for (int b = 0; b < kBuckets; ++b) {
    const int cell = Cell(level, b);
    raw[b] = (touched_[cell] + kCellPrior * std::min(kMostChance, common_[b] * factor)) /
             (touched_[cell] + outlived_[cell] + live_[cell] / 2 + kCellPrior);
  }
  for (int b = 0; b < kBuckets; ++b) {
    chance[b] = (raw[std::max(b - 1, 0)] + 2 * raw[b] + raw[std::min(b + 1, kBuckets - 1)]) / 4;
  }
  for (int b = 0; b < kBuckets; ++b) {
    // A chunk is in the middle of its bucket.
    double hits = 0, seconds = 0, alive = 1, best = 0, part = 0.5;
    for (int c = b; c < kBuckets; ++c) {
      const double p = part * chance[c];
      hits += alive * p;
      seconds += alive * part * kWidths[c] * (1 - p / 2);
      best = std::max(best, hits / seconds);
      alive *= 1 - p;
      part = 1;
    }
    index_[Cell(level, b)] = best;
  }
}

void HazardModel::Age() {
  if (std::accumulate(touched_.begin(), touched_.end(), 0.0) <= kMostChains) return;
  for (double& count : touched_) count /= 2;
  for (double& count : outlived_) count /= 2;
}

void HazardModel::Estimate() {
  BeginEstimate();
  while (EstimatePart()) {
  }
}

bool HazardModel::EstimatePart() {
  constexpr int kRank = kLevels + 1;
  if (next_part_ > kRank) return false;
  const int part = next_part_++;
  if (part == 0) {
    Age();
    EstimateCommon();
  } else if (part < kRank) {
    EstimateLevel(part - 1);
  } else {
    Rank();
  }
  return part < kRank;
}

void HazardModel::Rank() {
  std::iota(cells_.begin(), cells_.end(), uint16_t{0});
  std::sort(cells_.begin(), cells_.end(), [this](uint16_t a, uint16_t b) {
    if (index_[a] != index_[b]) return index_[a] < index_[b];
    return a % kBuckets != b % kBuckets ? a % kBuckets > b % kBuckets : a < b;  // older first
  });
  for (int rank = 0; rank < kCells; ++rank) ranks_[cells_[rank]] = static_cast<uint16_t>(rank);
}

namespace {
constexpr char kVersion = 1;
}

std::string HazardModel::Save() const {
  std::string saved(1, kVersion);
  const auto add = [&saved](const auto& numbers) {
    saved.append(reinterpret_cast<const char*>(numbers.data()), sizeof(numbers));
  };
  add(weights_);
  add(certainty_);
  add(touched_);
  add(outlived_);
  return saved;
}

bool HazardModel::Load(absl::string_view saved) {
  HazardModel loaded;
  if (saved.empty() || saved[0] != kVersion) return false;
  saved.remove_prefix(1);
  bool sane = true;
  const auto take = [&](auto& numbers, double least) {
    sane = sane && saved.size() >= sizeof(numbers);
    if (!sane) return;
    std::memcpy(numbers.data(), saved.data(), sizeof(numbers));
    saved.remove_prefix(sizeof(numbers));
    for (const double n : numbers) sane = sane && std::isfinite(n) && n >= least && n < 1e9;
  };
  take(loaded.weights_, -1e9);
  take(loaded.certainty_, 0);
  take(loaded.touched_, 0);
  take(loaded.outlived_, 0);
  if (!sane || !saved.empty()) return false;
  loaded.live_ = live_;
  *this = loaded;
  Estimate();
  return true;
}

}  // namespace kvkeep
