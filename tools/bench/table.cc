#include "tools/bench/table.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"

namespace kvkeep::bench {
namespace {

using Section = absl::Status (*)(TableRun*);

constexpr std::pair<const char*, Section> kSections[] = {
    {"get", RunGets},           {"lookup", RunLookups}, {"put", RunPuts},
    {"pieces", RunPieces},      {"prefault", RunPrefault}, {"hits", RunHits},
    {"devices", RunDevices},    {"rest", RunRest}};

TableScale ScaleOf(const Options& options) {
  if (options.quick) {
    return {.seconds = 0.03,
            .rounds = 2,
            .put_rounds = 1,
            .get_keys = 96,
            .small_table = 1'000,
            .large_table = 4'000,
            .large_call_keys = 4'000,
            .held_leases = 500,
            .put_g2_bytes = 192 * kMiB,
            .pieces_g2_bytes = 160 * kMiB,
            .pieces_keys = 10,
            .rest_bytes = 512 * kMiB,
            .rest_seconds = 1.5,
            .hits_keys = 16,
            .hits_dirty_chunks = 40,
            .device_bytes = 48 * kMiB};
  }
  return {.seconds = options.seconds,
          .rounds = options.rounds,
          .put_rounds = options.rounds,
          .large_table = options.lookup_table_chunks};
}

}  // namespace

const std::vector<std::string>& TableSections() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, section] : kSections) all.emplace_back(name);
    return all;
  }();
  return names;
}

void TableRun::SayRound(const std::string& what, int round) const {
  Say(absl::StrCat(what, ": round ", round + 1, " of ", scale.rounds));
}

absl::StatusOr<TableSide> TableRun::Start(const DaemonOptions& daemon_options) {
  TableSide side;
  KVKEEP_ASSIGN_OR_RETURN(side.daemon, DaemonProcess::Start(daemon_options));
  KVKEEP_ASSIGN_OR_RETURN(
      side.load, LoadGenerator::Start(TargetOf(options, side.daemon.get()),
                                      side.daemon->admin_endpoint(), 1, side.daemon->pid()));
  KVKEEP_RETURN_IF_ERROR(Describe(*side.load, &report));
  return side;
}

absl::Status TableRun::NoteLocks(LoadGenerator& load) {
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus status, load.Status());
  lock_worked = status.counters.contains("lock_worked_ns_max");
  const uint64_t ns = status.counter(lock_worked ? "lock_worked_ns_max" : "lock_held_ns_max");
  longest_lock_us = std::max(longest_lock_us, static_cast<double>(ns) / 1e3);
  lock_seconds += static_cast<double>(status.counter("lock_held_ns")) / 1e9;
  return absl::OkStatus();
}

absl::StatusOr<Report> RunTable(const Options& options, const Progress& progress) {
  TableRun run{.options = options,
               .progress = progress,
               .scale = ScaleOf(options),
               .baselines = BaselineSet(options.arena_dir, options.region_bytes),
               .report = {.options = options}};
  for (const auto& [name, section] : kSections) {
    const auto& wanted = options.sections;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
    const absl::Status status = section(&run);
    if (status.ok()) continue;
    // The other sections' figures are still good.
    run.Add(MissingLine(name, std::string(status.message())));
    run.report.failure = absl::StrCat(name, ": ", status.message());
  }
  run.baselines.AddTo(&run.report);
  return std::move(run.report);
}

}  // namespace kvkeep::bench
