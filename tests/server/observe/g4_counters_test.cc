#include "server/observe/g4_counters.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <set>

#include "server/grpc/admin_service.h"
#include "server/observe/metrics.h"
#include "tests/fakes/manual_clock.h"

namespace kvkeep {
namespace {

using Health = ObjectStoreHealth;

G4Snapshot SickG4() {
  return {.where = "http://s3/bucket",
          .health = {.state = Health::State::kMisconfigured,
                     .takes_puts = false,
                     .error = {"NoSuchBucket", "no such bucket", "7"},
                     .what_to_do = "create it",
                     .retry_in = std::chrono::milliseconds(2'500)},
          .source = {.probes = 40, .probes_found = 30, .probes_late = 4, .bad_seal = 2,
                     .removed_bad = 5},
          .previous_keys = {.searches = 21, .found = 22},
          .checks = {.checks = 9, .failed_checks = 8},
          .epoch = 77,
          .epochs = {.failed_reads = 11, .failed_writes = 12, .bad_objects = 13}};
}

RemoteCounters SomeRecalls() {
  return {.searches = 3,
          .recalled_chunks = 11,
          .recalled_bytes = 1'100,
          .failed_recalls = 6,
          .dropped_chunks = 7,
          .written_chunks = 12,
          .written_bytes = 1'200,
          .failed_writes = 13,
          .bad_images = 4};
}

}  // namespace

TEST_CASE("without G4 the metrics and the status have no line of it") {
  const ManualClock clock;
  ServerState state("1", &clock);
  MetricsInput input{.state = &state};
  CHECK_FALSE(absl::StrContains(MetricsText(input, MetricsView::kEverything), "g4"));
  v1::StatusResponse status;
  FillStatus(input.store, state, &status);
  CHECK_FALSE(status.has_g4());
  for (const auto& [name, value] : status.counters()) CHECK_FALSE(absl::StrContains(name, "g4"));
}

TEST_CASE("with G4 every counter of it is there at zero, under a name of the house's") {
  const ManualClock clock;
  const ServerState state("1", &clock);
  MetricsInput input{.g4 = G4Snapshot{.requests = S3StoreCounters{}, .keys = KeyCounters{}},
                     .state = &state};
  input.store.remote = RemoteCounters{};
  std::set<std::string> names, series;
  for (const prometheus::MetricFamily& family : ToMetricFamilies(input)) {
    if (!absl::StartsWith(family.name, "kvkeep_g4_")) continue;
    INFO(family.name);
    CHECK(names.insert(family.name).second);
    CHECK_FALSE(family.help.empty());
    CHECK(absl::EndsWith(family.name, "_total") ==
          (family.type == prometheus::MetricType::Counter));
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::string id = family.name;
      for (const auto& label : metric.label) id += "," + label.name + "=" + label.value;
      INFO(id);
      CHECK(series.insert(id).second);
      if (family.type == prometheus::MetricType::Counter) CHECK(metric.counter.value == 0);
    }
  }
  CHECK(series.size() >= RemoteCounterTable().size() + SourceCounterTable().size());
  for (const char* reason : {"seal", "header", "identity", "size", "plain", "image"}) {
    CHECK(series.contains(std::string("kvkeep_g4_bad_objects_total,reason=") + reason));
  }
}

TEST_CASE("metrics show the requests to a bucket, and none of a directory") {
  const ManualClock clock;
  const ServerState state("1", &clock);
  MetricsInput input{.g4 = G4Snapshot{}, .state = &state};
  CHECK_FALSE(absl::StrContains(MetricsText(input, MetricsView::kEverything), "g4_requests"));
  S3StoreCounters& requests = input.g4->requests.emplace();
  requests.answers[0][static_cast<size_t>(ObjectOutcome::kOk)] = 5;
  requests.answers[0][static_cast<size_t>(ObjectOutcome::kAbsent)] = 6;
  requests.answers[1][static_cast<size_t>(ObjectOutcome::kThrottled)] = 7;
  requests.attempts = 30;
  requests.hedges = 4;
  requests.hedges_won = 3;
  requests.written_bytes = 99;
  requests.window = 32;
  requests.clock_skew_seconds = -61;
  input.g4->keys = KeyCounters{.fetched = 8, .failed = 9, .expires = UnixSeconds(2'000'000'000)};
  const std::string text = MetricsText(input, MetricsView::kEverything);
  for (const std::string line :
       {"kvkeep_g4_requests_total{op=\"get\",outcome=\"ok\"} 5",
        "kvkeep_g4_requests_total{op=\"get\",outcome=\"absent\"} 6",
        "kvkeep_g4_requests_total{op=\"put\",outcome=\"ok\"} 0",
        "kvkeep_g4_requests_total{op=\"put\",outcome=\"throttled\"} 7",
        "kvkeep_g4_attempts_total 30", "kvkeep_g4_hedges_total{won=\"no\"} 1",
        "kvkeep_g4_hedges_total{won=\"yes\"} 3",
        "kvkeep_g4_bytes_total{direction=\"written\"} 99", "kvkeep_g4_window_requests 32",
        "kvkeep_g4_clock_skew_seconds -61", "kvkeep_g4_key_fetches_total{result=\"ok\"} 8",
        "kvkeep_g4_key_fetches_total{result=\"failed\"} 9",
        "kvkeep_g4_keys_not_after_seconds 2000000000"}) {
    INFO(line);
    CHECK(absl::StrContains(text, "\n" + line + "\n"));
  }
}

TEST_CASE("what a shared directory was found to be is shown of a directory alone") {
  const ManualClock clock;
  const ServerState state("1", &clock);
  MetricsInput input{.g4 = SickG4(), .state = &state};
  input.store.remote = SomeRecalls();
  CHECK_FALSE(absl::StrContains(MetricsText(input, MetricsView::kEverything), "g4_leftover"));
  input.g4->directory = {.leftover_files = 4, .leftover_bytes = 96, .unopened = 7};
  const std::string text = MetricsText(input, MetricsView::kEverything);
  for (const std::string line :
       {"kvkeep_g4_leftover_files_total 4", "kvkeep_g4_leftover_bytes_total 96",
        "kvkeep_g4_unopened_total 7"}) {
    CHECK(absl::StrContains(text, "\n" + line + "\n"));
  }
  v1::StatusResponse status;
  FillG4(*input.g4, *input.store.remote, &status);
  CHECK(status.counters().at("g4_leftover_files") == 4);
  CHECK(status.counters().at("g4_unopened") == 7);
}

TEST_CASE("metrics and status of G4 show its state and the same numbers") {
  const ManualClock clock;
  const ServerState state("1", &clock);
  MetricsInput input{.g4 = SickG4(), .state = &state};
  input.store.remote = SomeRecalls();
  const std::string text = MetricsText(input, MetricsView::kEverything);
  for (const std::string line :
       {"kvkeep_g4_state{state=\"well\"} 0", "kvkeep_g4_state{state=\"misconfigured\"} 1",
        "kvkeep_g4_takes_puts_info 0", "kvkeep_g4_retry_in_seconds 2.5",
        "kvkeep_g4_recalled_chunks_total 11", "kvkeep_g4_written_bytes_total 1200",
        "kvkeep_g4_failures_total{what=\"write\"} 13", "kvkeep_g4_dropped_chunks_total 7",
        "kvkeep_g4_bad_objects_total{reason=\"seal\"} 2",
        "kvkeep_g4_bad_objects_total{reason=\"image\"} 4",
        "kvkeep_g4_probes_total{result=\"found\"} 30", "kvkeep_g4_failed_checks_total 8",
        "kvkeep_g4_epoch 77", "kvkeep_g4_failed_epoch_reads_total 11",
        "kvkeep_g4_failed_epoch_writes_total 12", "kvkeep_g4_bad_epochs_total 13",
        "kvkeep_g4_previous_key_searches_total 21", "kvkeep_g4_previous_key_chunks_total 22"}) {
    INFO(line);
    CHECK(absl::StrContains(text, "\n" + line + "\n"));
  }
  v1::StatusResponse status;
  FillG4(*input.g4, *input.store.remote, &status);
  const v1::G4Status& g4 = status.g4();
  CHECK(g4.where() == "http://s3/bucket");
  CHECK(g4.state() == v1::G4_STATE_MISCONFIGURED);
  CHECK_FALSE(g4.takes_puts());
  CHECK(g4.error_code() == "NoSuchBucket");
  CHECK(g4.error_message() == "no such bucket");
  CHECK(g4.what_to_do() == "create it");
  CHECK(g4.retry_in_ms() == 2'500);
  CHECK(g4.recalled_chunks() == 11);
  CHECK(g4.recalled_bytes() == 1'100);
  CHECK(g4.written_chunks() == 12);
  CHECK(g4.written_bytes() == 1'200);
  CHECK(g4.failed_recalls() == 6);
  CHECK(g4.failed_writes() == 13);
  CHECK(g4.dropped_writes() == 7);
  CHECK(g4.bad_objects() == 9);
  CHECK(g4.searches() == 3);
  CHECK(g4.probes() == 40);
  CHECK(status.counters().at("g4_probes_late") == 4);
  CHECK(status.counters().at("g4_previous_key_searches") == 21);
  CHECK(status.counters().at("g4_previous_key_chunks") == 22);
  CHECK(status.counters().at("g4_epoch") == 77);
  CHECK(status.counters().at("g4_failed_epoch_reads") == 11);
  CHECK(status.counters().at("g4_failed_epoch_writes") == 12);
  CHECK(status.counters().at("g4_bad_epochs") == 13);
  const size_t others = 8;  // of checks, of earlier keys and of the epoch
  CHECK(static_cast<size_t>(status.counters_size()) == SourceCounterTable().size() + others);
}

TEST_CASE("what came from beyond the node is shown with peers alone, too, and not without both") {
  const ManualClock clock;
  const ServerState state("1", &clock);
  MetricsInput input{.state = &state};
  CHECK_FALSE(absl::StrContains(MetricsText(input, MetricsView::kEverything), "kvkeep_g4"));
  input.store.remote = SomeRecalls();
  const std::string text = MetricsText(input, MetricsView::kEverything);
  CHECK(absl::StrContains(text, "\nkvkeep_g4_recalled_chunks_total 11\n"));
  CHECK_FALSE(absl::StrContains(text, "kvkeep_g4_state"));
  v1::StatusResponse without, with;
  FillStatus(StoreSnapshot(), state, &without);
  FillStatus(input.store, state, &with);
  CHECK(with.counters().at("g4_recalled_chunks") == 11);
  CHECK(static_cast<size_t>(with.counters_size() - without.counters_size()) ==
        RemoteCounterTable().size());
}

}  // namespace kvkeep
