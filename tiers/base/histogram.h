// Histogram: counts values by size. For durations and ages, in nanoseconds.
//
//   Histogram took(kDurationBounds);
//   took.Record(nanoseconds);                        any thread, some nanoseconds, never waits
//   const HistogramCounts now = took.counts();       a copy, for whoever shows it
//
// The buckets are fixed at compile time and are those that are shown, so a count in a metric is
// exact: log-linear steps of 1, 2 and 5 a decade for durations, round human units for ages. Memory
// is fixed: 256 bytes. Thread-safe; numbers read together may be a few values apart.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvkeep {

// The buckets' upper bounds, each inclusive, ascending. Above the last there is one bucket more.
class HistogramBounds {
 public:
  static constexpr size_t kMost = 28;

  template <size_t n>
  constexpr explicit HistogramBounds(const uint64_t (&bounds)[n]) : size_(n) {
    static_assert(n >= 1 && n <= kMost);
    for (size_t i = 0; i < n; ++i) bounds_[i] = bounds[i];
    for (size_t width = 0, i = 0; width < first_.size(); ++width) {
      const uint64_t least = width == 0 ? 0 : uint64_t{1} << (width - 1);
      while (i < n && bounds[i] < least) ++i;
      first_[width] = static_cast<uint8_t>(i);
    }
  }

  constexpr size_t size() const { return size_; }
  constexpr uint64_t bound(size_t i) const { return bounds_[i]; }
  constexpr bool ascending() const {
    for (size_t i = 1; i < size_; ++i) {
      if (bounds_[i - 1] >= bounds_[i]) return false;
    }
    return true;
  }
  // Returns the value's bucket; size() is the last. One look by its magnitude, then a step or two.
  constexpr size_t Find(uint64_t value) const {
    size_t i = first_[static_cast<size_t>(std::bit_width(value))];
    while (i < size_ && value > bounds_[i]) ++i;
    return i;
  }

 private:
  std::array<uint64_t, kMost> bounds_{};
  std::array<uint8_t, 65> first_{};  // by bit width: the first bucket for values of it
  size_t size_;
};

namespace histogram_internal {
inline constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;
inline constexpr uint64_t kMinute = 60 * kSecond, kHour = 60 * kMinute, kDay = 24 * kHour;
}  // namespace histogram_internal

// From a call of the local path to a hung disk: 100 ns to a minute.
inline constexpr HistogramBounds kDurationBounds({100,
                                                  200,
                                                  500,
                                                  1 * histogram_internal::kUs,
                                                  2 * histogram_internal::kUs,
                                                  5 * histogram_internal::kUs,
                                                  10 * histogram_internal::kUs,
                                                  20 * histogram_internal::kUs,
                                                  50 * histogram_internal::kUs,
                                                  100 * histogram_internal::kUs,
                                                  200 * histogram_internal::kUs,
                                                  500 * histogram_internal::kUs,
                                                  1 * histogram_internal::kMs,
                                                  2 * histogram_internal::kMs,
                                                  5 * histogram_internal::kMs,
                                                  10 * histogram_internal::kMs,
                                                  20 * histogram_internal::kMs,
                                                  50 * histogram_internal::kMs,
                                                  100 * histogram_internal::kMs,
                                                  200 * histogram_internal::kMs,
                                                  500 * histogram_internal::kMs,
                                                  1 * histogram_internal::kSecond,
                                                  2 * histogram_internal::kSecond,
                                                  5 * histogram_internal::kSecond,
                                                  10 * histogram_internal::kSecond,
                                                  20 * histogram_internal::kSecond,
                                                  60 * histogram_internal::kSecond});
static_assert(kDurationBounds.ascending());

// How long chunks live: 100 ms to a month.
inline constexpr HistogramBounds kAgeBounds(
    {100 * histogram_internal::kMs, 1 * histogram_internal::kSecond,
     5 * histogram_internal::kSecond, 15 * histogram_internal::kSecond,
     1 * histogram_internal::kMinute, 5 * histogram_internal::kMinute,
     15 * histogram_internal::kMinute, 30 * histogram_internal::kMinute,
     1 * histogram_internal::kHour, 2 * histogram_internal::kHour, 6 * histogram_internal::kHour,
     12 * histogram_internal::kHour, 1 * histogram_internal::kDay, 2 * histogram_internal::kDay,
     7 * histogram_internal::kDay, 30 * histogram_internal::kDay});
static_assert(kAgeBounds.ascending());

// The contents of a histogram at one moment. A plain value.
struct HistogramCounts {
  const HistogramBounds* bounds = nullptr;  // null: of no histogram, all zero
  std::array<uint64_t, HistogramBounds::kMost + 1> counts{};
  uint64_t sum = 0;  // of all values

  uint64_t count() const {
    uint64_t all = 0;
    for (const uint64_t one : counts) all += one;
    return all;
  }
};

class alignas(64) Histogram {
 public:
  Histogram() : Histogram(kDurationBounds) {}
  explicit Histogram(const HistogramBounds& bounds) : bounds_(&bounds) {}  // which live for ever
  Histogram(const Histogram&) = delete;
  Histogram& operator=(const Histogram&) = delete;

  void Record(uint64_t value) {
    counts_[bounds_->Find(value)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }
  // The same without an atomic read-modify-write. REQUIRES: nobody else records meanwhile: one
  // thread does, or a lock guards it.
  void RecordAlone(uint64_t value) {
    std::atomic<uint64_t>& count = counts_[bounds_->Find(value)];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    sum_.store(sum_.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }

  HistogramCounts counts() const {
    HistogramCounts now{.bounds = bounds_};
    for (size_t i = 0; i < counts_.size(); ++i) {
      now.counts[i] = counts_[i].load(std::memory_order_relaxed);
    }
    now.sum = sum_.load(std::memory_order_relaxed);
    return now;
  }

 private:
  const HistogramBounds* const bounds_;
  std::array<std::atomic<uint64_t>, HistogramBounds::kMost + 1> counts_{};
  std::atomic<uint64_t> sum_{0};
};

}  // namespace kvkeep
