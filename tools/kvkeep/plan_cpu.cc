#include "tools/kvkeep/plan_cpu.h"

#include <absl/strings/str_cat.h>

#include <nlohmann/json.hpp>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::tools {
namespace {

using Json = nlohmann::json;

const CpuCostOfPath* Find(const CpuCosts& costs, absl::string_view path) {
  for (const CpuCostOfPath& cost : costs.paths) {
    if (cost.path == path) return &cost;
  }
  return nullptr;
}

absl::StatusOr<CpuCostOfPath> ParseCost(const Json& entry) {
  const auto bad = [&entry] {
    return absl::InvalidArgumentError(
        absl::StrCat(entry.dump(), ": path, client_seconds_per_gb, daemon_seconds_per_gb wanted"));
  };
  if (!entry.is_object() || !entry.contains("path") || !entry["path"].is_string()) return bad();
  for (const char* field : {"client_seconds_per_gb", "daemon_seconds_per_gb"}) {
    if (!entry.contains(field) || !entry[field].is_number() || entry[field].get<double>() < 0) {
      return bad();
    }
  }
  return CpuCostOfPath{.path = entry["path"],
                       .client_seconds_per_gb = entry["client_seconds_per_gb"],
                       .daemon_seconds_per_gb = entry["daemon_seconds_per_gb"]};
}

}  // namespace

const CpuCostOfPath& CpuCosts::of(absl::string_view path) const {
  const CpuCostOfPath* const found = Find(*this, path);
  KVKEEP_CHECK(found != nullptr);
  return *found;
}

absl::StatusOr<CpuCosts> ParseCpuCosts(absl::string_view json) {
  const Json file = Json::parse(json.begin(), json.end(), nullptr, false);
  if (!file.is_object() || !file.contains("origin") || !file["origin"].is_string() ||
      !file.contains("cpu_costs")) {
    return absl::InvalidArgumentError("not a JSON object with origin and cpu_costs");
  }
  CpuCosts costs{.origin = file["origin"]};
  for (const Json& entry : file["cpu_costs"]) {
    KVKEEP_ASSIGN_OR_RETURN(costs.paths.emplace_back(), ParseCost(entry));
  }
  std::vector<std::string> wanted = {"promotion", "write-back"};
  for (const std::string& transport : CpuTransports()) {
    wanted.push_back(transport + " get");
    wanted.push_back(transport + " put");
  }
  for (const std::string& path : wanted) {
    if (Find(costs, path) == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("cpu_costs: no \"", path, "\""));
    }
  }
  return costs;
}

const CpuCosts& KnownCpuCosts() {
  static const CpuCosts* const known = [] {
    auto parsed = ParseCpuCosts(CpuCostsJson());
    KVKEEP_CHECK(parsed.ok());  // a test reads it
    return new CpuCosts(*std::move(parsed));
  }();
  return *known;
}

std::vector<std::string> CpuTransports() { return {"local", "unix", "tcp"}; }

PlanCores CoresOf(const CpuCosts& costs, absl::string_view transport, const PlanTraffic& traffic) {
  PlanCores cores;
  const auto add = [&](const CpuCostOfPath& cost, double bytes, bool with_client) {
    cores.daemon += cost.daemon_seconds_per_gb * bytes / 1e9;
    if (with_client) cores.clients += cost.client_seconds_per_gb * bytes / 1e9;
  };
  add(costs.of(absl::StrCat(transport, " get")), traffic.got_bytes, true);
  add(costs.of(absl::StrCat(transport, " put")), traffic.put_bytes, true);
  // The promotion's client is the engine that got the bytes.
  add(costs.of("promotion"), traffic.promoted_bytes, false);
  add(costs.of("write-back"), traffic.written_bytes, false);
  return cores;
}

}  // namespace kvkeep::tools
