#include "tools/bench/pattern_report.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <functional>

#include "tools/kvkeep/print.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

double Faster(const PatternMeasured& m) {
  return Share(static_cast<double>(m.faster_prefixes), static_cast<double>(m.prefixes));
}

double Rate(uint64_t bytes, double seconds) { return Share(static_cast<double>(bytes), seconds); }

std::string Ms(const LatencyHistogram& latency, double quantile) {
  return absl::StrFormat("%.2f", static_cast<double>(latency.Quantile(quantile)) / 1e6);
}

Json ToJson(const PatternRun& run) {
  const PatternMeasured& m = run.loaded;
  const auto stored = static_cast<double>(m.stored_chunks);
  return {{"pattern", ToJson(run.job.pattern)},
          {"chunk_bytes", run.job.chunk_bytes},
          {"get_chunks", run.job.get_chunks},
          {"depth", run.job.depth},
          {"recompute_us_per_chunk", run.job.recompute_seconds_per_chunk * 1e6},
          {"distinct_chunks", run.distinct_chunks},
          {"working_set_bytes", run.working_set_bytes()},
          {"offered_bytes_per_second", run.offered_bytes_per_second},
          {"recalled_bytes_per_second", Rate(m.recalled_bytes, m.seconds)},
          {"stored_bytes_per_second", Rate(m.stored_bytes, m.seconds)},
          {"found_share",
           Share(static_cast<double>(m.found_chunks), static_cast<double>(m.asked_chunks))},
          {"stored_share", Share(stored, stored + static_cast<double>(m.found_chunks))},
          {"from_nvme_share", run.from_nvme_share()},
          {"device_bytes_per_second", run.device_bytes_per_second},
          {"offered_share_of_device", run.offered_share_of_device()},
          {"nvme_share_of_device", run.nvme_share_of_device()},
          {"peak_share_of_device", run.peak_share_of_device()},
          {"below_device_rate", run.below_device_rate()},
          {"stalls_over_100_ms", m.stalls},
          {"fetch_faster_than_recompute_share", Faster(m)},
          {"promotions", run.promotions},
          {"device_runs", run.promotion_runs},
          {"device_runs_per_prefix", run.device_runs_per_prefix()},
          {"daemon_cpu_seconds", run.daemon.cpu_seconds},
          {"alone", ToReport(run.alone)},
          {"loaded", ToReport(m)}};
}

using Row = std::vector<std::string>;

// A row of the prompts read alone and of each rate.
Row LatencyRow(const PatternReport& report, const std::string& name,
               LatencyHistogram PatternMeasured::*which, double quantile) {
  Row row = {name, report.runs.empty() ? "" : Ms(report.runs[0].alone.*which, quantile)};
  for (const PatternRun& run : report.runs) row.push_back(Ms(run.loaded.*which, quantile));
  return row;
}

Row PlainRow(const PatternReport& report, const std::string& name,
             const std::function<std::string(const PatternRun&)>& cell) {
  Row row = {name, ""};
  for (const PatternRun& run : report.runs) row.push_back(cell(run));
  return row;
}

void AddLatencies(const PatternReport& report, std::vector<Row>* rows) {
  struct Latency {
    const char* name;
    LatencyHistogram PatternMeasured::*which;
  };
  for (const Latency& one : {Latency{"prefix", &PatternMeasured::prefix},
                             Latency{"chunk, since its request was due", &PatternMeasured::chunk},
                             Latency{"wait for a next chunk", &PatternMeasured::chunk_wait},
                             Latency{"store", &PatternMeasured::store}}) {
    for (const auto& [quantile, text] : {std::pair(0.5, "p50"), {0.99, "p99"}, {0.999, "p99.9"}}) {
      rows->push_back(
          LatencyRow(report, absl::StrCat(one.name, ", ", text, ", ms"), one.which, quantile));
    }
  }
  rows->push_back(
      LatencyRow(report, "begun late by us, p99, ms", &PatternMeasured::began_late, 0.99));
}

std::string FormatTroubles(const PatternReport& report) {
  std::string text;
  for (const PatternRun& run : report.runs) {
    for (const PatternMeasured* m : {&run.alone, &run.loaded}) {
      if (m->wrong_bytes > 0) {
        absl::StrAppend(&text, "WRONG BYTES: ", m->wrong_bytes, " of ", m->verified_bytes, "\n");
      }
      if (m->failed_calls > 0) {
        absl::StrAppend(&text, "failed calls: ", m->failed_calls, ", the first: ", m->first_failure,
                        "\n");
      }
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

}  // namespace

double PatternRun::from_nvme_share() const {
  const auto nvme = static_cast<double>(served_g3_chunks);
  return Share(nvme, nvme + static_cast<double>(served_g2_chunks));
}

double PatternRun::offered_share_of_device() const {
  return Share(offered_bytes_per_second, device_bytes_per_second);
}

double PatternRun::nvme_share_of_device() const {
  return offered_share_of_device() * from_nvme_share();
}

double PatternRun::peak_share_of_device() const {
  const bool bursts = !IsClosedLoop(job.pattern.kind);
  return nvme_share_of_device() * (bursts ? std::max(1.0, job.pattern.burst_rate) : 1);
}

double PatternRun::device_runs_per_prefix() const {
  return Share(static_cast<double>(promotion_runs), static_cast<double>(loaded.prefixes_from_nvme));
}

bool PatternReport::sound() const {
  return !runs.empty() && std::all_of(runs.begin(), runs.end(), [](const PatternRun& run) {
    return run.alone.wrong_bytes == 0 && run.alone.failed_calls == 0 &&
           run.loaded.wrong_bytes == 0 && run.loaded.failed_calls == 0 && run.loaded.requests > 0;
  });
}

bool PatternReport::all_ok() const {
  return std::none_of(lines.begin(), lines.end(),
                      [](const Line& line) { return line.verdict == Verdict::kMissed; });
}

std::string PatternReport::wants() const {
  uint64_t most = 0;
  for (const PatternRun& run : runs) most = std::max(most, run.working_set_bytes());
  const std::string of = absl::StrCat("the working set is ", tools::FormatBytes(most), ": ");
  if (g3_bytes == 0) return absl::StrCat(of, "without a G3 what does not fit G2 is lost");
  if (g2_bytes > most / 2) {
    return absl::StrCat(of,
                        "G2 holds more than half of it; give the daemon less, so that NVMe is "
                        "read");
  }
  if (g3_bytes < most) return absl::StrCat(of, "G3 does not hold it; give the daemon more");
  return "";
}

Json ToJson(const PatternReport& report) {
  Json runs = Json::array();
  for (const PatternRun& run : report.runs) runs.push_back(ToJson(run));
  return {{"request", ToJson(report.request)},
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
  std::vector<Row> rows = {{absl::StrCat(report.request.name, ", requests/s"), "alone"}};
  for (const PatternRun& run : report.runs) {
    rows[0].push_back(absl::StrFormat("%g", run.job.pattern.requests_per_second));
  }
  const auto add = [&](const std::string& name,
                       const std::function<std::string(const PatternRun&)>& cell) {
    rows.push_back(PlainRow(report, name, cell));
  };
  add("offered, GB/s",
      [](const auto& run) { return absl::StrFormat("%.2f", run.offered_bytes_per_second / 1e9); });
  add("the drive alone, GB/s",
      [](const auto& run) { return absl::StrFormat("%.2f", run.device_bytes_per_second / 1e9); });
  add("of it, read in bursts",
      [](const auto& run) { return tools::FormatShare(run.peak_share_of_device(), 1); });
  add("recalled, GB/s", [](const auto& run) {
    return absl::StrFormat("%.2f", Rate(run.loaded.recalled_bytes, run.loaded.seconds) / 1e9);
  });
  add("stored, GB/s", [](const auto& run) {
    return absl::StrFormat("%.2f", Rate(run.loaded.stored_bytes, run.loaded.seconds) / 1e9);
  });
  add("chunks asked for that were there", [](const auto& run) {
    return tools::FormatShare(static_cast<double>(run.loaded.found_chunks),
                              static_cast<double>(run.loaded.asked_chunks));
  });
  add("of these, on NVMe only",
      [](const auto& run) { return tools::FormatShare(run.from_nvme_share(), 1); });
  AddLatencies(report, &rows);
  add("stalls over 100 ms", [](const auto& run) { return absl::StrCat(run.loaded.stalls); });
  add("device runs a prefix",
      [](const auto& run) { return absl::StrFormat("%.2f", run.device_runs_per_prefix()); });
  add("prefixes got faster than recomputed",
      [](const auto& run) { return tools::FormatShare(Faster(run.loaded), 1); });
  add("CPU s, clients",
      [](const auto& run) { return absl::StrFormat("%.2f", run.loaded.client_cpu_seconds); });
  add("CPU s, daemon",
      [](const auto& run) { return absl::StrFormat("%.2f", run.daemon.cpu_seconds); });
  return absl::StrCat("path: ", report.path, "\narena: ", report.arena, "\n\n",
                      tools::FormatTable(rows), FormatTroubles(report), "\n",
                      FormatLines(report.lines));
}

}  // namespace kvkeep::bench
