#include "tools/bench/pattern_report.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <utility>

#include "tools/kvkeep/print.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

constexpr double kMostOfAloneP99 = 4;

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }
double Share(uint64_t part, uint64_t whole) {
  return Share(static_cast<double>(part), static_cast<double>(whole));
}

double BytesPerSecond(uint64_t bytes, const PatternMeasured& m) {
  return Share(static_cast<double>(bytes), m.seconds);
}

// Ways that a device's head would have gone, for each prefix that was not all in memory.
double DeviceRunsPerPrefix(const PatternRun& run) {
  return Share(run.promotion_runs, run.loaded.prefixes_from_nvme);
}

Json ToJson(const PatternRun& run) {
  const PatternMeasured& m = run.loaded;
  return {{"pattern", ToReport(run.job.pattern)},
          {"chunk_bytes", run.job.chunk_bytes},
          {"get_chunks", run.job.get_chunks},
          {"depth", run.job.depth},
          {"recompute_us_per_chunk", run.job.recompute_seconds_per_chunk * 1e6},
          {"distinct_chunks", run.distinct_chunks},
          {"working_set_bytes", run.working_set_bytes()},
          {"offered_bytes_per_second", run.offered_bytes_per_second},
          {"recalled_bytes_per_second", BytesPerSecond(m.recalled_bytes, m)},
          {"stored_bytes_per_second", BytesPerSecond(m.stored_bytes, m)},
          {"found_share", Share(m.found_chunks, m.asked_chunks)},
          {"stored_share", Share(m.stored_chunks, m.stored_chunks + m.found_chunks)},
          {"from_nvme_share", run.from_nvme_share()},
          {"device_bytes_per_second", run.device_bytes_per_second},
          {"offered_share_of_device", run.offered_share_of_device()},
          {"nvme_share_of_device", run.offered_share_of_device() * run.from_nvme_share()},
          {"peak_share_of_device", run.peak_share_of_device()},
          {"below_device_rate", run.below_device_rate()},
          {"stalls_over_100_ms", m.stalls},
          {"fetch_faster_than_recompute_share", Share(m.faster_prefixes, m.prefixes)},
          {"promotions", run.promotions},
          {"device_runs", run.promotion_runs},
          {"device_runs_per_prefix", DeviceRunsPerPrefix(run)},
          {"daemon_cpu_seconds", run.daemon_cpu_seconds},
          {"alone", FieldsToReport(run.alone)},
          {"loaded", FieldsToReport(m)}};
}

// ---------------------------------------------------------------- for people

std::string Gb(double bytes) { return absl::StrFormat("%.2f", bytes / 1e9); }
std::string Plain(double value) { return absl::StrFormat("%.2f", value); }
std::string Percent(double share) { return tools::FormatShare(share, 1); }
std::string Ms(const LatencyHistogram& latency, double quantile) {
  return Plain(latency.QuantileUs(quantile) / 1e3);
}

// Rows of the table: a name and, of each rate, a cell.
struct Row {
  const char* name;
  std::string (*cell)(const PatternRun& run);
};
constexpr Row kRowsBefore[] = {
    {"offered, GB/s", [](const auto& run) { return Gb(run.offered_bytes_per_second); }},
    {"the drive alone, GB/s", [](const auto& run) { return Gb(run.device_bytes_per_second); }},
    {"of it, read in bursts", [](const auto& run) { return Percent(run.peak_share_of_device()); }},
    {"recalled, GB/s",
     [](const auto& run) { return Gb(BytesPerSecond(run.loaded.recalled_bytes, run.loaded)); }},
    {"stored, GB/s",
     [](const auto& run) { return Gb(BytesPerSecond(run.loaded.stored_bytes, run.loaded)); }},
    {"chunks asked for that were there",
     [](const auto& run) {
       return tools::FormatShare(static_cast<double>(run.loaded.found_chunks),
                                 static_cast<double>(run.loaded.asked_chunks));
     }},
    {"of these, on NVMe only", [](const auto& run) { return Percent(run.from_nvme_share()); }}};
constexpr Row kRowsBehind[] = {
    {"stalls over 100 ms", [](const auto& run) { return absl::StrCat(run.loaded.stalls); }},
    {"device runs a prefix", [](const auto& run) { return Plain(DeviceRunsPerPrefix(run)); }},
    {"prefixes got faster than recomputed",
     [](const auto& run) {
       return Percent(Share(run.loaded.faster_prefixes, run.loaded.prefixes));
     }},
    {"CPU s, clients", [](const auto& run) { return Plain(run.loaded.client_cpu_seconds); }},
    {"CPU s, daemon", [](const auto& run) { return Plain(run.daemon_cpu_seconds); }}};

std::string FormatRuns(const PatternReport& report) {
  std::vector<std::vector<std::string>> table = {{report.request.name + ", requests/s", "alone"}};
  const auto add = [&](std::string name, std::string alone, const auto& cell) {
    table.push_back({std::move(name), std::move(alone)});
    for (const PatternRun& run : report.runs) table.back().push_back(cell(run));
  };
  // Told of the prompts that were read alone, too.
  const auto add_latency = [&](const std::string& name, LatencyHistogram PatternMeasured::*which,
                               double quantile) {
    add(name, report.runs.empty() ? "" : Ms(report.runs[0].alone.*which, quantile),
        [&](const PatternRun& run) { return Ms(run.loaded.*which, quantile); });
  };
  for (const PatternRun& run : report.runs) {
    table[0].push_back(absl::StrFormat("%g", run.job.pattern.requests_per_second));
  }
  for (const Row& row : kRowsBefore) add(row.name, "", row.cell);
  for (const auto& [name, which] : {std::pair("prefix", &PatternMeasured::prefix),
                                    {"chunk, since its request was due", &PatternMeasured::chunk},
                                    {"wait for a next chunk", &PatternMeasured::chunk_wait},
                                    {"store", &PatternMeasured::store}}) {
    add_latency(absl::StrCat(name, ", p50, ms"), which, 0.5);
    add_latency(absl::StrCat(name, ", p99, ms"), which, 0.99);
    add_latency(absl::StrCat(name, ", p99.9, ms"), which, 0.999);
  }
  add_latency("begun late by us, p99, ms", &PatternMeasured::began_late, 0.99);
  for (const Row& row : kRowsBehind) add(row.name, "", row.cell);
  return tools::FormatTable(table);
}

std::string FormatTroubles(const PatternReport& report) {
  std::string text;
  for (const PatternRun& run : report.runs) {
    for (const PatternMeasured* m : {&run.alone, &run.loaded}) {
      text += TroublesOf("", m->wrong_bytes, m->verified_bytes, m->failed_calls, m->first_failure);
    }
  }
  if (const std::string wants = report.wants(); !wants.empty()) {
    absl::StrAppend(&text, "note: ", wants, "\n");
  }
  if (!report.device_why_not.empty()) {
    absl::StrAppend(&text, "note: the drive was not measured: ", report.device_why_not, "\n");
  }
  return text;
}

// The rate, and how much that is of the drive's: in bursts, where there are some.
std::string Where(const PatternReport& report, const PatternRun& run) {
  const std::string rate = absl::StrFormat("%s at %g requests/s", report.request.name,
                                           run.job.pattern.requests_per_second);
  if (run.device_bytes_per_second <= 0) return rate + " (the drive's rate is not known)";
  return absl::StrFormat("%s (at most %.0f %% of the drive's rate)", rate,
                         100 * run.peak_share_of_device());
}

}  // namespace

double PatternRun::from_nvme_share() const {
  return Share(served_g3_chunks, served_g3_chunks + served_g2_chunks);
}

double PatternRun::offered_share_of_device() const {
  return Share(offered_bytes_per_second, device_bytes_per_second);
}

double PatternRun::peak_share_of_device() const {
  const bool bursts = !IsClosedLoop(job.pattern.kind);
  return offered_share_of_device() * from_nvme_share() *
         (bursts ? std::max(1.0, job.pattern.burst_rate) : 1);
}

bool PatternReport::sound() const {
  return !runs.empty() && std::all_of(runs.begin(), runs.end(), [](const PatternRun& run) {
    return run.alone.wrong_bytes == 0 && run.alone.failed_calls == 0 &&
           run.loaded.wrong_bytes == 0 && run.loaded.failed_calls == 0 && run.loaded.requests > 0;
  });
}

std::string PatternReport::wants() const {
  uint64_t most = 0;
  for (const PatternRun& run : runs) most = std::max(most, run.working_set_bytes());
  const std::string of = absl::StrCat("the working set is ", tools::FormatBytes(most), ": ");
  if (g3_bytes == 0) return of + "without a G3 what does not fit G2 is lost";
  if (g2_bytes > most / 2) {
    return of + "G2 holds more than half of it; give the daemon less, so that NVMe is read";
  }
  if (g3_bytes < most) return of + "G3 does not hold it; give the daemon more";
  return "";
}

std::vector<Line> JudgePattern(const PatternReport& report) {
  std::vector<Line> lines;
  const auto p99_ms = [](const PatternMeasured& m) { return m.chunk.QuantileUs(0.99) / 1e3; };
  for (const PatternRun& run : report.runs) {
    const bool promised = !IsClosedLoop(run.job.pattern.kind) && run.below_device_rate();
    const auto at_most = [promised](double limit) {
      return promised ? Target{Bound::kAtMost, limit} : Target{};
    };
    const std::string where = Where(report, run);
    lines.push_back(PlainLine(where + ": waits above 100 ms", "",
                              {static_cast<double>(run.loaded.stalls)}, at_most(0)));
    lines.push_back(RatioLine(where + ": p99 of a chunk against alone", "ms", {p99_ms(run.loaded)},
                              {p99_ms(run.alone)}, at_most(kMostOfAloneP99)));
    for (Line* line : {&lines.end()[-2], &lines.back()}) {
      line->numbers["requests_per_second"] = run.job.pattern.requests_per_second;
    }
  }
  return lines;
}

Json ToJson(const PatternReport& report) {
  Json runs = Json::array();
  for (const PatternRun& run : report.runs) runs.push_back(ToJson(run));
  return {{"request", FieldsToJson(report.request)},
          {"model",
           {{"kv_bytes_per_token", report.model.kv_bytes_per_token},
            {"prefill_tokens_per_second", report.model.prefill_tokens_per_second}}},
          {"daemon", report.daemon},
          {"arena", report.arena},
          {"path", report.path},
          {"g2_bytes", report.g2_bytes},
          {"g3_bytes", report.g3_bytes},
          {"wants", report.wants()},
          {"device_why_not", report.device_why_not},
          {"runs", std::move(runs)},
          {"table", ToJson(report.lines)},
          {"sound", report.sound()}};
}

std::string FormatPattern(const PatternReport& report) {
  return absl::StrCat("path: ", report.path, "\narena: ", report.arena, "\n\n", FormatRuns(report),
                      FormatTroubles(report), "\n", FormatLines(report.lines));
}

}  // namespace kvkeep::bench
