// Rates: what one tenant may ask of the store in a second: chunks (keys x parts of a lookup, a
// touch, a delete; each chunk put or read), and payload bytes (put; read, or leased with its
// places). Of both each of its sessions that asks has a share (shared_rate.h).
//
// A call that finds a token goes on, whatever it takes: a large one overdraws, and the next waits
// until that is paid off. What is refused is refused at once; nothing queues here.
//
// A plain session of the core's state: the core's lock protects it.
#pragma once

#include <absl/status/status.h>

#include <cstdint>

#include "tiers/base/clock.h"
#include "tiers/store/counters.h"
#include "tiers/store/shared_rate.h"

namespace kvkeep::store_internal {

class Rates {
 public:
  // One session's share of each rate.
  struct SessionShares {
    SharedRate::SessionShare keys, bytes;
  };

  // 0: no limit.
  Rates(uint64_t keys_per_second, uint64_t bytes_per_second)
      : keys_(keys_per_second), bytes_(bytes_per_second) {}

  void SetRates(uint64_t keys_per_second, uint64_t bytes_per_second) {
    keys_.SetRate(keys_per_second);
    bytes_.SetRate(bytes_per_second);
  }
  bool limited() const { return keys_.limited() || bytes_.limited(); }
  // Whether a call of that session may go on that asks for keys, moves bytes, or both.
  // ResourceExhausted names the limit and says when to come back; counted.
  absl::Status Ask(SessionShares& session, bool keys, bool bytes, MonotonicTime now,
                   TenantCounters& counters);
  // Null: of a session that is closed by now.
  void TakeKeys(SessionShares* session, uint64_t keys) {
    keys_.Take(session == nullptr ? nullptr : &session->keys, keys);
  }
  void TakeBytes(SessionShares* session, uint64_t bytes) {
    bytes_.Take(session == nullptr ? nullptr : &session->bytes, bytes);
  }

  uint64_t keys_per_second() const { return keys_.per_second(); }
  uint64_t bytes_per_second() const { return bytes_.per_second(); }

 private:
  SharedRate keys_, bytes_;
};

}  // namespace kvkeep::store_internal
