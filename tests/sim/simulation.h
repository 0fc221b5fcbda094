// Simulation: random clients against the real store, with faults, crashes and power cuts, from one
// seed; a plain model judges every answer. A broken rule is a failed check, with the seed printed.
//
// Each step draws from the seed and its own number, so steps can be left out and the others stay
// the same. Leaving steps out makes a failing run short (script.h).
//
// Rules:
// - A read returns the whole bytes, tail included, of one put under that name, and none that
//   were deleted before it began, except under a lease. Each piece is right when it is reported
//   ready, and bytes under a reader never change. Tenants, namespaces and parts have the same
//   keys and different bytes.
// - What a lease promised is never busy, and without faults always a hit. Leases of a tenant stay
//   within its share. A client that got PRESENT finds the chunk.
// - When the process ends, no two records of an index claim the same blocks.
// - After a kill, G2 on kept memory is there again, whatever the devices do. Bits that flipped
//   there are never served.
// - A reader of events, even one too slow for the log, has in the end what lookups find in each
//   tier.
// - Every callback runs exactly once, unless the process died.
// - CheckInvariants always holds: capacity, books, no block lost or used twice. Emptied at the
//   end, the store is empty.
// - No tenant's chunks hold more of G3 than its quota. A tenant with a quota that all devices
//   can hold loses nothing to another tenant.
// - In an honest world, what was acknowledged as durable, PRESENT or stored survives a power cut
//   of the machine or of one drive. It is read whole whenever its device is there, and none of
//   its sectors is ever unsynced.
// - If a process evicted nothing and found no damage, what was acknowledged as durable has a
//   record in the end ("looked for" in the summary).
// - Half of the seeds have no faults, and no read fails there. What was in G3 survives a kill,
//   even if its device was left out for a while. Only what a power cut may have damaged (not
//   durable, or on a device that was away) may turn out damaged.
//
// Exempt from the durability rule ("forgotten but told durable" in the summary) are data or
// records that a drive forgot between the write and the successful sync, or lied about, and an old
// record below the stable mark and in no doubt that is back in the same boot because its removal
// was forgotten.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/injected.h"

namespace kvkeep {

struct SimulationOptions {
  uint64_t seed = 1;
  uint64_t steps = 2000;
  bool verbose = false;              // prints each step
  std::vector<uint64_t> only;        // these steps, not 0 to `steps`
  std::vector<std::string> without;  // left out of the world, see random_world.h
  std::string policy = "lru";        // of both tiers' eviction
  uint64_t nodes = 1;                // more: a fleet (fleet/fleet_simulator.h)
  uint64_t* progress = nullptr;      // called with the number of each step before it begins
};

struct SimulationReport {
  uint64_t steps = 0, operations = 0;
  uint64_t puts = 0, reads = 0, hits = 0, verified_bytes = 0;
  uint64_t kills = 0, power_cuts = 0, corrupt = 0, promotions = 0, evictions = 0;
  uint64_t windows = 0;  // parts of tiers that were emptied for one image
  uint64_t stops_in_order = 0;  // before power cuts
  uint64_t rejected = 0, durable = 0, durable_read = 0, promises_checked = 0;
  uint64_t recovered_in_g2 = 0, interruptions = 0;
  uint64_t revoked = 0, attachments = 0, joins = 0, leaves = 0, in_quota = 0;
  uint64_t capacities_set = 0;
  uint64_t memory_came = 0;     // blocks of G2
  uint64_t tenant_changes = 0;  // between two processes
  uint64_t returned = 0;        // chunks of an absent tenant, to be found again
  // Events reported to a reader; new beginnings; comparisons of the reported state with lookups.
  uint64_t events = 0, event_restarts = 0, events_checked = 0;
  uint64_t forgotten = 0;  // by a drive, which called them durable
  // Records that came back with a shorter or a longer log of the same boot, and how many of them
  // are in no doubt.
  uint64_t revived = 0, believed = 0;
  // Beyond the node: requested; came, did not; written there; found not to be what they should be.
  uint64_t recalls = 0, recalled = 0, failed_recalls = 0, written_beyond = 0, bad_beyond = 0;
  // In a fleet: keys that lookups were told to be coming from the bucket.
  uint64_t came_from_others = 0, bucket_faults = 0;
  uint64_t peer_bytes = 0, peer_faults = 0;  // read from other nodes; of these
  uint64_t offered = 0, taken = 0;           // chunks, by one node to another
  // Records that were in doubt, and are not after a restart: called durable.
  uint64_t cleared = 0;
  uint64_t encrypted = 0, unauthentic = 0;  // written; found changed on their device
  Injected injected;
  uint64_t digest = 0;  // of all events: equal for equal seeds
  uint64_t local_digest = 0;  // of a fleet: of the answers of calls that ask no bucket

  void Add(const SimulationReport& other);
  std::string Describe() const;  // one line
};

SimulationReport RunSimulation(const SimulationOptions& options);

}  // namespace kvkeep
