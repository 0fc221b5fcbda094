// Hedger: whether and when a read that has no first byte yet is sent a second time.
//
// After half as long again as 19 of 20 reads of this endpoint took lately, never before a floor,
// and not at all while too few were seen. Hedges are paid for by reads that went well, one for
// twenty, and some are saved up: so they are few when much is late, when they would only add to it.
// A plain value. Thread-compatible.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace kvkeep {

struct HedgeOptions {
  std::chrono::milliseconds shortest_patience{10};
  uint32_t saved_hedges = 10;      // at most, and at first
  uint32_t served_per_hedge = 20;
};

class Hedger {
 public:
  explicit Hedger(const HedgeOptions& options);

  // How long a read waits for its first byte before a second one is sent; none: it is not hedged.
  std::optional<std::chrono::nanoseconds> Patience() const;
  // Pays for a hedge. False: there is none to be had, and the read waits on.
  bool TryHedge();
  // The first byte of a read that was not hedged came, or of the first of two that were: so long
  // after it was sent.
  void Served(std::chrono::nanoseconds first_byte);

  uint64_t hedges() const { return hedges_; }

 private:
  static constexpr size_t kRemembered = 128, kLeast = 20, kRenewed = 16;

  void Judge();

  const HedgeOptions options_;
  uint64_t saved_;  // in parts: served_per_hedge make one
  uint64_t served_ = 0, hedges_ = 0;
  std::array<std::chrono::nanoseconds, kRemembered> times_{};  // the last ones, in a ring
  std::chrono::nanoseconds p95_{0};
};

}  // namespace kvkeep
