#include "tools/bench/cases.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kCostChunkBytes = 4 * kMiB;
constexpr uint32_t kCostBatch = 4;
constexpr uint64_t kCostG2Bytes = 512 * kMiB;
constexpr uint64_t kGetKeys = 64;
// G3's side: twice G2, so that what is taken in turn was evicted before.
constexpr uint64_t kSmallG2Bytes = 160 * kMiB;
constexpr uint64_t kPromotedKeys = 80;
constexpr uint64_t kCostG3Bytes = 2 * kGiB;
constexpr uint64_t kLoadedAtOnce = 8;
constexpr uint64_t kWrittenChunksOfRound = 32;
constexpr std::chrono::milliseconds kPauseBetweenLooks{20};  // looks cost CPU time too

// All rounds of a case, and its cost in the report.
absl::Status RunCost(LoadGenerator& load, const std::string& name, const CaseSpec& spec,
                     const Progress& progress, Report* report) {
  Say(progress, name);
  KVKEEP_ASSIGN_OR_RETURN(Series series, load.Prepare(name, spec));
  for (int round = 0; round < report->options.rounds; ++round) {
    KVKEEP_RETURN_IF_ERROR(load.Run(report->options.seconds, &series));
  }
  report->cpu_costs.push_back(CostOf(name, series));
  report->cases.push_back(std::move(series));
  return absl::OkStatus();
}

absl::Status MeasurePaths(const Progress& progress, Report* report) {
  DaemonOptions of_daemon = DaemonOf(report->options, kCostG2Bytes, 0);
  of_daemon.tcp = true;
  KVKEEP_ASSIGN_OR_RETURN(const auto daemon, DaemonProcess::Start(of_daemon));
  for (const std::string path : {"local", "unix", "tcp"}) {
    ClientTarget target = TargetOf(report->options, daemon.get());
    target.path = path == "local" ? "local" : "grpc";
    if (path == "tcp") target.endpoint = daemon->tcp_endpoint();
    KVKEEP_ASSIGN_OR_RETURN(
        const auto load, LoadGenerator::Start(target, daemon->admin_endpoint(), 1, daemon->pid()));
    KVKEEP_RETURN_IF_ERROR(Describe(*load, report));
    KVKEEP_RETURN_IF_ERROR(load->probe()->Clear());
    KVKEEP_RETURN_IF_ERROR(load->Load(0, kGetKeys, kCostChunkBytes));
    for (const Verb verb : {Verb::kGet, Verb::kPut}) {
      KVKEEP_RETURN_IF_ERROR(RunCost(*load, absl::StrCat(path, " ", VerbName(verb)),
                                     {.verb = verb,
                                      .size = kCostChunkBytes,
                                      .batch = kCostBatch,
                                      .keys = kGetKeys,
                                      // To read back what was put is a get.
                                      .verify = verb == Verb::kGet},
                                     progress, report));
    }
  }
  report->path.clear();  // they are several
  return absl::OkStatus();
}

// A part at a time: what waits for its write leaves no room for more.
absl::Status LoadAndWrite(LoadGenerator& load, uint64_t first, uint64_t chunks) {
  for (uint64_t at = 0; at < chunks; at += kLoadedAtOnce) {
    KVKEEP_RETURN_IF_ERROR(
        load.Load(first + at, kLoadedAtOnce, kCostChunkBytes, /*no_g3=*/false));
    KVKEEP_RETURN_IF_ERROR(load.probe()->AwaitClean(kWriteBackPatience, kPauseBetweenLooks));
  }
  return absl::OkStatus();
}

absl::Status MeasureG3(const Progress& progress, Report* report) {
  KVKEEP_ASSIGN_OR_RETURN(
      const auto daemon,
      DaemonProcess::Start(DaemonOf(report->options, kSmallG2Bytes, kCostG3Bytes)));
  ClientTarget target = TargetOf(report->options, daemon.get());
  target.path = "local";
  target.pool_bytes = kSmallG2Bytes / 4;
  KVKEEP_ASSIGN_OR_RETURN(
      const auto load, LoadGenerator::Start(target, daemon->admin_endpoint(), 1, daemon->pid()));
  KVKEEP_RETURN_IF_ERROR(LoadAndWrite(*load, 0, kPromotedKeys));
  KVKEEP_RETURN_IF_ERROR(RunCost(*load, "promotion",
                                 {.verb = Verb::kPieces,
                                  .size = kCostChunkBytes,
                                  .keys = kPromotedKeys,
                                  .no_g3 = false},
                                 progress, report));
  Say(progress, "write-back");
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus before, load->Status());
  KVKEEP_ASSIGN_OR_RETURN(const double cpu_before, CpuSecondsOf(daemon->pid()));
  KVKEEP_RETURN_IF_ERROR(LoadAndWrite(
      *load, kPromotedKeys,
      static_cast<uint64_t>(report->options.rounds) * kWrittenChunksOfRound));
  KVKEEP_ASSIGN_OR_RETURN(const double cpu_after, CpuSecondsOf(daemon->pid()));
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus after, load->Status());
  const auto local_put = std::find_if(report->cpu_costs.begin(), report->cpu_costs.end(),
                                      [](const CpuCost& cost) { return cost.path == "local put"; });
  report->cpu_costs.push_back(WriteBackCost(*local_put, after.Since(before, "put_bytes"),
                                            cpu_after - cpu_before,
                                            after.Since(before, "written_back_bytes")));
  return absl::OkStatus();
}

double PerGigabyte(double seconds, double bytes) { return bytes <= 0 ? 0 : seconds / bytes * 1e9; }

}  // namespace

CpuCost CostOf(const std::string& path, const Series& series) {
  const Measured all = series.total();
  const auto bytes = static_cast<double>(all.bytes);
  return {.path = path,
          .gigabytes = bytes / 1e9,
          .client_seconds_per_gb = PerGigabyte(all.client_cpu_seconds, bytes),
          .daemon_seconds_per_gb = PerGigabyte(series.daemon.cpu_seconds, bytes)};
}

CpuCost WriteBackCost(const CpuCost& put, uint64_t put_bytes, double cpu_seconds,
                      uint64_t written_bytes) {
  const double puts = put.daemon_seconds_per_gb * static_cast<double>(put_bytes) / 1e9;
  const auto written = static_cast<double>(written_bytes);
  return {.path = "write-back",
          .gigabytes = written / 1e9,
          .daemon_seconds_per_gb = PerGigabyte(std::max(cpu_seconds - puts, 0.0), written)};
}

absl::StatusOr<Report> RunCpuCosts(const Options& options, const Progress& progress) {
  Report report{.options = options};
  KVKEEP_RETURN_IF_ERROR(MeasurePaths(progress, &report));
  KVKEEP_RETURN_IF_ERROR(MeasureG3(progress, &report));
  return report;
}

}  // namespace kvkeep::bench
