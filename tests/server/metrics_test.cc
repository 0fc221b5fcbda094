#include "server/metrics.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "server/admin_service.h"
#include "server/counters.h"
#include "tests/fakes/manual_clock.h"

namespace kvkeep {
namespace {

bool EndsWith(const std::string& name, const std::string& suffix) {
  return name.size() >= suffix.size() &&
         name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

}  // namespace

TEST_CASE("metric names have our prefix and end in total exactly when they only grow") {
  const ManualClock clock;
  const ServerState state("1.2.3", &clock);
  std::set<std::string> names, series;
  for (const prometheus::MetricFamily& family : ToMetricFamilies({.state = &state})) {
    INFO(family.name);
    CHECK(family.name.rfind("kvkeep_", 0) == 0);
    CHECK(names.insert(family.name).second);  // one family, one block of the output
    CHECK_FALSE(family.help.empty());
    CHECK(EndsWith(family.name, "_total") == (family.type == prometheus::MetricType::Counter));
    CHECK(family.name.find("per_second") == std::string::npos);
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::string id = family.name;
      for (const auto& label : metric.label) id += "," + label.name + "=" + label.value;
      INFO(id);
      CHECK(series.insert(id).second);
      if (family.type == prometheus::MetricType::Counter) CHECK(metric.counter.value == 0);
    }
  }
  CHECK(names.contains("kvkeep_read_chunks_total"));
  CHECK(series.contains("kvkeep_read_chunks_total,result=hit,tier=g3"));
  CHECK(series.contains("kvkeep_build_info,version=1.2.3"));
}

TEST_CASE("status and metrics show the same numbers, each counter under its own name") {
  const ManualClock clock;
  ServerState state("1", &clock);
  MetricsInput input{.state = &state};
  uint64_t next = 1;
  for (const StoreCounterInfo& info : StoreCounterTable())
    input.store.counters.*info.member = next++;
  v1::StatusResponse status;
  FillStatus(input.store, state, &status);
  CHECK(static_cast<size_t>(status.counters_size()) ==
        StoreCounterTable().size() + ServerCounterTable().size() + LocalCounterTable().size());
  CHECK(status.counters().at("lookups") == input.store.counters.lookups);
  CHECK(status.counters().at("lock_held_ns_max") == input.store.counters.lock_held_ns_max);
  double sum = 0;
  for (const prometheus::MetricFamily& family : ToMetricFamilies(input)) {
    if (family.name != "kvkeep_put_chunks_total") continue;
    for (const prometheus::ClientMetric& metric : family.metric) sum += metric.counter.value;
  }
  const StoreCounters& counters = input.store.counters;
  CHECK(sum == counters.puts_stored + counters.puts_present + counters.puts_rejected +
                   counters.puts_aborted);
}

TEST_CASE("every tenant has its series, with what its evictions were for counted once") {
  const ManualClock clock;
  const ServerState state("1", &clock);
  MetricsInput input{.state = &state};
  input.store.tenants = {{.name = ""},
                         {.name = "a",
                          .g3_used_bytes = 70,
                          .g3_quota_bytes = 100,
                          .chunks = 5,
                          .counters = {.puts_rejected = 3,
                                       .g3_evictions = 12,
                                       .g3_quota_evictions = 7,
                                       .g3_pushed_out = 4,
                                       .key_rate_refusals = 8,
                                       .byte_rate_refusals = 9}}};
  input.store.sessions = {{.info = {.tenant = TenantId(1)}}};
  std::map<std::string, double> seen;
  for (const prometheus::MetricFamily& family : ToMetricFamilies(input)) {
    CHECK_FALSE(family.help.empty());
    for (const prometheus::ClientMetric& metric : family.metric) {
      if (metric.label.empty() || metric.label[0].name != "tenant") continue;
      std::string id = family.name;
      for (const auto& label : metric.label) id += "," + label.value;
      const bool gauge = family.type == prometheus::MetricType::Gauge;
      CHECK(seen.emplace(id, gauge ? metric.gauge.value : metric.counter.value).second);
    }
  }
  CHECK(seen.at("kvkeep_quota_used_bytes,a,g3") == 70);
  CHECK(seen.at("kvkeep_quota_limit_bytes,a,g3") == 100);
  CHECK(seen.at("kvkeep_quota_limit_bytes,default,g3") == 0);
  CHECK(seen.at("kvkeep_quota_rejections_total,a,put") == 3);
  CHECK(seen.at("kvkeep_quota_rejections_total,a,keys_per_second") == 8);
  CHECK(seen.at("kvkeep_quota_rejections_total,a,bytes_per_second") == 9);
  CHECK(seen.at("kvkeep_tenant_chunks,a") == 5);
  CHECK(seen.at("kvkeep_tenant_evicted_chunks_total,a,g3,quota") == 7);
  CHECK(seen.at("kvkeep_tenant_evicted_chunks_total,a,g3,other_tenant") == 4);
  CHECK(seen.at("kvkeep_tenant_evicted_chunks_total,a,g3,own") == 1);
  v1::StatusResponse status;
  FillStatus(input.store, state, &status);
  REQUIRE(status.tenants_size() == 2);
  CHECK(status.tenants(0).name() == "default");
  CHECK(status.tenants(0).sessions() == 0);
  CHECK(status.tenants(1).sessions() == 1);
  CHECK(status.tenants(1).g3_evictions() == 12);
  CHECK(status.tenants(1).rejected_puts() == 3);
  CHECK(status.tenants(1).key_rate_refusals() == 8);
  CHECK(status.tenants(1).byte_rate_refusals() == 9);
}

}  // namespace kvkeep
