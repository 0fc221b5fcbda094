// Prometheus metrics: made from a snapshot when scraped, served over HTTP at /metrics.
//
// Names are kvkeep_<thing>_<unit>[_total]. Every series is there from the first scrape, at zero.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/server_state.h"
#include "tiers/host/arena.h"
#include "tiers/io/io_engine.h"
#include "tiers/store/snapshot.h"

namespace kvkeep {

// All that is shown, gathered at one scrape.
struct MetricsInput {
  StoreSnapshot store;
  Arena::Stats arena;
  IoEngine::Stats io;
  const ServerState* state = nullptr;
};

std::vector<prometheus::MetricFamily> ToMetricFamilies(const MetricsInput& input);

class MetricsServer {
 public:
  virtual ~MetricsServer() = default;
};
// Listens on `address` (host:port). `gather` is called on the server's thread at every scrape,
// never after the destructor. Unavailable when the address cannot be listened on.
absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetricsServer(
    const std::string& address, std::function<MetricsInput()> gather);

}  // namespace kvkeep
