#include "tools/bench/cpu_costs.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/load_generator.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kCostChunkBytes = 4 * kMiB;
constexpr uint32_t kCostBatch = 4;
constexpr uint64_t kCostG2Bytes = 512 * kMiB;
constexpr uint64_t kGetKeys = 64;
// G3's side: twice G2, so that what is taken in turn was evicted before.
constexpr uint64_t kSmallG2Bytes = 160 * kMiB;
constexpr uint64_t kPromotedKeys = 80;
constexpr uint64_t kG3Bytes = 2 * kGiB;
constexpr uint64_t kLoadedAtOnce = 8;
constexpr uint64_t kWrittenChunksOfRound = 32;
constexpr std::chrono::milliseconds kPauseBetweenLooks{20};  // looks cost CPU time too

class Costs {
 public:
  Costs(const Options& options, const Progress& progress)
      : options_(options), progress_(progress), report_{.options = options} {}

  absl::StatusOr<Report> Measure() {
    KVKEEP_RETURN_IF_ERROR(MeasurePaths());
    KVKEEP_RETURN_IF_ERROR(MeasureG3());
    return std::move(report_);
  }

 private:
  absl::Status MeasurePaths();
  absl::Status MeasureG3();
  absl::Status MeasureWriteBack(LoadGenerator* generator, int pid);
  // All rounds of a case; verified where that costs the daemon nothing.
  absl::StatusOr<Series> Run(LoadGenerator* generator, const std::string& name,
                             const CaseSpec& spec);

  const Options& options_;
  const Progress& progress_;
  Report report_;
};

absl::StatusOr<Series> Costs::Run(LoadGenerator* generator, const std::string& name,
                                  const CaseSpec& spec) {
  if (progress_) progress_(name);
  KVKEEP_ASSIGN_OR_RETURN(Series series, generator->Prepare(name, spec));
  for (int round = 0; round < options_.rounds; ++round) {
    KVKEEP_RETURN_IF_ERROR(generator->Run(options_.seconds, &series));
  }
  return series;
}

absl::Status Costs::MeasurePaths() {
  DaemonOptions of_daemon = DaemonOf(options_, kCostG2Bytes, 0);
  of_daemon.tcp = true;
  KVKEEP_ASSIGN_OR_RETURN(auto daemon, DaemonProcess::Start(of_daemon));
  for (const std::string path : {"local", "unix", "tcp"}) {
    ClientTarget target = TargetOf(options_, daemon.get());
    target.path = path == "local" ? "local" : "grpc";
    if (path == "tcp") target.endpoint = daemon->tcp_endpoint();
    KVKEEP_ASSIGN_OR_RETURN(
        auto generator, LoadGenerator::Start(target, daemon->admin_endpoint(), 1, daemon->pid()));
    KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus status, generator->Status());
    report_.arena = status.arena;
    report_.daemon = status.version;
    KVKEEP_RETURN_IF_ERROR(generator->probe()->Clear().status());
    KVKEEP_RETURN_IF_ERROR(generator->Load(0, kGetKeys, kCostChunkBytes));
    for (const Verb verb : {Verb::kGet, Verb::kPut}) {
      const std::string name = absl::StrCat(path, " ", VerbName(verb));
      KVKEEP_ASSIGN_OR_RETURN(Series series, Run(generator.get(), name,
                                                 {.verb = verb,
                                                  .size = kCostChunkBytes,
                                                  .batch = kCostBatch,
                                                  .keys = kGetKeys,
                                                  // To read back what was put is a get.
                                                  .verify = verb == Verb::kGet}));
      report_.cpu_costs.push_back(CostOf(name, series));
      report_.cases.push_back(std::move(series));
    }
  }
  return absl::OkStatus();
}

absl::Status Costs::MeasureG3() {
  KVKEEP_ASSIGN_OR_RETURN(auto daemon,
                          DaemonProcess::Start(DaemonOf(options_, kSmallG2Bytes, kG3Bytes)));
  ClientTarget target = TargetOf(options_, daemon.get());
  target.path = "local";
  target.pool_bytes = kSmallG2Bytes / 4;
  KVKEEP_ASSIGN_OR_RETURN(auto generator,
                          LoadGenerator::Start(target, daemon->admin_endpoint(), 1, daemon->pid()));
  for (uint64_t first = 0; first < kPromotedKeys; first += kLoadedAtOnce) {
    KVKEEP_RETURN_IF_ERROR(generator->Load(first, kLoadedAtOnce, kCostChunkBytes, /*no_g3=*/false));
    KVKEEP_RETURN_IF_ERROR(generator->probe()->AwaitClean(kWriteBackPatience));
  }
  KVKEEP_ASSIGN_OR_RETURN(
      Series promoted,
      Run(generator.get(), "promotion",
          {.verb = Verb::kPieces, .size = kCostChunkBytes, .keys = kPromotedKeys, .no_g3 = false}));
  report_.cpu_costs.push_back(CostOf("promotion", promoted));
  report_.cases.push_back(std::move(promoted));
  return MeasureWriteBack(generator.get(), daemon->pid());
}

// A part at a time: what waits for its write leaves no room for more.
absl::Status Costs::MeasureWriteBack(LoadGenerator* generator, int pid) {
  if (progress_) progress_("write-back");
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus before, generator->Status());
  KVKEEP_ASSIGN_OR_RETURN(const double cpu_before, CpuSecondsOf(pid));
  const uint64_t chunks = static_cast<uint64_t>(options_.rounds) * kWrittenChunksOfRound;
  for (uint64_t at = 0; at < chunks; at += kLoadedAtOnce) {
    KVKEEP_RETURN_IF_ERROR(
        generator->Load(kPromotedKeys + at, kLoadedAtOnce, kCostChunkBytes, /*no_g3=*/false));
    KVKEEP_RETURN_IF_ERROR(generator->probe()->AwaitClean(kWriteBackPatience, kPauseBetweenLooks));
  }
  KVKEEP_ASSIGN_OR_RETURN(const double cpu_after, CpuSecondsOf(pid));
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus after, generator->Status());
  const auto since = [&](const char* name) { return after.counter(name) - before.counter(name); };
  const auto local_put = std::find_if(report_.cpu_costs.begin(), report_.cpu_costs.end(),
                                      [](const CpuCost& cost) { return cost.path == "local put"; });
  report_.cpu_costs.push_back(WriteBackCost(*local_put, since("put_bytes"), cpu_after - cpu_before,
                                            since("written_back_bytes")));
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
  return Costs(options, progress).Measure();
}

}  // namespace kvkeep::bench
