// Rates: how many chunks and payload bytes one tenant may ask for per second. Chunks are the keys x
// parts of a lookup, a touch or a delete, and each chunk that is put or read. Bytes are those that
// are put, read, or leased with their places. A tenant is one trust domain: its sessions share its
// rates, first come, first served.
//
// A call that finds a token goes on, however much it takes. A large call overdraws, and the next
// call is refused until that is paid off. Calls are refused at once; nothing queues here.
//
// It is a plain value. The store's lock protects it.
#pragma once

#include <absl/status/status.h>

#include <cstdint>

#include "tiers/base/clock.h"
#include "tiers/base/token_bucket.h"
#include "tiers/store/counters.h"

namespace kvkeep::store_internal {

class Rates {
 public:
  // A rate of 0 means no limit.
  Rates(uint64_t keys_per_second, uint64_t bytes_per_second)
      : keys_(keys_per_second), bytes_(bytes_per_second) {}

  // A rate that stays the same keeps its debt. A rate that changes begins without debt.
  void SetRates(uint64_t keys_per_second, uint64_t bytes_per_second) {
    if (keys_per_second != this->keys_per_second()) keys_ = TokenBucket(keys_per_second);
    if (bytes_per_second != this->bytes_per_second()) bytes_ = TokenBucket(bytes_per_second);
  }
  bool limited() const { return keys_.limited() || bytes_.limited(); }
  // Returns OK if a call may go on that asks for keys, moves bytes, or both. ResourceExhausted
  // names the limit and says when to come back, and is counted.
  absl::Status Ask(bool keys, bool bytes, MonotonicTime now, TenantCounters& counters);
  void TakeKeys(uint64_t keys) { keys_.Take(keys); }
  void TakeBytes(uint64_t bytes) { bytes_.Take(bytes); }

  uint64_t keys_per_second() const { return keys_.per_second(); }
  uint64_t bytes_per_second() const { return bytes_.per_second(); }

 private:
  TokenBucket keys_, bytes_;
};

}  // namespace kvkeep::store_internal
