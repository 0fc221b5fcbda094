// CompletionQueue: takes the completions of asynchronous calls, with an event fd that is readable
// while completions wait. Implements kvkeep_queue (kvkeep.h).
//
// A call reserves its place before it starts and fills it when it ends, so that there is room for
// every completion. Shared by the handle and the calls in flight. Thread-safe.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>

#include "client/c/kvkeep.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

class CompletionQueue {
 public:
  static absl::StatusOr<std::shared_ptr<CompletionQueue>> Create(uint32_t capacity);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // RESOURCE_EXHAUSTED: `capacity` calls are in flight or wait to be polled.
  absl::Status Reserve();
  void Unreserve();                               // the call was refused
  void Complete(const kvkeep_completion& ended);  // the call has ended

  uint32_t Poll(kvkeep_completion* out, uint32_t max);
  uint32_t Wait(kvkeep_completion* out, uint32_t max, std::chrono::milliseconds timeout);
  int fd() const { return fd_; }
  uint32_t in_flight() const;  // reserved and not completed

 private:
  CompletionQueue(uint32_t capacity, int fd) : capacity_(capacity), fd_(fd) {}
  void Signal();

  const uint32_t capacity_;
  const int fd_;  // eventfd

  mutable Mutex mu_;
  uint32_t in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<kvkeep_completion> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client

struct kvkeep_queue {
  std::shared_ptr<kvkeep::client::CompletionQueue> impl;
};
