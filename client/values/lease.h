// Lease: the promise that the chunks leased by a lookup stay readable: the chunks of its leading
// keys, or all chunks that were there (LeaseMode).
//
// Move-only; released on destruction (in the background, best effort: the session's end releases it
// in any case). One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "client/values/types.h"

namespace kvkeep::client {

class SplitLease;

// The state that a transport keeps of a lease that it granted. Thread-compatible.
class LeaseState {
 public:
  virtual ~LeaseState() = default;
  virtual bool alive() const = 0;  // its session is open
  virtual void Shrink(uint32_t keep_keys) = 0;
  virtual Path path() const = 0;  // of the transport that granted it
  // Returns not null if it consists of several leases of the daemon
  // (client/transport/split_lease.h).
  virtual const SplitLease* split() const { return nullptr; }
};

class [[nodiscard]] Lease {
 public:
  Lease() = default;
  ~Lease() { Release(); }
  Lease(Lease&& other) noexcept = default;
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      Release();
      state_ = std::move(other.state_);
      keys_ = other.keys_;
      bytes_ = other.bytes_;
    }
    return *this;
  }

  // Returns false if nothing was leased, it was released, or its session is over.
  bool alive() const { return state_ != nullptr && state_->alive(); }
  uint32_t keys() const { return state_ == nullptr ? 0 : keys_; }
  uint64_t bytes() const { return state_ == nullptr ? 0 : bytes_; }  // as leased by the lookup
  // Keeps the chunks of the first `keep_keys` keys and gives the others back, in the
  // background. A get under way misses the chunks that are given back.
  void Shrink(uint32_t keep_keys) {
    if (state_ == nullptr || keep_keys >= keys_) return;
    state_->Shrink(keep_keys);
    keys_ = keep_keys;
    if (keep_keys == 0) state_.reset();
  }
  void Release() { Shrink(0); }

  // For transports.
  Lease(std::unique_ptr<LeaseState> state, uint32_t keys, uint64_t bytes)
      : state_(std::move(state)), keys_(keys), bytes_(bytes) {}
  const LeaseState* state() const { return state_.get(); }
  LeaseState* state() { return state_.get(); }
  // Takes the state, and leaves an empty lease behind. The caller releases the promise.
  std::unique_ptr<LeaseState> TakeState() && { return std::move(state_); }

 private:
  std::unique_ptr<LeaseState> state_;
  uint32_t keys_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace kvkeep::client
