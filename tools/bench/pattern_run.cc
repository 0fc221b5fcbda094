#include "tools/bench/cases.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/fio.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kPatternMinG2Bytes = 32 * kMiB;
constexpr uint64_t kG3BesideChunks = 256 * kMiB;  // index and reserves
constexpr uint64_t kRequestsAlone = 16;
constexpr double kSecondsToBegin = 0.1;  // for all workers to hear of it
constexpr uint64_t kDeviceFileBytes = kGiB, kQuickDeviceFileBytes = 16 * kMiB;
constexpr double kDeviceSeconds = 2, kQuickDeviceSeconds = 0.05;

// One daemon, its workers, the drive below it, and what is asked of them.
class Runner {
 public:
  Runner(const Options& options, const Progress& progress, PatternReport* report)
      : options_(options), progress_(progress), report_(*report) {}

  absl::Status Start(const PatternJob& job, uint64_t working_set_bytes);
  absl::StatusOr<PatternRun> Run(const PatternJob& job);

 private:
  absl::Status StartDaemon(uint64_t working_set_bytes);
  void OpenDrive();
  double DriveReads();  // bytes a second, while the daemon does nothing; 0: not measured
  absl::Status StoreBefore(const PatternJob& job, uint64_t chunks);
  absl::Status Play(const PatternJob& job, PatternRun* run);

  const Options& options_;
  const Progress& progress_;
  PatternReport& report_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<Fio> fio_;  // goes before the daemon's directory
  std::unique_ptr<LoadGenerator> workers_;
};

absl::Status Runner::StartDaemon(uint64_t working_set_bytes) {
  if (options_.daemon.empty()) return absl::OkStatus();
  const uint64_t g2 =
      options_.g2_bytes > 0
          ? options_.g2_bytes
          : std::max(RoundUp(working_set_bytes / 4, 2 * kMiB), kPatternMinG2Bytes);
  const uint64_t g3 = options_.g3_bytes > 0
                          ? options_.g3_bytes
                          : RoundUp(working_set_bytes / 4 * 5 + kG3BesideChunks, 2 * kMiB);
  Say(progress_, "start kvkeepd");
  KVKEEP_ASSIGN_OR_RETURN(daemon_, DaemonProcess::Start(DaemonOf(options_, g2, g3)));
  return absl::OkStatus();
}

void Runner::OpenDrive() {
  const std::string directory = daemon_ == nullptr ? options_.scratch_dir : daemon_->directory();
  if (directory.empty()) {
    report_.device_why_not = "say with --scratch which directory is on the daemon's drive";
    return;
  }
  Say(progress_, "write a file for fio");
  const bool quick = report_.request.quick;
  auto fio = Fio::Make({.directory = directory,
                        .data_bytes = quick ? kQuickDeviceFileBytes : kDeviceFileBytes,
                        .seconds = quick ? kQuickDeviceSeconds : kDeviceSeconds});
  if (fio.ok()) {
    fio_ = *std::move(fio);
  } else {
    report_.device_why_not = std::string(fio.status().message());
  }
}

double Runner::DriveReads() {
  if (fio_ == nullptr) return 0;
  const absl::StatusOr<double> gb_per_second = fio_->Read();
  if (gb_per_second.ok()) return *gb_per_second * 1e9;
  report_.device_why_not = std::string(gb_per_second.status().message());
  return 0;
}

absl::Status Runner::Start(const PatternJob& job, uint64_t working_set_bytes) {
  KVKEEP_RETURN_IF_ERROR(StartDaemon(working_set_bytes));
  OpenDrive();
  const std::string admin =
      daemon_ == nullptr ? options_.admin_endpoint : daemon_->admin_endpoint();
  KVKEEP_ASSIGN_OR_RETURN(workers_,
                          LoadGenerator::Start(TargetOf(options_, daemon_.get()), admin,
                                               job.pattern.workers, options_.daemon_pid));
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus status, workers_->Status());
  report_.g2_bytes = status.g2_capacity_bytes;
  report_.g3_bytes = status.g3_capacity_bytes;
  report_.arena = status.arena;
  report_.daemon = status.version;
  report_.path = workers_->path();
  return absl::OkStatus();
}

absl::StatusOr<PatternRun> Runner::Run(const PatternJob& job) {
  const Pattern pattern = MakePattern(job.pattern);
  PatternRun run{.job = job, .distinct_chunks = pattern.DistinctChunks()};
  uint64_t asked = 0;
  for (const PromptRequest& request : pattern.requests) asked += request.prompt.size();
  run.offered_bytes_per_second = static_cast<double>(asked * job.chunk_bytes) / job.pattern.seconds;
  KVKEEP_RETURN_IF_ERROR(workers_->probe()->Clear());
  KVKEEP_RETURN_IF_ERROR(
      workers_->AskAll({{"do", "prepare pattern"}, {"job", FieldsToJson(job)}}).status());
  KVKEEP_RETURN_IF_ERROR(StoreBefore(job, pattern.before.size()));
  Say(progress_, "recall some prompts alone");
  KVKEEP_ASSIGN_OR_RETURN(
      const Json alone, workers_->Ask({{"do", "recall alone"}, {"requests", kRequestsAlone}}));
  run.alone = FieldsFromJson<PatternMeasured>(alone);
  const double before = DriveReads();
  KVKEEP_RETURN_IF_ERROR(Play(job, &run));
  KVKEEP_RETURN_IF_ERROR(workers_->probe()->AwaitClean());
  // The worse of both: what is asked for must be below it.
  run.device_bytes_per_second = std::min(before, DriveReads());
  return run;
}

// No faster than it is written back: nothing is to be lost before it begins.
absl::Status Runner::StoreBefore(const PatternJob& job, uint64_t chunks) {
  const uint64_t at_once = std::max<uint64_t>(report_.g2_bytes / 8 / WorkingSetBytes(job, 1), 1);
  for (uint64_t first = 0; first < chunks; first += at_once) {
    Say(progress_, absl::StrCat("store what is there before: ", first, " of ", chunks));
    KVKEEP_RETURN_IF_ERROR(workers_
                               ->Ask({{"do", "store before"},
                                      {"first", first},
                                      {"count", std::min(at_once, chunks - first)}})
                               .status());
    KVKEEP_RETURN_IF_ERROR(workers_->probe()->AwaitClean());
  }
  return absl::OkStatus();
}

absl::Status Runner::Play(const PatternJob& job, PatternRun* run) {
  Say(progress_,
      absl::StrCat(PatternName(job.pattern.kind), " at ", job.pattern.requests_per_second,
                   " requests/s for ", job.pattern.seconds, " s"));
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus before, workers_->Status());
  const double cpu_before = CpuSecondsOf(workers_->daemon_pid()).value_or(0);
  // A daemon that cannot keep up takes longer than the pattern.
  KVKEEP_ASSIGN_OR_RETURN(
      const auto played,
      workers_->AskAll({{"do", "play"}, {"begin_at", WallSeconds() + kSecondsToBegin}},
                       2 * job.pattern.seconds));
  for (const Json& wire : played) run->loaded.Add(FieldsFromJson<PatternMeasured>(wire));
  const double cpu_after = CpuSecondsOf(workers_->daemon_pid()).value_or(cpu_before);
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus after, workers_->Status());
  run->daemon_cpu_seconds = cpu_after - cpu_before;
  run->served_g2_chunks = after.Since(before, "read_g2_hits");
  run->served_g3_chunks = after.Since(before, "read_g3_hits");
  run->promotions = after.Since(before, "promotions");
  run->promotion_runs = after.Since(before, "promotion_runs");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PatternReport> RunPattern(const Options& options, const PatternRequest& request,
                                         const Progress& progress) {
  PatternReport report{.request = request};
  KVKEEP_ASSIGN_OR_RETURN(report.model, ModelOf(request));
  KVKEEP_ASSIGN_OR_RETURN(const std::vector<PatternJob> jobs, JobsOf(request));
  uint64_t most = 0;
  for (const PatternJob& job : jobs) {
    most = std::max(most, WorkingSetBytes(job, MakePattern(job.pattern).DistinctChunks()));
  }
  Runner runner(options, progress, &report);
  KVKEEP_RETURN_IF_ERROR(runner.Start(jobs[0], most));
  for (const PatternJob& job : jobs) {
    KVKEEP_ASSIGN_OR_RETURN(report.runs.emplace_back(), runner.Run(job));
  }
  report.lines = JudgePattern(report);
  return report;
}

}  // namespace kvkeep::bench
