// The section of the table about the arena's first touch: how fast a daemon that starts brings its
// pages there, beside as many threads of ours that do nothing else.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/process_memory.h"
#include "tools/bench/shared_pages.h"
#include "tools/bench/table_lines.h"
#include "tools/bench/table_sections.h"

namespace kvkeep::bench {
namespace {

constexpr int kMostTouchThreads = 4;  // of the daemon's copy pool, unless it is configured
constexpr uint64_t kTouchBegun = 16 * kMiB;
constexpr double kTouchPatienceSeconds = 120;
constexpr std::chrono::milliseconds kTouchPause{1};
constexpr double kLeastOfTouch = 0.8;

// When a process has brought how much there: from the first look that shows some to the first that
// shows all.
class TouchWatch {
 public:
  explicit TouchWatch(uint64_t bytes) : bytes_(bytes) {}

  void Look(int pid) {
    const absl::StatusOr<uint64_t> there = ResidentSharedBytes(pid);
    if (!there.ok() || *there < std::min(kTouchBegun, bytes_ / 8) || done()) return;
    const double now = WallSeconds();
    if (begun_at_ == 0) {
      begun_at_ = now;
      begun_bytes_ = *there;
    }
    if (*there >= bytes_) done_at_ = now;
  }
  bool done() const { return done_at_ > 0; }
  double GbPerSecond() const {
    const double seconds = std::max(done_at_ - begun_at_, 1e-3);  // it was looked once a ms
    return static_cast<double>(bytes_ - std::min(bytes_, begun_bytes_)) / seconds / 1e9;
  }

 private:
  const uint64_t bytes_;
  uint64_t begun_bytes_ = 0;
  double begun_at_ = 0, done_at_ = 0;
};

absl::StatusOr<double> DaemonsRate(TableRun* run) {
  TouchWatch watch(run->scale.put_g2_bytes);
  DaemonOptions options = DaemonOf(run->options, run->scale.put_g2_bytes, 0);
  options.while_starting = [&watch](int pid) { watch.Look(pid); };
  KVKEEP_ASSIGN_OR_RETURN(auto daemon, DaemonProcess::Start(options));
  const double give_up = WallSeconds() + kTouchPatienceSeconds;
  for (; !watch.done(); watch.Look(daemon->pid())) {
    if (WallSeconds() > give_up) return absl::DeadlineExceededError("the arena is not touched");
    std::this_thread::sleep_for(kTouchPause);  // for another process
  }
  return watch.GbPerSecond();
}

absl::StatusOr<double> OurRate(TableRun* run, int threads) {
  KVKEEP_ASSIGN_OR_RETURN(SharedPages pages, SharedPages::CreateUntouched(run->scale.put_g2_bytes,
                                                                          run->options.arena_dir));
  const double began = WallSeconds();
  KVKEEP_RETURN_IF_ERROR(pages.Touch(threads));
  return static_cast<double>(pages.memory().size()) / (WallSeconds() - began) / 1e9;
}

}  // namespace

absl::Status RunPrefault(TableRun* run) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = run->options.copy_threads > 0 ? run->options.copy_threads
                                                    : std::min(cores, kMostTouchThreads);
  std::vector<double> daemons, ours;
  for (int round = 0; round < run->scale.rounds; ++round) {
    run->Say(absl::StrCat("prefault: round ", round + 1, " of ", run->scale.rounds));
    // Pages that somebody has just given back come sooner: each is the first in turn.
    for (const bool daemon : {round % 2 == 0, round % 2 != 0}) {
      KVKEEP_ASSIGN_OR_RETURN(const double rate, daemon ? DaemonsRate(run) : OurRate(run, threads));
      (daemon ? daemons : ours).push_back(rate);
    }
  }
  Line line = RatioLine(
      absl::StrCat("prefault: against a touch by ", threads, threads == 1 ? " thread" : " threads"),
      "GB/s", daemons, ours, {Bound::kAtLeast, kLeastOfTouch});
  line.numbers["bytes"] = run->scale.put_g2_bytes;
  run->report.lines.push_back(std::move(line));
  return absl::OkStatus();
}

}  // namespace kvkeep::bench
