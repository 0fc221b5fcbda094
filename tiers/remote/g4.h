// G4: the fourth tier as a daemon has it: a RemoteSource over a bucket or a shared directory, with
// the keys, credentials and threads that it needs.
//
// Open connects to nothing; the first Tick begins to ask whether the store serves. A server that is
// away, or takes no requests of ours, is not an error: health() says so, and what to do.
//
// The owner calls Tick about once a second, from one thread; all else is thread-safe. The
// destructor has answered all that the source was asked.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/random.h"
#include "tiers/crypt/key_ring.h"
#include "tiers/objects/stoppable_store.h"
#include "tiers/remote/bucket_source.h"
#include "tiers/remote/fleet_epoch.h"
#include "tiers/remote/health_watch.h"
#include "tiers/remote/keyed_source.h"
#include "tiers/remote/object_place.h"

namespace kvkeep {

struct G4Options {
  ObjectPlace place;
  std::string fleet_name;
  uint64_t epoch = 0;
  uint64_t probes_per_second = 0;  // 0: no limit
  std::vector<std::string> tenants;  // which have a data key each
};

// The secrets that users of one G4 share. All are different.
struct G4Secrets {
  Secret fleet;
  std::vector<Secret> previous;           // earlier ones of the fleet, asked in this order
  std::map<std::string, Secret> tenants;  // by name; in place of the fleet's, for their chunks
};

// State for people, and counters.
struct G4Snapshot {
  std::string where;  // the bucket's address, or the directory
  ObjectStoreHealth health;
  BucketSourceCounters source;  // under all keys
  PreviousKeyCounters previous_keys;
  HealthWatchCounters checks;
  uint64_t epoch = 0;  // FleetEpoch's
  FleetEpochCounters epochs;
  std::optional<S3StoreCounters> requests;          // of a bucket
  std::optional<KeyCounters> keys;                  // likewise
  std::optional<DirectoryStoreCounters> directory;  // of a directory
};

class G4 {
 public:
  // InvalidArgument names the option, NotFound the credentials that were looked for. `clock` and
  // `random` outlive it.
  static absl::StatusOr<std::unique_ptr<G4>> Open(const G4Options& options,
                                                  const G4Secrets& secrets, Clock* clock,
                                                  RandomSource* random);
  ~G4();
  G4(const G4&) = delete;
  G4& operator=(const G4&) = delete;

  RemoteSource* source() { return source_.get(); }
  // Returns the keys that encrypt payloads.
  const KeyRing* keys() const { return keys_.get(); }
  // Asks whether the store serves, when that is not known. Returns news for people, if any, which
  // health() says, too.
  std::optional<ObjectStoreHealth> Tick();
  // Returns news for people of the bucket's keys, each once: why they could not be renewed, so that
  // the old ones stay in use, or that they are renewed again (OK).
  std::optional<absl::Status> NewsOfKeys();
  void SetProbesPerSecond(uint64_t probes) { source_->SetProbesPerSecond(probes); }
  // Takes all that lies there out of the fleet's sight (FleetEpoch::Begin).
  void BeginEpoch(absl::AnyInvocable<void(absl::Status) &&> done) {
    epoch_->Begin(std::move(done));
  }
  // Asks for the epoch, and waits at most `within` until it is known, or cannot be known now. Call
  // it before the first Tick. Nothing is readable or writable until the epoch is known.
  void AwaitEpoch(std::chrono::milliseconds within);
  // Soon answers all requests under way, and every later one.
  void Stop() { store_->Stop(); }

  ObjectStoreHealth health() const;
  BucketSourceCounters counters() const { return source_->counters(); }
  G4Snapshot snapshot() const;
  // For people: the bucket's address or the directory.
  const std::string& where() const { return place_.where; }

 private:
  G4() = default;

  std::unique_ptr<KeyRing> keys_;
  // Destroyed from the last to the first: the source, with its store, before the things it uses.
  OpenedPlace place_;  // its store is the source's
  std::unique_ptr<HealthWatch> watch_;
  std::unique_ptr<FleetEpoch> epoch_;
  bool was_certain_ = true;          // as people were told
  absl::Status keys_told_;           // that they could not be renewed
  StoppableStore* store_ = nullptr;  // the source's, above that
  std::unique_ptr<KeyedSource> source_;
};

}  // namespace kvkeep
