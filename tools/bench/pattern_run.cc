#include "tools/bench/pattern_run.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/daemon_process.h"
#include "tools/bench/pattern_device.h"
#include "tools/bench/pattern_verdict.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kPatternMinG2Bytes = 32 * kMiB;
constexpr uint64_t kG3BesideChunks = 256 * kMiB;  // index and reserves
constexpr uint64_t kRequestsAlone = 16;
constexpr double kSecondsToBegin = 0.1;  // for all workers to hear of it

// One daemon, its workers, and what is asked of both.
class Runner {
 public:
  Runner(const Options& options, const Progress& progress)
      : options_(options), progress_(progress) {}

  absl::Status Start(const PatternJob& job, uint64_t working_set_bytes, PatternReport* report);
  absl::StatusOr<PatternRun> Run(const PatternJob& job);
  // Empty: the drive was measured.
  std::string device_why_not() const { return device_->why_not(); }

 private:
  absl::Status StoreBefore(const PatternJob& job, uint64_t chunks);
  absl::Status Play(const PatternJob& job, PatternRun* run);

  const Options& options_;
  const Progress& progress_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<PatternDevice> device_;  // goes before the daemon's directory
  std::unique_ptr<DaemonProbe> probe_;
  std::vector<std::unique_ptr<PatternClient>> workers_;
  uint64_t g2_bytes_ = 0;
  int pid_ = 0;
};

absl::Status Runner::Start(const PatternJob& job, uint64_t working_set_bytes,
                           PatternReport* report) {
  if (!options_.daemon_binary.empty()) {
    const uint64_t g2 = options_.g2_bytes > 0 ? options_.g2_bytes
                                              : std::max(RoundUp(working_set_bytes / 4, 2 * kMiB),
                                                         kPatternMinG2Bytes);
    const uint64_t g3 = options_.g3_bytes > 0
                            ? options_.g3_bytes
                            : RoundUp(working_set_bytes / 4 * 5 + kG3BesideChunks, 2 * kMiB);
    Say(progress_, "start kvkeepd");
    KVKEEP_ASSIGN_OR_RETURN(daemon_, DaemonProcess::Start(DaemonOf(options_, g2, g3)));
  }
  Say(progress_, "write a file for fio");
  device_ = std::make_unique<PatternDevice>(
      daemon_ == nullptr ? options_.scratch_dir : daemon_->directory(), report->request.quick);
  const ClientTarget target = TargetOf(options_, daemon_.get());
  for (uint32_t i = 0; i < job.pattern.workers; ++i) {
    KVKEEP_ASSIGN_OR_RETURN(auto worker, PatternClient::Start(target, i));
    workers_.push_back(std::move(worker));
  }
  const std::string admin =
      daemon_ == nullptr ? options_.admin_endpoint : daemon_->admin_endpoint();
  KVKEEP_ASSIGN_OR_RETURN(probe_, DaemonProbe::Start(admin));
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus status, probe_->Status());
  pid_ = options_.daemon_pid > 0 ? options_.daemon_pid : status.pid;
  g2_bytes_ = status.g2_capacity_bytes;
  report->g2_bytes = status.g2_capacity_bytes;
  report->g3_bytes = status.g3_capacity_bytes;
  report->arena = status.arena;
  report->daemon = status.version;
  report->path = workers_[0]->why().empty() ? workers_[0]->path() : workers_[0]->why();
  return absl::OkStatus();
}

absl::StatusOr<PatternRun> Runner::Run(const PatternJob& job) {
  const Pattern pattern = MakePattern(job.pattern);
  PatternRun run{.job = job, .distinct_chunks = pattern.DistinctChunks()};
  uint64_t asked = 0;
  for (const PromptRequest& request : pattern.requests) asked += request.prompt.size();
  run.offered_bytes_per_second = static_cast<double>(asked * job.chunk_bytes) / job.pattern.seconds;
  KVKEEP_RETURN_IF_ERROR(probe_->Clear().status());
  for (auto& worker : workers_) KVKEEP_RETURN_IF_ERROR(worker->Prepare(job));
  KVKEEP_RETURN_IF_ERROR(StoreBefore(job, pattern.before.size()));
  Say(progress_, "recall some prompts alone");
  KVKEEP_ASSIGN_OR_RETURN(run.alone, workers_[0]->RecallAlone(kRequestsAlone));
  const double before = device_->ReadRate();
  KVKEEP_RETURN_IF_ERROR(Play(job, &run));
  KVKEEP_RETURN_IF_ERROR(probe_->AwaitClean(kWriteBackPatience));
  // The worse of both: what is asked for must be below it.
  run.device_bytes_per_second = std::min(before, device_->ReadRate());
  return run;
}

// No faster than it is written back: nothing is to be lost before it begins.
absl::Status Runner::StoreBefore(const PatternJob& job, uint64_t chunks) {
  const uint64_t at_once = std::max<uint64_t>(g2_bytes_ / 8 / WorkingSetBytes(job, 1), 1);
  for (uint64_t first = 0; first < chunks; first += at_once) {
    Say(progress_, absl::StrCat("store what is there before: ", first, " of ", chunks));
    KVKEEP_RETURN_IF_ERROR(workers_[0]->StoreBefore(first, std::min(at_once, chunks - first)));
    KVKEEP_RETURN_IF_ERROR(probe_->AwaitClean(kWriteBackPatience));
  }
  return absl::OkStatus();
}

absl::Status Runner::Play(const PatternJob& job, PatternRun* run) {
  Say(progress_,
      absl::StrCat(PatternName(job.pattern.kind), " at ", job.pattern.requests_per_second,
                   " requests/s for ", job.pattern.seconds, " s"));
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus before, probe_->Status());
  const double cpu_before = CpuSecondsOf(pid_).value_or(0);
  const double begin_at = WallSeconds() + kSecondsToBegin;
  for (auto& worker : workers_) KVKEEP_RETURN_IF_ERROR(worker->StartPlay(begin_at));
  for (auto& worker : workers_) {
    KVKEEP_ASSIGN_OR_RETURN(const PatternMeasured played, worker->FinishPlay(job.pattern.seconds));
    run->loaded.Add(played);
  }
  const double cpu_after = CpuSecondsOf(pid_).value_or(cpu_before);
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus after, probe_->Status());
  const auto since = [&](const char* name) { return after.counter(name) - before.counter(name); };
  run->daemon = UsageBetween(before, after);
  run->daemon.cpu_seconds = cpu_after - cpu_before;
  run->served_g2_chunks = since("read_g2_hits");
  run->served_g3_chunks = since("read_g3_hits");
  run->promotions = since("promotions");
  run->promotion_runs = since("promotion_runs");
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
  Runner runner(options, progress);
  KVKEEP_RETURN_IF_ERROR(runner.Start(jobs[0], most, &report));
  for (const PatternJob& job : jobs) {
    KVKEEP_ASSIGN_OR_RETURN(report.runs.emplace_back(), runner.Run(job));
  }
  report.device_why_not = runner.device_why_not();
  report.lines = JudgePattern(report);
  return report;
}

}  // namespace kvkeep::bench
