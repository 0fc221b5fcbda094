// FleetNode: one node of a simulated fleet: a machine (tests/sim/world.h) whose daemon has a real
// BucketSource as its G4, over a bucket in memory that all nodes share.
//
// All nodes' monotonic clocks are equal as long as Pass is called on all of them alike. Not
// thread-safe.
#pragma once

#include <memory>
#include <string>

#include "tests/fakes/memory_object_store.h"
#include "tests/sim/fleet/fleet_options.h"
#include "tests/sim/world.h"
#include "tiers/remote/bucket_source.h"

namespace kvkeep {

class FleetNode {
 public:
  // `bucket` outlives it. `fleet`: nodes of one number share a key. A process runs.
  FleetNode(const FleetOptions& options, size_t number, size_t fleet, MemoryObjects* bucket);
  ~FleetNode();

  // The process dies, with what it asked of the bucket (MemoryObjectStore::Abandon), and another
  // one starts on what it left. REQUIRES: nobody holds anything of the store's.
  void Restart();
  // The process dies, and another one starts on a machine that has never seen a chunk. REQUIRES:
  // likewise.
  void Replace();

  // Time passes, and the daemon's periodic work is done.
  void Pass(std::chrono::milliseconds time);
  // Settings of the bucket for this node; they outlive processes.
  void SetFaults(const ObjectFaults& faults);
  void SetReachable(bool reachable);
  void Reseed(uint64_t seed);

  World& world() { return *world_; }
  Store& store() { return world_->store(); }
  // REQUIRES: the node has G4.
  const BucketSource& source() const { return *source_; }
  const MemoryObjectStore& objects() const { return *objects_; }
  MonotonicTime now() { return world_->clock().Now(); }
  // The object of a chunk, as nodes of this fleet name it.
  std::string NameOf(const ChunkId& id) const;

 private:
  std::unique_ptr<RemoteSource> MakeSource(ManualExecutor* executor, ManualClock* clock);
  void Start();
  void Kill();

  const FleetOptions options_;
  const size_t fleet_;
  MemoryObjects& bucket_;
  WorldOptions world_options_;
  ObjectFaults faults_;
  bool reachable_ = true;
  SeededRandom random_;
  std::unique_ptr<World> world_;
  BucketSource* source_ = nullptr;        // the world's
  MemoryObjectStore* objects_ = nullptr;  // the source's
};

}  // namespace kvkeep
