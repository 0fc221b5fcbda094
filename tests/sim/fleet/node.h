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
  // Starts a process. `bucket` outlives the node. `fleet`: nodes of one number share a key.
  FleetNode(const FleetOptions& options, size_t number, size_t fleet, MemoryObjects* bucket);
  ~FleetNode();

  // Kills the process with its requests to the bucket (MemoryObjectStore::Abandon), and starts
  // another on what it left. REQUIRES: nothing of the store is held.
  void Restart();
  // Kills the process, and starts another on a machine without any chunk. REQUIRES: as above.
  void Replace();

  // Lets time pass, and does the daemon's periodic work.
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
  // Returns the name of a chunk's object in this fleet.
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
