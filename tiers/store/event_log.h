// EventLog: the last `entries` events. Each reader remembers how far it has read.
//
// It has memory only while it is on. The caller of TurnOn brings the memory, and the caller of
// TurnOff takes it, so that none is allocated or freed under the store's lock, which protects the
// log. Append overwrites the oldest event and allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/store/events.h"

namespace kvkeep::store_internal {

class EventLog {
 public:
  using Memory = std::unique_ptr<ChunkEvent[]>;

  // REQUIRES: entries > 0.
  explicit EventLog(uint64_t entries) : entries_(entries) { KVKEEP_CHECK(entries > 0); }

  bool on() const { return memory_ != nullptr; }
  // Returns memory for TurnOn. Do not call it under the lock.
  static Memory MakeMemory(uint64_t entries) { return std::make_unique<ChunkEvent[]>(entries); }
  void TurnOn(Memory memory) {
    KVKEEP_CHECK(!on() && memory != nullptr);
    memory_ = std::move(memory);
  }
  Memory TurnOff() {
    Lose();
    return std::move(memory_);
  }

  // REQUIRES: on().
  void Append(const ChunkEvent& event) {
    KVKEEP_CHECK(on());
    memory_[next_++ % entries_] = event;
    if (next_ - first_ > entries_) first_ = next_ - entries_;
  }
  // Makes every reader miss an event.
  void Lose() { first_ = ++next_; }

  // Events numbered [first, next) are there. A reader that wants an earlier one has lost events.
  uint64_t first() const { return first_; }
  uint64_t next() const { return next_; }
  const ChunkEvent& at(uint64_t number) const {
    KVKEEP_CHECK(number >= first_ && number < next_);
    return memory_[number % entries_];
  }

 private:
  const uint64_t entries_;
  Memory memory_;
  uint64_t first_ = 0, next_ = 0;
};

}  // namespace kvkeep::store_internal
