// FleetOptions: the parts of a simulated fleet and the faults that it may meet: nodes, the
// bucket that they share, faults. Drawn from the seed.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fakes/memory_object_store.h"
#include "tests/fakes/store_peer.h"
#include "tests/sim/world_options.h"
#include "tiers/remote/bucket_source.h"
#include "tiers/remote/fleet_source.h"

namespace kvkeep {

inline constexpr uint64_t kMostNodes = 8;

struct FleetOptions {
  // kNone: the nodes have no G4. kDead: they have a G4 that they know does not answer. With these
  // two, tasks run as soon as possible, so that both runs make the same calls.
  enum class Bucket : uint8_t { kShared, kNone, kDead };

  uint64_t seed = 1;
  size_t nodes = 3;
  Bucket bucket = Bucket::kShared;
  bool stranger = false;  // the last node has another fleet's key, and the same bucket
  uint32_t parts = 1;
  WorldOptions world;  // of each node, except its seed
  BucketSourceOptions source;
  ObjectFaults faults;    // of the bucket, all the time
  bool outages = false;   // the bucket fails in one way for a while, for all nodes or for one
  bool meddlers = false;  // a program without the key changes objects
  bool kills = false, machines_lost = false;
  bool deletes = false;
  bool peers = false;       // nodes read from each other
  bool only_peers = false;  // and there is no bucket
  bool partitions = false;  // for a while a node reaches no other, though it reaches the bucket
  bool summaries = false;   // nodes know, more or less, what others have
  bool offers = false;      // nodes offer their hottest chunks to others
  FleetSourceOptions fleet_source;
  PeerFaults peer_faults;

  // Returns whether every reader of an object finds it unchanged.
  bool objects_are_whole() const {
    return !meddlers && faults.flipped + faults.body_cut + faults.other_range +
                                faults.half_published ==
                            0;
  }
};

// `without`: names of FleetRemovable() to leave out.
FleetOptions RandomFleet(uint64_t seed, size_t nodes, const std::vector<std::string>& without,
                         const std::string& policy);
const std::vector<std::string>& FleetRemovable();

}  // namespace kvkeep
