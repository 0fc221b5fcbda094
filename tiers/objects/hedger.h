// Hedger: decides whether and when a read without a first byte is sent a second time.
//
// It sends again after half as long again as 19 of 20 reads of this endpoint took lately, never
// before a floor, and not at all while too few were seen. Reads that went well pay for hedges,
// twenty for one, and some are saved up: so hedges are few when much is late, when they would only
// add to the load. A plain value. Thread-compatible.
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

  // Returns how long a read waits for its first byte before it is sent again; nullopt: it is not
  // hedged.
  std::optional<std::chrono::nanoseconds> Patience() const;
  // Pays for a hedge. Returns false if none is saved: the read waits on.
  bool TryHedge();
  // Tells that the first byte came, `first_byte` after the read was sent. For a hedged read, only
  // for the first of the two.
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
