// GaugeHold: adds to a gauge for as long as it lives.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvkeep {

class GaugeHold {
 public:
  explicit GaugeHold(std::atomic<uint64_t>* gauge, uint64_t by = 1) : gauge_(gauge), by_(by) {
    gauge_->fetch_add(by_, std::memory_order_relaxed);
  }
  ~GaugeHold() { gauge_->fetch_sub(by_, std::memory_order_release); }
  GaugeHold(const GaugeHold&) = delete;
  GaugeHold& operator=(const GaugeHold&) = delete;

 private:
  std::atomic<uint64_t>* const gauge_;
  const uint64_t by_;
};

}  // namespace kvkeep
