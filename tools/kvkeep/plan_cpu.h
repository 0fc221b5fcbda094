// The CPU time of a gigabyte on each path through the daemon, from a measurement of kvkeep-bench
// cpu (cpu_costs.json says where and when), and the cores that follow from it. Pure functions.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <string>
#include <vector>

namespace kvkeep::tools {

struct CpuCostOfPath {
  std::string path;  // "local get", "unix put", "promotion", "write-back" ...
  double client_seconds_per_gb = 0, daemon_seconds_per_gb = 0;
};

struct CpuCosts {
  std::string origin;
  std::vector<CpuCostOfPath> paths;
  // REQUIRES: the path exists, as ParseCpuCosts has checked.
  const CpuCostOfPath& of(absl::string_view path) const;
};

// InvalidArgument: not a file of this kind, or a path is missing.
absl::StatusOr<CpuCosts> ParseCpuCosts(absl::string_view json);
const CpuCosts& KnownCpuCosts();

// Returns the transports from an engine to the daemon: local, unix, tcp.
std::vector<std::string> CpuTransports();

// Payload a second.
struct PlanTraffic {
  double got_bytes = 0, put_bytes = 0, promoted_bytes = 0, written_bytes = 0;
};
struct PlanCores {
  double daemon = 0, clients = 0;
};
// Returns the cores that this traffic keeps busy.
PlanCores CoresOf(const CpuCosts& costs, absl::string_view transport, const PlanTraffic& traffic);

// cpu_costs.json's text.
absl::string_view CpuCostsJson();

}  // namespace kvkeep::tools
