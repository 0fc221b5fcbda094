// The section of the table about hits in G2 while write-back keeps the drive busy, and nothing else
// does anything: puts would take the CPU that hits want, and could not keep a drive of today busy.
// So chunks lie in G2 that are not worth a write until they are used again (admission second_use):
// a quiet slice of gets, then one lookup of all of those, and gets for as long as they are written.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/table_lines.h"
#include "tools/bench/table_sections.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kHitBytes = 4 * kMiB;
constexpr double kSliceSeconds = 0.1;  // of which some follow while there is something dirty
constexpr double kMostOfQuietP50 = 1.2;
// p99: at most twice the quiet one and so much more.
constexpr double kTimesQuietP99 = 2, kBeyondQuietP99Us = 100;

struct HitSeries {
  Series quiet, busy;
  Series use;                                 // the lookup
  std::vector<double> written_gb_per_second;  // meanwhile
};

// Gets until nothing is dirty or the time is up. A slice at whose end nothing was dirty any more
// does not count; where the drive was done before the first one ended, nor does the quiet one.
absl::Status GetWhileDirty(TableRun* run, LoadGenerator* generator, HitSeries* series) {
  Series slices = series->busy;
  slices.rounds.clear();
  const double began = WallSeconds();
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus before, generator->Status());
  DaemonStatus after = before;
  double took = 0;
  while (took < run->scale.seconds) {
    KVKEEP_RETURN_IF_ERROR(generator->Run(std::min(kSliceSeconds, run->scale.seconds), &slices));
    KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus now, generator->Status());
    if (now.g2_dirty_bytes == 0) {
      slices.rounds.pop_back();
      break;
    }
    after = now;
    took = WallSeconds() - began;
  }
  if (slices.rounds.empty()) {
    series->quiet.rounds.pop_back();
    return absl::OkStatus();
  }
  series->busy.rounds.push_back(slices.total());
  series->busy.daemon.Add(slices.daemon);
  series->written_gb_per_second.push_back(
      (static_cast<double>(before.g2_dirty_bytes) - static_cast<double>(after.g2_dirty_bytes)) /
      took / 1e9);
  return absl::OkStatus();
}

// One round: a daemon that nothing was offered to yet.
absl::Status RunHitRound(TableRun* run, HitSeries* series) {
  const TableScale& scale = run->scale;
  const uint64_t bytes = scale.hits_dirty_chunks * kHitBytes;
  DaemonOptions options = DaemonOf(run->options, RoundUp(bytes / 4 * 5, 2 * kMiB), 2 * bytes);
  options.g3_admission = "second_use";
  KVKEEP_ASSIGN_OR_RETURN(auto daemon, DaemonProcess::Start(options));
  KVKEEP_ASSIGN_OR_RETURN(auto generator, run->Connect(*daemon));
  CaseSpec spec = {.verb = Verb::kGet,
                   .size = kHitBytes,
                   .keys = scale.hits_keys,
                   .verify = run->options.verify};
  KVKEEP_ASSIGN_OR_RETURN(const Series get, generator->Prepare(series->quiet.name, spec));
  spec.verb = Verb::kLookup;
  spec.keys = scale.hits_dirty_chunks;
  spec.batch = static_cast<uint32_t>(scale.hits_dirty_chunks);
  KVKEEP_ASSIGN_OR_RETURN(const Series use, generator->Prepare(series->use.name, spec));
  series->quiet.about = series->busy.about = get.about;
  series->use.about = use.about;
  KVKEEP_RETURN_IF_ERROR(generator->Load(0, scale.hits_dirty_chunks, kHitBytes, /*no_g3=*/false));
  KVKEEP_RETURN_IF_ERROR(generator->Run(scale.seconds, &series->quiet));
  KVKEEP_RETURN_IF_ERROR(generator->Run(scale.seconds, &series->use, /*max_ops=*/1));
  KVKEEP_RETURN_IF_ERROR(GetWhileDirty(run, generator.get(), series));
  return run->NoteLocks(generator.get());
}

void AddHitLines(TableRun* run, const HitSeries& series) {
  const std::string what = "hit of 4 MiB in G2 while write-back is at its most: ";
  std::vector<Line>& lines = run->report.lines;
  if (series.busy.rounds.empty()) {
    lines.push_back(
        MissingLine(what + "p50 and p99", "the drive was done before a slice of gets was"));
    return;
  }
  Line p50 = RatioLine(what + "p50 against quiet", "us", series.busy.LatencyUs(0.5),
                       series.quiet.LatencyUs(0.5), {Bound::kAtMost, kMostOfQuietP50});
  p50.numbers["written_gb_per_second"] = series.written_gb_per_second;
  lines.push_back(std::move(p50));
  std::vector<double> twice = series.quiet.LatencyUs(0.99);
  for (double& us : twice) us *= kTimesQuietP99;
  lines.push_back(DifferenceLine(what + "p99 beyond twice the quiet one", "us",
                                 series.busy.LatencyUs(0.99), twice,
                                 {Bound::kAtMost, kBeyondQuietP99Us}));
}

}  // namespace

absl::Status RunHits(TableRun* run) {
  HitSeries series;
  series.quiet = {.name = "hits of 4 MiB, quiet", .has_daemon = true};
  series.busy = {.name = "hits of 4 MiB beside write-back", .has_daemon = true};
  series.use = {.name = "use of what is not written", .has_daemon = true};
  for (int round = 0; round < run->scale.rounds; ++round) {
    run->Say(absl::StrCat("hits: round ", round + 1, " of ", run->scale.rounds));
    KVKEEP_RETURN_IF_ERROR(RunHitRound(run, &series));
  }
  AddHitLines(run, series);
  for (Series* one : {&series.quiet, &series.busy, &series.use}) {
    if (!one->rounds.empty()) run->report.cases.push_back(std::move(*one));
  }
  return absl::OkStatus();
}

}  // namespace kvkeep::bench
