// RequestTimes: counts how requests end and how long they take, by operation and listener, and
// reports slow ones.
//
//   const MonotonicTime began = times->Now();
//   ...
//   times->Note({Listener::kLocal, Operation::kGet, status.code()}, began, [&] { return ...; });
//                                                                     who: only asked when slow
//
// A request's time depends on its kind. Small calls, and gets by the local path, whose bytes are
// read in place: from the message to its answer. Get and Put by gRPC and by the bulk door: from the
// call to its end, including the client's part. Puts by the local path: until the last chunk is
// stored, or safe if the put is durable. A put in parts is sent before its bytes are there: its
// time includes the client's part too, and it can be slow while the daemon only waits.
//
// Thread-safe; but only one thread notes requests of the local path.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

#include "tiers/base/clock.h"
#include "tiers/base/histogram.h"

namespace kvkeep {

enum class Listener { kGrpc, kLocal, kBulk };
enum class Operation { kLookup, kGet, kPut, kTouch, kPrefetch, kRelease, kDelete, kSession };
inline constexpr size_t kListeners = 3, kOperations = 8;
inline constexpr const char* kListenerNames[kListeners] = {"grpc", "local", "bulk"};
inline constexpr const char* kOperationNames[kOperations] = {
    "lookup", "get", "put", "touch", "prefetch", "release", "delete", "session"};

// Returns whether requests of this kind come by this listener.
constexpr bool ServesOperation(Listener listener, Operation operation) {
  return listener != Listener::kBulk || operation == Operation::kGet ||
         operation == Operation::kPut;
}

// The codes that requests are counted by; any other code counts as the last.
inline constexpr std::array<absl::StatusCode, 13> kRequestCodes = {
    absl::StatusCode::kOk,
    absl::StatusCode::kCancelled,
    absl::StatusCode::kInvalidArgument,
    absl::StatusCode::kDeadlineExceeded,
    absl::StatusCode::kNotFound,
    absl::StatusCode::kPermissionDenied,
    absl::StatusCode::kUnauthenticated,
    absl::StatusCode::kResourceExhausted,
    absl::StatusCode::kFailedPrecondition,
    absl::StatusCode::kInternal,
    absl::StatusCode::kUnavailable,
    absl::StatusCode::kDataLoss,
    absl::StatusCode::kUnknown};

// A request that ended: its listener, operation and status.
struct EndedRequest {
  Listener listener;
  Operation operation;
  absl::StatusCode code = absl::StatusCode::kOk;
};

// The requester, and how much it asked for; never which keys.
struct Requester {
  std::string peer;
  size_t keys = 0;  // 0: not known
};
struct SlowRequest {
  Listener listener;
  Operation operation;
  std::chrono::nanoseconds took;
  Requester requester;
};

class RequestTimes {
 public:
  explicit RequestTimes(const Clock* clock) : clock_(clock) {}

  // Sets the function that is told of slow requests, on the thread that noted them. Call before the
  // first request.
  void OnSlow(absl::AnyInvocable<void(const SlowRequest&) const> tell) { tell_ = std::move(tell); }
  // Sets the time from which a request is slow; 0: none is. May be called at any time.
  void SetSlow(std::chrono::nanoseconds from) {
    slow_from_.store(from.count(), std::memory_order_relaxed);
  }

  MonotonicTime Now() const { return clock_->Now(); }
  void Note(const EndedRequest& ended, MonotonicTime began,
            absl::FunctionRef<Requester()> requester) {
    const auto [listener, operation, code] = ended;
    const std::chrono::nanoseconds took = clock_->Now() - began;
    const auto value = static_cast<uint64_t>(took.count() > 0 ? took.count() : 0);
    Histogram& histogram = histograms_[Index(listener, operation)];
    listener == Listener::kLocal ? histogram.RecordAlone(value) : histogram.Record(value);
    std::atomic<uint64_t>& count = counts_[Index(listener, operation)][CodeIndex(code)];
    if (listener == Listener::kLocal) {  // nobody else writes there
      count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    } else {
      count.fetch_add(1, std::memory_order_relaxed);
    }
    const int64_t slow_from = slow_from_.load(std::memory_order_relaxed);
    if (slow_from == 0 || took.count() < slow_from || !tell_) return;
    tell_({listener, operation, took, requester()});
  }

  HistogramCounts counts(Listener listener, Operation operation) const {
    return histograms_[Index(listener, operation)].counts();
  }
  // `code`: index in kRequestCodes.
  uint64_t count(Listener listener, Operation operation, size_t code) const {
    return counts_[Index(listener, operation)][code].load(std::memory_order_relaxed);
  }

 private:
  static size_t Index(Listener listener, Operation operation) {
    return static_cast<size_t>(listener) * kOperations + static_cast<size_t>(operation);
  }

  static size_t CodeIndex(absl::StatusCode code) {
    size_t index = 0;
    while (index + 1 < kRequestCodes.size() && kRequestCodes[index] != code) ++index;
    return index;
  }

  const Clock* const clock_;
  std::array<Histogram, kListeners * kOperations> histograms_;
  std::array<std::array<std::atomic<uint64_t>, kRequestCodes.size()>, kListeners * kOperations>
      counts_{};
  std::atomic<int64_t> slow_from_{0};
  absl::AnyInvocable<void(const SlowRequest&) const> tell_;
};

}  // namespace kvkeep
