// FleetNode: one node of a simulated fleet: a machine (tests/sim/world.h) whose daemon has a real
// BucketSource as its G4, over a bucket in memory that all nodes share, or a real FleetSource over
// that and the other nodes.
//
// All nodes' monotonic clocks are equal as long as Pass is called on all of them alike. Not
// thread-safe.
#pragma once

#include <memory>
#include <string>

#include "tests/fakes/memory_object_store.h"
#include "tests/fakes/store_peer.h"
#include "tests/sim/fleet/fleet_options.h"
#include "tests/sim/world.h"
#include "tiers/remote/bucket_source.h"
#include "tiers/remote/fleet_source.h"

namespace kvkeep {

class FleetNode {
 public:
  // The doors of all nodes, by number. A fleet is a number, too: nodes of one share a key.
  using Doors = std::vector<std::unique_ptr<PeerDoor>>;
  static std::unique_ptr<PeerDoor> MakeDoor(size_t number, size_t fleet);

  // Starts a process. `bucket` and `doors` outlive the node. `peers`: the other nodes of its fleet.
  FleetNode(const FleetOptions& options, size_t number, size_t fleet, MemoryObjects* bucket,
            PeerDoor* door, std::vector<PeerDoor*> peers);
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
  bool has_bucket() const { return source_ != nullptr; }
  // REQUIRES: it has.
  const BucketSource& source() const { return *source_; }
  const MemoryObjectStore& objects() const { return *objects_; }
  PeerDoor& door() { return door_; }
  // Takes the summaries of all nodes that it reaches.
  void TakeSummaries(const TenantTags& tenants);
  // Returns whether the summary of a node names the chunk.
  bool IsNamed(const ChunkId& id) const;
  void SetPeerFaults(const PeerFaults& faults);
  uint64_t peer_faults_injected() const;
  // Counters of this process; null: the node asks no others.
  const FleetSource* fleet_source() const { return fleet_source_; }
  MonotonicTime now() { return world_->clock().Now(); }
  // Returns the name of a chunk's object in this fleet.
  std::string NameOf(const ChunkId& id) const;

 private:
  std::unique_ptr<RemoteSource> MakeSource(ManualExecutor* executor, ManualClock* clock);
  std::unique_ptr<BucketSource> MakeBucketSource(ManualExecutor* executor, ManualClock* clock);
  void Start();
  void Kill();

  const FleetOptions options_;
  const size_t fleet_;
  MemoryObjects& bucket_;
  PeerDoor& door_;
  const std::vector<PeerDoor*> others_;
  WorldOptions world_options_;
  ObjectFaults faults_;
  bool reachable_ = true;
  SeededRandom random_;
  PeerFaults peer_faults_;
  // With peers: what the process has of them, and the bucket's source. They end after it.
  std::vector<std::shared_ptr<StorePeer>> peers_;
  std::unique_ptr<BucketSource> behind_peers_;
  std::unique_ptr<World> world_;
  FleetSource* fleet_source_ = nullptr;   // the world's
  BucketSource* source_ = nullptr;        // the world's, or behind_peers_
  MemoryObjectStore* objects_ = nullptr;  // the source's
};

}  // namespace kvkeep
