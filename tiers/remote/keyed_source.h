// KeyedSource: RemoteSource over one object store whose images lie under several keys: the fleet's,
// earlier ones of the fleet, and keys that tenants have of their own. One BucketSource a key, each
// with names, seals and MACs of its own.
//
// Chunks of a tenant with its own key are asked for and written under that key alone. Chunks of
// other tenants are written under the fleet's key. Chunks absent there are asked for under the
// earlier keys, in order, and read from there. Once one was found so, the rest is asked for under
// the fleet's key again, as a prompt's head may lie under an earlier key and its tail under this
// one. A chunk is removed under all keys under which it may lie: for a tenant with its own key,
// under the fleet's, too.
//
// place() and mac_key() are those of the fleet's key. A header under another key is checked with
// that key here, and made anew for the reader; and the other way round for a write.
//
// Thread-safe. No lock is held over a call of the store's or a callback. The destructor has
// answered all when it returns.
#pragma once

#include <absl/container/btree_map.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "tiers/remote/bucket_source.h"
#include "tiers/remote/fleet_keys.h"

namespace kvkeep {

// The derived keys of the fleet and of tenants, each from a different key.
struct KeySet {
  FleetKeys fleet;
  std::vector<FleetKeys> previous;                // earlier ones of the fleet
  absl::btree_map<uint32_t, FleetKeys> tenants;  // by TenantTagOf
};

// Counters of chunks that are not there under the fleet's key.
struct PreviousKeyCounters {
  uint64_t searches = 0;  // under one earlier key each
  uint64_t found = 0;     // chunks
};

class KeyedSource final : public RemoteSource {
 public:
  // `options`: of all keys together what is memory. `clock` and `random` outlive this.
  KeyedSource(const BucketSourceOptions& options, KeySet keys, std::unique_ptr<ObjectStore> store,
              Clock* clock, RandomSource* random);
  ~KeyedSource() override;

  void Find(std::vector<ChunkId> ids, Wanted wanted, MonotonicTime deadline,
            std::function<void(Found)> done) override;
  // Asks under the key that the image would be written under. An image under an earlier key counts
  // as absent, so used images are written anew under today's key.
  void Age(const ChunkId& id,
           std::function<void(absl::StatusOr<std::chrono::seconds>)> done) override {
    ChainOf(id).front()->Age(id, std::move(done));
  }
  void Read(ReadRequest request) override;
  void Write(WriteRequest request) override;
  void Remove(const ChunkId& id, std::function<void(absl::Status)> done) override;
  bool readable() const override { return fleets().readable(); }
  bool may_find(const NamespaceDigest& ns) const override { return fleets().may_find(ns); }
  bool may_ask_age() const override { return fleets().may_ask_age(); }
  bool TakeQuestion(const NamespaceDigest& ns) override { return fleets().TakeQuestion(ns); }
  // Sets the limit for all keys together.
  void SetProbesPerSecond(uint64_t probes) { fleets().SetProbesPerSecond(probes); }
  // Returns whether the sources of all keys are writable.
  bool writable() const override;
  uint64_t epoch() const override { return fleets().epoch(); }
  const Uuid& place() const override { return fleets().place(); }
  const MacKey& mac_key() const override { return fleets().mac_key(); }

  // The source under the fleet's key. Its health is the store's, hence that of all sources.
  BucketSource& fleets() const { return *fleet_.front(); }
  BucketSourceCounters counters() const;  // of all keys together
  PreviousKeyCounters previous_counters() const;

 private:
  struct Finding;
  using Chain = std::vector<BucketSource*>;  // the first one is written to

  const Chain& ChainOf(const ChunkId& id) const;
  void Ask(const std::shared_ptr<Finding>& finding);
  void ReadFrom(const std::shared_ptr<const ReadRequest>& request, const Chain& chain, size_t at);

  std::vector<std::unique_ptr<BucketSource>> sources_;  // a key each
  Chain fleet_;                                         // and its earlier keys
  absl::btree_map<uint32_t, Chain> tenants_;            // those with a key of their own
  std::atomic<uint64_t> previous_searches_{0}, previous_found_{0};
  std::unique_ptr<ObjectStore> store_;  // last: it answers into all of the above
};

}  // namespace kvkeep
