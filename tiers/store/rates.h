// Rates: what one tenant may ask of the store in a second: chunks (keys x parts of a lookup, a
// touch, a delete; each chunk put or read), and payload bytes (put; read, or leased with its
// places). A tenant is one trust domain: its sessions share them as they come.
//
// A call that finds a token goes on, whatever it takes: a large one overdraws, and the next waits
// until that is paid off. What is refused is refused at once; nothing queues here.
//
// A plain value: the store's lock protects it.
#pragma once

#include <absl/status/status.h>

#include <cstdint>

#include "tiers/base/clock.h"
#include "tiers/base/token_bucket.h"
#include "tiers/store/counters.h"

namespace kvkeep::store_internal {

class Rates {
 public:
  // 0: no limit.
  Rates(uint64_t keys_per_second, uint64_t bytes_per_second)
      : keys_(keys_per_second), bytes_(bytes_per_second) {}

  // A rate that stays keeps what is owed of it. A rate that changes begins with nothing owed.
  void SetRates(uint64_t keys_per_second, uint64_t bytes_per_second) {
    if (keys_per_second != this->keys_per_second()) keys_ = TokenBucket(keys_per_second);
    if (bytes_per_second != this->bytes_per_second()) bytes_ = TokenBucket(bytes_per_second);
  }
  bool limited() const { return keys_.limited() || bytes_.limited(); }
  // Whether a call may go on that asks for keys, moves bytes, or both. ResourceExhausted names the
  // limit and says when to come back; counted.
  absl::Status Ask(bool keys, bool bytes, MonotonicTime now, TenantCounters& counters);
  void TakeKeys(uint64_t keys) { keys_.Take(keys); }
  void TakeBytes(uint64_t bytes) { bytes_.Take(bytes); }

  uint64_t keys_per_second() const { return keys_.per_second(); }
  uint64_t bytes_per_second() const { return bytes_.per_second(); }

 private:
  TokenBucket keys_, bytes_;
};

}  // namespace kvkeep::store_internal
