#include "server/observe/metrics.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>

#include "server/grpc/admin_service.h"
#include "server/observe/counters.h"
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
    const bool of_process = family.name.rfind("process_", 0) == 0;
    CHECK((of_process || family.name.rfind("kvkeep_", 0) == 0));
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
      if (family.type != prometheus::MetricType::Histogram) continue;
      CHECK(metric.histogram.sample_count == 0);
      CHECK(metric.histogram.bucket.size() >= 10);  // there, at zero
    }
  }
  CHECK(names.contains("kvkeep_read_chunks_total"));
  CHECK(series.contains("kvkeep_read_chunks_total,result=hit,tier=g3"));
  CHECK(series.contains("kvkeep_build_info,version=1.2.3"));
  CHECK(series.contains("kvkeep_request_duration_seconds,listener=local,operation=get"));
  CHECK(
      series.contains("kvkeep_requests_total,listener=grpc,operation=put,code=RESOURCE_EXHAUSTED"));
  CHECK(series.contains("kvkeep_chunk_wanted_again_seconds,tier=g3"));
  CHECK(names.contains("process_cpu_seconds_total"));
  CHECK(series.size() < 600);  // without tenants, devices and namespaces
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

TEST_CASE("what of G2 has no memory yet is told beside its capacity") {
  const ManualClock clock;
  ServerState state("1", &clock);
  MetricsInput input{.state = &state};
  input.store.g2 = {.capacity_bytes = 41, .to_come_bytes = 23};
  v1::StatusResponse status;
  FillStatus(input.store, state, &status);
  CHECK(status.g2().capacity_bytes() == 41);
  CHECK(status.g2().to_come_bytes() == 23);
  double to_come = 0;
  for (const prometheus::MetricFamily& family : ToMetricFamilies(input)) {
    if (family.name == "kvkeep_g2_to_come_bytes") to_come = family.metric.at(0).gauge.value;
  }
  CHECK(to_come == 23);
}

TEST_CASE("every tenant has its series, with what its evictions were for counted once") {
  const ManualClock clock;
  ServerState state("1", &clock);
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
  const PinBudget::Hold pin = state.pins.Take({TenantId(1), SessionToken{}}, 30);
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
  CHECK(seen.at("kvkeep_tenant_pinned_bytes,a") == 30);
  CHECK(seen.at("kvkeep_tenant_pinned_bytes,default") == 0);
  CHECK(seen.at("kvkeep_tenant_pin_waits_total,a") == 0);
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

TEST_CASE("a histogram is shown in seconds, each bucket with all that are below it") {
  const ManualClock clock;
  ServerState state("1", &clock);
  state.times.Note({Listener::kLocal, Operation::kGet}, MonotonicTime(0),
                   [] { return Requester{}; });
  MetricsInput input{.state = &state};
  input.store.lock_hold.counts[0] = 5;                       // up to 100 ns
  input.store.lock_hold.counts[3] = 2;                       // up to 1 us
  input.store.lock_hold.counts[kDurationBounds.size()] = 1;  // above all
  input.store.lock_hold.sum = 2'500'000'000;
  input.store.lock_wait.counts[0] = 6;
  input.store.lock_wait.counts[9] = 2;  // up to 100 us
  input.store.lock_wait.sum = 125'000;
  const std::string text = MetricsText(input, MetricsView::kEverything);
  const std::string waits = "kvkeep_store_lock_wait_duration_seconds";
  const std::string name = "kvkeep_store_lock_hold_duration_seconds";
  for (const std::string& line :
       std::vector<std::string>{"# TYPE " + name + " histogram", name + "_bucket{le=\"1e-07\"} 5",
                                name + "_bucket{le=\"5e-07\"} 5", name + "_bucket{le=\"1e-06\"} 7",
                                name + "_bucket{le=\"60\"} 7", name + "_bucket{le=\"+Inf\"} 8",
                                name + "_sum 2.5", name + "_count 8",
                                waits + "_bucket{le=\"1e-07\"} 6", waits + "_sum 0.000125",
                                waits + "_count 8"}) {
    INFO(line);
    CHECK(text.find("\n" + line + "\n") != std::string::npos);
  }
  const std::string get =
      "kvkeep_request_duration_seconds_count{listener=\"local\",operation=\"get\"} 1";
  CHECK(text.find("\n" + get + "\n") != std::string::npos);
}

TEST_CASE("what a namespace saved, a device took and an index holds has series of its own") {
  const ManualClock clock;
  ServerState state("1", &clock);
  state.config.NoteTaken("abc", 77);
  state.config.NoteRefused();
  MetricsInput input{.state = &state};
  input.store.namespaces = {
      {.name = std::make_shared<NamespaceName>(NamespaceName{"a", "m", "00ff"}),
       .tokens_served = 12.5}};
  input.store.devices = {{.path = "/d", .index = {.table_bytes = 9, .stopped_writes = 3}}};
  input.store.devices[0].times.sync.counts[0] = 4;
  input.process = {.cpu_seconds = 1.5, .resident_bytes = 4096, .open_fds = 7};
  const std::string text = MetricsText(input, MetricsView::kEverything);
  for (const std::string& line : std::vector<std::string>{
           "kvkeep_tokens_saved_total{tenant=\"a\",model=\"m\",namespace=\"00ff\"} 12.5",
           "kvkeep_device_operation_duration_seconds_count{path=\"/d\",operation=\"sync\"} 4",
           "kvkeep_device_operation_duration_seconds_count{path=\"/d\",operation=\"read\"} 0",
           "kvkeep_rocksdb_table_bytes{path=\"/d\"} 9",
           "kvkeep_rocksdb_stalls_total{path=\"/d\",kind=\"stop\"} 3",
           "kvkeep_config_hash_info{hash=\"abc\"} 1", "kvkeep_config_last_reload_successful 0",
           "kvkeep_config_last_reload_success_timestamp_seconds 77",
           "process_cpu_seconds_total 1.5", "process_resident_memory_bytes 4096",
           "process_open_fds 7"}) {
    INFO(line);
    CHECK(text.find("\n" + line + "\n") != std::string::npos);
  }
}

TEST_CASE("who may not see everything sees the same families, as sums without anybody's name") {
  const ManualClock clock;
  ServerState state("1", &clock);
  MetricsInput input{.state = &state};
  input.store.tenants = {{.name = "", .chunks = 3}, {.name = "secret-a", .chunks = 4}};
  for (const char* path : {"/secret-b/0", "/secret-b/1"}) {
    DeviceSnapshot device{.path = path, .state = DeviceState::kOk, .chunks = 5};
    device.times.read.counts[0] = 2;
    input.store.devices.push_back(std::move(device));
  }
  input.store.namespaces = {
      {.name = std::make_shared<NamespaceName>(
           NamespaceName{.tenant = "secret-a", .model = "secret-c", .digest = "secret-d"}),
       .tokens_served = 7},
      {.name = std::make_shared<NamespaceName>(
           NamespaceName{.tenant = "other", .model = "other", .digest = "other"}),
       .tokens_served = 1}};
  const std::string all = MetricsText(input, MetricsView::kEverything);
  const std::string sums = MetricsText(input, MetricsView::kTotals);
  for (const char* secret : {"secret-a", "secret-b", "secret-c", "secret-d"}) {
    INFO(secret);
    CHECK(absl::StrContains(all, secret));
    CHECK_FALSE(absl::StrContains(sums, secret));
  }
  for (const char* label : {"tenant=", "model=", "namespace=", "path="}) {
    CHECK_FALSE(absl::StrContains(sums, label));
  }
  for (const char* line :
       {"\nkvkeep_tokens_saved_total 8\n", "\nkvkeep_tenant_chunks 7\n",
        "\nkvkeep_device_chunks 10\n", "\nkvkeep_device_state_info{state=\"ok\"} 2\n",
        "\nkvkeep_device_operation_duration_seconds_count{operation=\"read\"} 4\n"}) {
    INFO(line);
    CHECK(absl::StrContains(sums, line));
  }
  const auto families = [](const std::vector<prometheus::MetricFamily>& from) {
    std::vector<std::string> names;
    for (const prometheus::MetricFamily& family : from) names.push_back(family.name);
    return names;
  };
  CHECK(families(ToMetricFamilies(input)) ==
        families(ToMetricFamilies(input, MetricsView::kTotals)));
}

}  // namespace kvkeep
