// FleetEpoch: a number that is part of the names of all objects of a fleet (object_name.h). `kvkeep
// clear --g4` makes it grow. Then nodes ask for other names than those of all objects there: these
// are absent at once, and expire.
//
// The number lies in the same place, in one object for each of the fleet's keys, sealed by that
// key. Each node reads it every kEvery and takes the largest number that it reads; it never takes a
// smaller one. An absent object says 0, and 0 gives the names that there were before epochs.
//
// A node repairs what it reads: an object that says less than the node knows, is gone, is damaged,
// or becomes so old that a lifecycle rule may take it, is written again. A node that may not write
// there tries again after kRefusedFor.
//
// A number that was not read for kCertainFor may have grown. Then certain() is false, and G4 is
// taken to be away: so each node that serves from G4 has a new number within kCertainFor.
//
// Tick comes from one thread, about once a second. All else is thread-safe. No lock is held over a
// call of the store's or a callback.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"
#include "tiers/crypt/secret.h"
#include "tiers/objects/object_store.h"

namespace kvkeep {

struct FleetEpochCounters {
  uint64_t reads = 0, failed_reads = 0;    // of one object
  uint64_t writes = 0, failed_writes = 0;
  uint64_t bad_objects = 0;                // read, and written by no node of this fleet
};

class FleetEpoch {
 public:
  using Done = absl::AnyInvocable<void(absl::Status) &&>;

  static constexpr std::chrono::seconds kEvery{15}, kAgain{2}, kAnswerWithin{10}, kCertainFor{55};
  static constexpr std::chrono::hours kRefusedFor{1}, kRenewedAfter{24};
  static constexpr size_t kObjectBytes = 48;  // magic, number, HMAC-SHA256 of both

  // `keys`: FleetKeys::epoch of today's key, then of earlier keys. `store` and `clock` outlive
  // this; the store has answered all before this is destroyed.
  FleetEpoch(std::vector<Secret> keys, ObjectStore* store, Clock* clock);

  // Reads the number when that is due.
  void Tick();
  // Begins a new epoch: reads the number, writes a larger one and reads it back. OK: this node has
  // it, and every node has it within kCertainFor. Unavailable, or the store's refusal: this node
  // keeps its number unless it read a larger one; begin again.
  void Begin(Done done);
  // Waits at most `within` until a read has ended, well or not. REQUIRES: Tick was called.
  void AwaitFirst(std::chrono::milliseconds within);

  uint64_t number() const { return number_.load(std::memory_order_acquire); }
  bool certain() const;
  // Returns why the last read failed; the code is empty if it did not fail.
  ObjectError error() const;
  FleetEpochCounters counters() const;

  // Returns the name of the object that has a key's number.
  static std::string NameOf(const Secret& key);

 private:
  struct Sink;
  struct Round;  // one read of all objects
  using RoundEnd = std::function<void(Round&)>;

  void StartRound(RoundEnd ended);
  void OnRead(const std::shared_ptr<Round>& round, size_t key, const ObjectAnswer& answer);
  void TakeRound(const Round& round);
  void Repair(const Round& round);
  void WriteLarger(const Round& round, Done done);
  // Writes `number` under those keys; with `if_absent`, only where no object is.
  void Write(const std::vector<size_t>& keys, uint64_t number, bool if_absent, Done done);

  const std::vector<Secret> keys_;
  ObjectStore& store_;
  Clock& clock_;
  std::atomic<uint64_t> number_{0};  // raised only by what was read
  mutable Mutex mu_;
  CondVar answered_;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;  // by Tick
  bool tried_ ABSL_GUARDED_BY(mu_) = false;    // a round has ended
  MonotonicTime next_ ABSL_GUARDED_BY(mu_){0};
  MonotonicTime certain_until_ ABSL_GUARDED_BY(mu_){0};
  MonotonicTime no_repairs_until_ ABSL_GUARDED_BY(mu_){0};
  ObjectError error_ ABSL_GUARDED_BY(mu_);
  FleetEpochCounters counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
