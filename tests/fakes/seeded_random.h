// SeededRandom: the same bytes for the same seed, for ever and on every machine (splitmix64).
// Also the tests' own source of choices. Not thread-safe.
#pragma once

#include <cstring>

#include "tiers/base/random.h"

namespace kvkeep {

class SeededRandom final : public RandomSource {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}

  void Fill(std::span<std::byte> out) override {
    while (!out.empty()) {
      const uint64_t value = Step();
      const size_t n = out.size() < sizeof(value) ? out.size() : sizeof(value);
      std::memcpy(out.data(), &value, n);
      out = out.subspan(n);
    }
  }
  // Advances as Fill() of this many times eight bytes would.
  void Skip(uint64_t words) { state_ += words * kStep; }
  // Uniform in [0, bound). REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) { return Step() % bound; }
  // Uniform in [low, high].
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  bool Chance(double probability) {
    return static_cast<double>(Step() >> 11) * 0x1.0p-53 < probability;
  }

 private:
  uint64_t Step() {  // Vigna's splitmix64, public domain constants
    uint64_t z = (state_ += kStep);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  uint64_t state_;
};

}  // namespace kvkeep
