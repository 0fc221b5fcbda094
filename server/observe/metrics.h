// Prometheus metrics: made from a snapshot when scraped.
//
// Names are kvkeep_<thing>_<unit>[_total]. Every series is there from the first scrape, at zero; a
// namespace's series, from when it is first opened.
#pragma once

#include <prometheus/metric_family.h>

#include <optional>
#include <string>
#include <vector>

#include "server/gpu/gpu_path.h"
#include "server/observe/peer_counters.h"
#include "server/observe/process_stats.h"
#include "server/observe/server_state.h"
#include "tiers/host/arena.h"
#include "tiers/io/io_engine.h"
#include "tiers/remote/g4.h"
#include "tiers/store/snapshot.h"

namespace kvkeep {

// The data of one scrape.
struct MetricsInput {
  StoreSnapshot store;
  Arena::Stats arena;
  IoEngine::Stats io;
  GpuPath::Stats gpu;
  std::optional<G4Snapshot> g4;  // none: nothing lies beyond the node, and nothing is shown of it
  std::optional<FleetSnapshot> fleet;  // none: the node has no peers, likewise
  ProcessStats process;
  const ServerState* state = nullptr;
};

// Detail of a page. kTotals has the same families as kEverything, but sums up series that would
// name tenants, models, namespaces or paths.
enum class MetricsView { kEverything, kTotals };

std::vector<prometheus::MetricFamily> ToMetricFamilies(
    const MetricsInput& input, MetricsView view = MetricsView::kEverything);

// The text format 0.0.4.
std::string MetricsText(const MetricsInput& input, MetricsView view);
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace kvkeep
