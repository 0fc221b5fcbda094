// RequestTimes: how long requests take, by operation and door, and which of them are slow.
//
//   const MonotonicTime began = times->Now();
//   ...
//   times->Note(Door::kLocal, Operation::kGet, began, [&] { return ...; });   only asked when slow
//
// What a request's time is: of small calls from the message to its answer; of a get by the local
// path likewise, as the bytes are read in place; of the streams Get and Put of gRPC from the call
// to its end, with the client's part in it; of a put by the local path until the last chunk is
// stored, or safe if it is durable.
//
// Thread-safe; but only one thread notes requests of the local path.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

#include "tiers/base/clock.h"
#include "tiers/base/histogram.h"

namespace kvkeep {

enum class Door { kGrpc, kLocal };
enum class Operation { kLookup, kGet, kPut, kTouch, kPrefetch, kRelease, kDelete, kSession };
inline constexpr size_t kDoors = 2, kOperations = 8;
inline constexpr const char* kDoorNames[kDoors] = {"grpc", "local"};
inline constexpr const char* kOperationNames[kOperations] = {
    "lookup", "get", "put", "touch", "prefetch", "release", "delete", "session"};

// Who asked, and for how much; never for what.
struct Requester {
  std::string peer;
  size_t keys = 0;  // 0: not known
};
struct SlowRequest {
  Door door;
  Operation operation;
  std::chrono::nanoseconds took;
  Requester requester;
};

class RequestTimes {
 public:
  explicit RequestTimes(const Clock* clock) : clock_(clock) {}

  // Who is told of slow requests, on the thread that noted them. Before the first request.
  void OnSlow(absl::AnyInvocable<void(const SlowRequest&) const> tell) { tell_ = std::move(tell); }
  // From how long on a request is slow; 0: none is. Any time.
  void SetSlow(std::chrono::nanoseconds from) {
    slow_from_.store(from.count(), std::memory_order_relaxed);
  }

  MonotonicTime Now() const { return clock_->Now(); }
  void Note(Door door, Operation operation, MonotonicTime began,
            absl::FunctionRef<Requester()> requester) {
    const std::chrono::nanoseconds took = clock_->Now() - began;
    const auto value = static_cast<uint64_t>(took.count() > 0 ? took.count() : 0);
    Histogram& histogram = histograms_[Index(door, operation)];
    door == Door::kLocal ? histogram.RecordAlone(value) : histogram.Record(value);
    const int64_t slow_from = slow_from_.load(std::memory_order_relaxed);
    if (slow_from == 0 || took.count() < slow_from || !tell_) return;
    tell_({door, operation, took, requester()});
  }

  HistogramCounts counts(Door door, Operation operation) const {
    return histograms_[Index(door, operation)].counts();
  }

 private:
  static size_t Index(Door door, Operation operation) {
    return static_cast<size_t>(door) * kOperations + static_cast<size_t>(operation);
  }

  const Clock* const clock_;
  std::array<Histogram, kDoors * kOperations> histograms_;
  std::atomic<int64_t> slow_from_{0};
  absl::AnyInvocable<void(const SlowRequest&) const> tell_;
};

}  // namespace kvkeep
