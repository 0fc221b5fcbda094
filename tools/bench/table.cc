#include "tools/bench/table.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/table_lines.h"
#include "tools/bench/table_sections.h"

namespace kvkeep::bench {
namespace {

using Section = absl::Status (*)(TableRun*);

const std::vector<std::pair<std::string, Section>>& Sections() {
  static const std::vector<std::pair<std::string, Section>> sections = {
      {"get", RunGets},        {"lookup", RunLookups},    {"put", RunPuts},
      {"pieces", RunPieces},   {"prefault", RunPrefault}, {"hits", RunHits},
      {"devices", RunDevices}, {"rest", RunRest}};
  return sections;
}

}  // namespace

TableScale::TableScale(const Options& options)
    : seconds(options.quick ? 0.03 : options.seconds),
      rounds(options.quick ? 2 : options.rounds),
      put_rounds(options.quick ? 1 : options.rounds),
      get_keys(options.quick ? 96 : 320),
      small_table(options.quick ? 1'000 : 10'000),
      large_table(options.quick ? 4'000 : options.lookup_table_chunks),
      large_call_keys(options.quick ? 4'000 : 65'536),
      held_leases(options.quick ? 500 : 100'000),
      // More than a session's staging memory, which a client may ask for a second time.
      put_g2_bytes(options.quick ? 192 * kMiB : 1280 * kMiB),
      pieces_g2_bytes(options.quick ? 160 * kMiB : 512 * kMiB),
      pieces_keys(options.quick ? 10 : 32),
      rest_bytes(options.quick ? 512 * kMiB : 10'000'000'000),
      rest_seconds(options.quick ? 1.5 : 30),
      hits_keys(options.quick ? 16 : 64),
      hits_dirty_chunks(options.quick ? 40 : 320),
      device_bytes(options.quick ? 48 * kMiB : 384 * kMiB) {}

const std::vector<std::string>& TableSections() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, section] : Sections()) all.push_back(name);
    return all;
  }();
  return names;
}

absl::StatusOr<std::unique_ptr<LoadGenerator>> TableRun::Connect(const DaemonProcess& daemon,
                                                                 uint32_t clients) {
  KVKEEP_ASSIGN_OR_RETURN(auto generator,
                          LoadGenerator::Start(TargetOf(options, &daemon), daemon.admin_endpoint(),
                                               clients, daemon.pid()));
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus status, generator->Status());
  report.arena = status.arena;
  report.daemon = status.version;
  report.path = DescribePath(generator->client(0));
  return generator;
}

absl::Status TableRun::NoteLocks(LoadGenerator* generator) {
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus status, generator->Status());
  lock_worked = status.counters.contains("lock_worked_ns_max");
  const uint64_t ns = status.counter(lock_worked ? "lock_worked_ns_max" : "lock_held_ns_max");
  longest_lock_us = std::max(longest_lock_us, static_cast<double>(ns) / 1e3);
  lock_seconds += static_cast<double>(status.counter("lock_held_ns")) / 1e9;
  return absl::OkStatus();
}

absl::StatusOr<Report> RunTable(const Options& options, const Progress& progress) {
  TableRun run(options, progress);
  for (const auto& [name, section] : Sections()) {
    const auto& wanted = options.sections;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
    const absl::Status status = section(&run);
    if (status.ok()) continue;
    // The other sections' figures are still good.
    run.report.lines.push_back(MissingLine(name, std::string(status.message())));
    run.report.failure = absl::StrCat(name, ": ", status.message());
  }
  for (const Series* one : run.baselines.all()) run.report.baselines.push_back(*one);
  run.report.baseline_huge_page_bytes = run.baselines.huge_page_bytes();
  return std::move(run.report);
}

}  // namespace kvkeep::bench
