// The counters of what lies beyond the node, as status and metrics show them: the store's, with G4
// or peers, and G4's own, with G4. Without both none is shown.
#pragma once

#include <span>

#include "server/observe/metric_families.h"
#include "tiers/remote/g4.h"
#include "tiers/store/counters.h"

namespace kvkeep {

struct RemoteCounterInfo {
  const char* name;  // in Admin.Status
  uint64_t RemoteCounters::*member;
  MetricInfo metric;
};
// Every field of RemoteCounters, once (checked at compile time).
std::span<const RemoteCounterInfo> RemoteCounterTable();

struct SourceCounterInfo {
  const char* name;
  uint64_t BucketSourceCounters::*member;
  MetricInfo metric;
};
// Likewise.
std::span<const SourceCounterInfo> SourceCounterTable();

const char* G4StateName(ObjectStoreHealth::State state);  // "well", "away", "misconfigured"
// Returns the number of objects proven not to be what their names say, each counted once.
uint64_t BadObjectsOf(const G4Snapshot& g4, const RemoteCounters& counters);

void AddRemote(const RemoteCounters& counters, MetricFamilies* out);
void AddG4(const G4Snapshot& g4, MetricFamilies* out);

}  // namespace kvkeep
