// ConfirmQueue: the chunks of one device whose headers are to be read before anybody is told of
// them (confirmer.h). It knows which is next, which could not be read and is tried again, and how
// many are being read.
//
// Owned by the device's tier; the store's lock protects it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/policy/eviction_policy.h"

namespace kvkeep::store_internal {

class ConfirmQueue {
 public:
  static constexpr uint32_t kMostAtOnce = 32;  // reads
  // How often one header is read, kAgain apart: a drive that resets is away for seconds.
  static constexpr uint32_t kMostTries = 30;
  static constexpr std::chrono::seconds kAgain{1};

  struct Entry {
    ChunkSlot slot;
    uint32_t failures = 0;  // of reads of its header
  };

  void Add(ChunkSlot slot) { waiting_.push_back({slot}); }
  void AddFirst(ChunkSlot slot) { waiting_.push_front({slot}); }
  // Has a header read again later that could not be read, through no fault of its own, or that may
  // be tried once more.
  void AddAgain(const Entry& entry, MonotonicTime now) {
    if (again_.empty()) again_at_ = now + kAgain;
    again_.push_back(entry);
  }
  // Entries whose time has come wait again, behind all others.
  void TakeDue(MonotonicTime now) {
    if (again_.empty() || now < again_at_) return;
    waiting_.insert(waiting_.end(), again_.begin(), again_.end());
    again_.clear();
  }
  // Returns the next entry; none: none waits, or as many are being read as may be.
  std::optional<Entry> Next() {
    if (!may_begin()) return std::nullopt;
    const Entry next = waiting_.front();
    waiting_.pop_front();
    return next;
  }
  void Begin() {
    KVKEEP_CHECK(reading_ < kMostAtOnce);
    ++reading_;
  }
  void End() {
    KVKEEP_CHECK(reading_ > 0);
    --reading_;
  }
  // A read failed. Returns whether the header may be read once more.
  static bool TryAgain(Entry& entry) { return ++entry.failures < kMostTries; }

  uint32_t reading() const { return reading_; }
  bool may_begin() const { return !waiting_.empty() && reading_ < kMostAtOnce; }
  bool empty() const { return waiting_.empty() && again_.empty() && reading_ == 0; }
  // REQUIRES: none is being read.
  void Clear() {
    KVKEEP_CHECK(reading_ == 0);
    waiting_.clear();
    again_.clear();
  }

 private:
  std::deque<Entry> waiting_, again_;
  MonotonicTime again_at_{0};
  uint32_t reading_ = 0;
};

}  // namespace kvkeep::store_internal
