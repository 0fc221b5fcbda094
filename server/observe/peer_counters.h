// The state of the fleet's other nodes, as status and metrics show it. A node without peers shows
// none of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/observe/metric_families.h"
#include "tiers/remote/fleet_source.h"

namespace kvkeep {

// The link to one other node. Counts are since the start of the daemon, or of the node's entry in
// the list.
struct PeerLinkSnapshot {
  std::string name, address;
  bool up = false;
  std::string why;           // it is not up; empty: it was not tried yet
  uint64_t incarnation = 0;  // as the last Hello said
  uint64_t finds = 0, failed_finds = 0, reads = 0, failed_reads = 0;
  uint64_t read_bytes = 0;  // of images
  uint64_t waiting = 0;     // reads in line now
  uint64_t summaries = 0, failed_summaries = 0;
  uint64_t downs = 0;       // times that it went down
  uint64_t refusals = 0;    // calls that the other node did not permit
  std::string refusal;      // what it said to the last of them
};

// What this node served to others.
struct ServedSnapshot {
  uint64_t finds = 0, found_chunks = 0;
  uint64_t summaries = 0;  // asked for
  uint64_t fetches = 0, fetched_bytes = 0;
  uint64_t from_g3 = 0;  // images that were sent and came from NVMe
  uint64_t busy = 0;     // fetches refused: over a limit, or G2 had no space
  uint64_t absent = 0;   // fetches of chunks that are not there any more
  uint64_t refused = 0;  // calls of callers that are no peers, or for tenants that are not shared
  // Chunks that nodes which leave offered: all, those that came, and those that are not here.
  uint64_t offered_chunks = 0, taken_chunks = 0, untaken_chunks = 0;
};

// What this node gave to others in drains (server/fleet/handover.h).
struct HandedSnapshot {
  uint64_t offers = 0, chunks = 0, bytes = 0, refused_chunks = 0;
};

struct FleetSnapshot {
  std::vector<PeerLinkSnapshot> peers;
  FleetSourceCounters source;
  ServedSnapshot served;
  HandedSnapshot handed;
};

void AddPeers(const FleetSnapshot& fleet, MetricFamilies* out);
void FillPeers(const FleetSnapshot& fleet, v1::StatusResponse* out);

}  // namespace kvkeep
