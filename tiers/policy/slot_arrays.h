// SlotArrays: arrays with an element for each ChunkSlot, which grow together.
//
// The store notes things of a slot in several places: the chunk itself, its node in the policy of
// either tier. The owner of the slots calls Use as it gives them out; then memory for the next ones
// is touched ahead in all of the arrays (growing_memory.h), and no first use of a slot waits for
// the kernel. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "tiers/base/check.h"
#include "tiers/base/growing_memory.h"
#include "tiers/policy/chunk_slot.h"

namespace kvkeep {

class SlotArrays {
 public:
  // Slots are below `max_slots`. `toucher`, if there is one, must outlive it.
  explicit SlotArrays(uint32_t max_slots, MemoryToucher* toucher = nullptr)
      : max_slots_(max_slots), toucher_(toucher) {}

  // Adds an array, all zeros, that lives as long as this object.
  template <typename T>
  T* Add() {
    Array& array = arrays_.emplace_back(uint64_t{max_slots_} * sizeof(T), sizeof(T), toucher_);
    array.memory.Use(end_ * array.element);
    return reinterpret_cast<T*>(array.memory.data());
  }
  // Notes that slots below `end` are given out.
  void Use(uint32_t end) {
    KVKEEP_CHECK(end <= max_slots_);
    end_ = end;
    for (Array& array : arrays_) array.memory.Use(end_ * array.element);
  }
  // Brings the slot's elements of all arrays into the CPU's caches.
  void Prefetch(ChunkSlot slot) const {
    for (const Array& array : arrays_) {
      const std::byte* const first = array.memory.data() + slot.value() * array.element;
      for (uint64_t at = 0; at < array.element; at += kCacheLine) __builtin_prefetch(first + at);
      __builtin_prefetch(first + array.element - 1);
    }
  }

  uint32_t max_slots() const { return max_slots_; }
  // Returns the bytes that the toucher was asked for so far, for all arrays.
  uint64_t asked_bytes() const {
    uint64_t bytes = 0;
    for (const Array& array : arrays_) bytes += array.memory.asked();
    return bytes;
  }
  MemoryToucher* toucher() const { return toucher_; }

 private:
  static constexpr uint64_t kCacheLine = 64;
  struct Array {
    Array(uint64_t bytes, uint64_t element_bytes, MemoryToucher* toucher)
        : memory(bytes, toucher), element(element_bytes) {}
    GrowingMemory memory;
    const uint64_t element;  // bytes
  };

  const uint32_t max_slots_;
  MemoryToucher* const toucher_;
  uint64_t end_ = 0;
  std::deque<Array> arrays_;  // they never move
};

}  // namespace kvkeep
