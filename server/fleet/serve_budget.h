// ServeBudget: limits what a node serves to others of its fleet, so that its own engines come
// first. A read over a limit is refused at once: the asker has other sources.
//
// Thread-safe. Must outlive its shares.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"
#include "tiers/base/token_bucket.h"

namespace kvkeep {

class ServeBudget {
 public:
  struct Limits {
    uint64_t bytes_per_second = 0;  // 0: nothing is served
    uint32_t streams = 16;
    uint64_t pinned_bytes = 0;  // of images that are being sent; one image may exceed it
  };
  // The part of one read, held until this is destroyed.
  class Share {
   public:
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&&) = delete;
    ~Share() {
      if (budget_ != nullptr) budget_->End(bytes_);
    }

    // Counts the image against the rate: it is there, and will be sent.
    void Charge(MonotonicTime now) { budget_->Charge(bytes_, now); }

   private:
    friend class ServeBudget;
    Share(ServeBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}
    ServeBudget* budget_;
    uint64_t bytes_;
  };

  explicit ServeBudget(const Limits& limits) : limits_(limits), rate_(limits.bytes_per_second) {}

  // Returns none if an image of so many bytes may not be served now.
  std::optional<Share> Take(uint64_t bytes, MonotonicTime now) {
    MutexLock lock(&mu_);
    const bool full = streams_ >= limits_.streams ||
                      (pinned_bytes_ > 0 && pinned_bytes_ + bytes > limits_.pinned_bytes);
    if (limits_.bytes_per_second == 0 || full || rate_.Wait(now).has_value()) return std::nullopt;
    ++streams_;
    pinned_bytes_ += bytes;
    return Share(this, bytes);
  }
  bool serves() const { return limits_.bytes_per_second > 0; }

 private:
  void Charge(uint64_t bytes, MonotonicTime now) {
    MutexLock lock(&mu_);
    rate_.saved(now);  // what came meanwhile is saved first
    rate_.Take(bytes);
  }
  void End(uint64_t bytes) {
    MutexLock lock(&mu_);
    --streams_;
    pinned_bytes_ -= bytes;
  }

  const Limits limits_;
  Mutex mu_;
  TokenBucket rate_ ABSL_GUARDED_BY(mu_);
  uint32_t streams_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t pinned_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kvkeep
