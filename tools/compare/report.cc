#include "tools/compare/report.h"

#include <absl/algorithm/container.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_replace.h>

#include "tools/bench/statistics.h"
#include "tools/compare/targets.h"
#include "tools/kvkeep/print.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::compare {
namespace {

using bench::Json;
using bench::Measured;
using bench::Series;
using bench::Summarize;
using bench::Summary;

using Row = std::vector<std::string>;

std::vector<const Discipline*> DisciplinesOf(const Comparison& comparison, absl::string_view name) {
  std::vector<const Discipline*> found;
  for (const Discipline& discipline : comparison.disciplines) {
    if (NameOf(discipline) == name) found.push_back(&discipline);
  }
  return found;
}

// Contestants down, sizes across: GB/s, and beside it the share of the first contestant's.
std::string BandwidthTable(const Comparison& comparison, absl::string_view operation) {
  Row head = {std::string(operation)};
  const std::vector<const Discipline*> columns = DisciplinesOf(comparison, operation);
  for (const Discipline* discipline : columns) {
    head.push_back(CallName(*discipline));
    head.push_back(absl::StrCat("x ", comparison.names.front()));
    head.emplace_back("spread");
    head.emplace_back("p99 us");
  }
  if (columns.empty()) return "";
  std::vector<Row> rows = {head};
  for (const std::string& name : comparison.names) {
    Row row = {name};
    for (const Discipline* column : columns) {
      const Series* const series = ResultsOf(*column, name);
      const Series* const base = ResultsOf(*column, comparison.names.front());
      if (series == nullptr || base == nullptr) continue;
      const std::vector<double> values = series->GbPerSecond();
      const Summary summary = Summarize(values);
      row.push_back(absl::StrFormat("%.2f", summary.median));
      row.push_back(
          absl::StrFormat("%.2f", Summarize(bench::Ratios(values, base->GbPerSecond())).median));
      row.push_back(absl::StrFormat("%.0f%%", summary.spread() * 100));
      row.push_back(absl::StrFormat("%.0f", Summarize(series->LatencyUs(0.99)).median));
    }
    rows.push_back(std::move(row));
  }
  return absl::StrCat(tools::FormatTable(rows), "\n");
}

std::string LookupTable(const Comparison& comparison) {
  std::string text;
  for (const Discipline& discipline : comparison.disciplines) {
    if (discipline.operation != Operation::kLookup) continue;
    std::vector<Row> rows = {
        {absl::StrCat("lookup of ", discipline.batch, " keys"), "p50 us", "spread", "p99 us"}};
    for (const std::string& name : comparison.names) {
      const Series* const series = ResultsOf(discipline, name);
      if (series == nullptr) continue;
      const Summary p50 = Summarize(series->LatencyUs(0.5));
      rows.push_back({name, absl::StrFormat("%.1f", p50.median),
                      absl::StrFormat("%.0f%%", p50.spread() * 100),
                      absl::StrFormat("%.1f", Summarize(series->LatencyUs(0.99)).median)});
    }
    absl::StrAppend(&text, tools::FormatTable(rows), "\n");
  }
  return text;
}

// kvkeep's local path over each peer that is there.
std::vector<std::pair<std::string, std::string>> PairsOf(const Comparison& comparison) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const char* const peer : {kLmcache, kMooncake}) {
    for (const char* const ours : {kKvkeepLocal, kKvkeepStaging}) {
      if (absl::c_linear_search(comparison.names, peer) &&
          absl::c_linear_search(comparison.names, ours)) {
        pairs.emplace_back(ours, peer);
      }
    }
  }
  return pairs;
}

std::string PeerTable(const Comparison& comparison) {
  const auto pairs = PairsOf(comparison);
  if (pairs.empty()) return "";
  Row head = {"times as fast as a peer"};
  for (const auto& [ours, peer] : pairs) head.push_back(absl::StrCat(ours, " / ", peer));
  std::vector<Row> rows = {head};
  for (const Discipline& discipline : comparison.disciplines) {
    Row row = {absl::StrCat(NameOf(discipline), " ", CallName(discipline))};
    for (const auto& [ours, peer] : pairs) {
      const Summary times = Summarize(TimesAsFast(discipline, ours, peer));
      row.push_back(absl::StrFormat("%.2f (%.2f to %.2f)", times.median, times.min, times.max));
    }
    rows.push_back(std::move(row));
  }
  return absl::StrCat(tools::FormatTable(rows), "\n");
}

double PerGigabyte(double seconds, uint64_t bytes) {
  return bytes == 0 ? 0 : seconds / static_cast<double>(bytes) * 1e9;
}

// CPU seconds per GB: the contestant's own process while its calls run, and its servers'.
std::string CpuTable(const Comparison& comparison) {
  Row head = {"CPU s/GB, client + server"};
  std::vector<const Discipline*> columns;
  for (const Discipline& discipline : comparison.disciplines) {
    if (discipline.operation == Operation::kLookup || discipline.first_fill) continue;
    if (discipline.operation == Operation::kLookupAndGet) continue;
    columns.push_back(&discipline);
    head.push_back(absl::StrCat(NameOf(discipline), " ", CallName(discipline)));
  }
  if (columns.empty()) return "";
  std::vector<Row> rows = {head};
  for (const std::string& name : comparison.names) {
    Row row = {name};
    for (const Discipline* column : columns) {
      const Series* const series = ResultsOf(*column, name);
      if (series == nullptr) continue;
      const Measured all = series->total();
      row.push_back(absl::StrFormat("%.3f + %.3f", PerGigabyte(all.client_cpu_seconds, all.bytes),
                                    PerGigabyte(series->daemon.cpu_seconds, all.bytes)));
    }
    rows.push_back(std::move(row));
  }
  return absl::StrCat(tools::FormatTable(rows), "\n");
}

// Of the gRPC paths' like: what kvkeep's messages cost beside a stream that keeps nothing.
std::string StreamTable(const Comparison& comparison) {
  std::vector<Row> rows = {{"kvkeep gRPC / gRPC stream", "x stream", "least", "most"}};
  for (const Discipline& discipline : comparison.disciplines) {
    const std::vector<double> ratios = TimesAsFast(discipline, kKvkeepGrpc, kBareStream);
    if (ratios.empty()) continue;
    const Summary summary = Summarize(ratios);
    rows.push_back({absl::StrCat(NameOf(discipline), " ", CallName(discipline)),
                    absl::StrFormat("%.2f", summary.median), absl::StrFormat("%.2f", summary.min),
                    absl::StrFormat("%.2f", summary.max)});
  }
  return rows.size() == 1 ? "" : absl::StrCat(tools::FormatTable(rows), "\n");
}

std::string NvmeTable(const Comparison& comparison) {
  if (comparison.nvme.empty()) return "";
  std::vector<Row> rows = {{"NVMe", "GB/s", "fio 1 MiB", "fio 4 MiB", "x better", "spread", ""}};
  for (const NvmeResult& result : comparison.nvme) {
    for (const NvmePart& part : kNvmeParts) {
      const BesideFio& figures = result.*part.figures;
      const Summary summary = Summarize(figures.kvkeep.GbPerSecond());
      Row row = {absl::StrCat(part.name, " ", tools::FormatBytes(result.size)),
                 absl::StrFormat("%.2f", summary.median)};
      for (const std::vector<double>& fio : figures.fio) {
        row.push_back(absl::StrFormat("%.2f", Summarize(fio).median));
      }
      row.push_back(absl::StrFormat("%.2f", Summarize(OfFio(figures)).median));
      row.push_back(absl::StrFormat("%.0f%%", summary.spread() * 100));
      row.push_back(!part.reads ? ""
                                : absl::StrFormat("%s%.1f%% from NVMe",
                                                  result.refused() ? "REFUSED: only " : "",
                                                  result.from_nvme() * 100));
      rows.push_back(std::move(row));
    }
  }
  return absl::StrCat(tools::FormatTable(rows), "\n");
}

std::string VerdictTable(const Comparison& comparison) {
  std::vector<Row> rows = {{"what", "beside", "target", "measured", "verdict"}};
  for (const Verdict& verdict : Judge(comparison)) {
    rows.push_back({absl::StrCat(verdict.ours, ": ", verdict.what), verdict.theirs,
                    absl::StrFormat("%.2f", verdict.target),
                    absl::StrFormat("%.2f", verdict.measured), OutcomeName(verdict.outcome)});
  }
  return rows.size() == 1 ? "" : absl::StrCat(tools::FormatTable(rows), "\n");
}

Json ToJson(const Summary& summary) {
  return {{"median", summary.median}, {"min", summary.min}, {"max", summary.max}};
}

Json ToJson(const Series& series, const std::vector<double>& baseline) {
  const std::vector<double> values = series.GbPerSecond();
  const Measured all = series.total();
  return {{"gb_per_second", ToJson(Summarize(values))},
          {"ratio", ToJson(Summarize(bench::Ratios(values, baseline)))},
          {"p50_us", ToJson(Summarize(series.LatencyUs(0.5)))},
          {"p99_us", ToJson(Summarize(series.LatencyUs(0.99)))},
          {"rounds", series.rounds.size()},
          {"calls", all.ops},
          {"client_cpu_seconds_per_gb", PerGigabyte(all.client_cpu_seconds, all.bytes)},
          {"server_cpu_seconds_per_gb", PerGigabyte(series.daemon.cpu_seconds, all.bytes)},
          {"verified_bytes", all.verified_bytes},
          {"wrong_bytes", all.wrong_bytes}};
}

Json ToJson(const NvmeResult& result) {
  Json json = {
      {"size", result.size}, {"from_nvme", result.from_nvme()}, {"refused", result.refused()}};
  for (const NvmePart& part : kNvmeParts) {
    const BesideFio& figures = result.*part.figures;
    const std::string name = absl::StrReplaceAll(part.name, {{" ", "_"}});
    json[name] = ToJson(figures.kvkeep, figures.baseline());
    json["fio_" + name] = ToJson(Summarize(figures.baseline()));
    for (size_t i = 0; i < kFioBlocks.size(); ++i) {
      json["fio_" + name + "_by_block"].push_back(
          {{"block_bytes", kFioBlocks[i]}, {"gb_per_second", ToJson(Summarize(figures.fio[i]))}});
    }
  }
  return json;
}

Json ToJson(const Verdict& verdict) {
  return {{"what", verdict.what},         {"ours", verdict.ours},
          {"theirs", verdict.theirs},     {"target", verdict.target},
          {"measured", verdict.measured}, {"verdict", OutcomeName(verdict.outcome)}};
}

}  // namespace

std::string ToText(const Comparison& comparison) {
  return absl::StrCat(BandwidthTable(comparison, "get"), BandwidthTable(comparison, "lookup+get"),
                      BandwidthTable(comparison, "put"), BandwidthTable(comparison, "first put"),
                      LookupTable(comparison), StreamTable(comparison), PeerTable(comparison),
                      CpuTable(comparison), NvmeTable(comparison), VerdictTable(comparison),
                      "wrong bytes: ", WrongBytes(comparison), "\n");
}

Json ToJson(const Comparison& comparison) {
  Json json = {{"about", comparison.about}, {"names", comparison.names}};
  for (const Discipline& discipline : comparison.disciplines) {
    Json results = Json::object();
    const Series* const base = ResultsOf(discipline, comparison.names.front());
    for (const auto& [name, series] : discipline.results) {
      results[name] = ToJson(series, base == nullptr ? std::vector<double>() : base->GbPerSecond());
    }
    Json times = Json::object();
    for (const auto& [ours, peer] : PairsOf(comparison)) {
      times[absl::StrCat(ours, " / ", peer)] =
          ToJson(Summarize(TimesAsFast(discipline, ours, peer)));
    }
    Json of_stream = Json::object();
    const std::vector<double> ratios = TimesAsFast(discipline, kKvkeepGrpc, kBareStream);
    if (!ratios.empty()) of_stream[kKvkeepGrpc] = ToJson(Summarize(ratios));
    json["disciplines"].push_back({{"operation", NameOf(discipline)},
                                   {"times_as_fast", times},
                                   {"of_stream", of_stream},
                                   {"size", discipline.size},
                                   {"batch", discipline.batch},
                                   {"results", results}});
  }
  for (const NvmeResult& result : comparison.nvme) json["nvme"].push_back(ToJson(result));
  for (const Verdict& verdict : Judge(comparison)) json["verdicts"].push_back(ToJson(verdict));
  return json;
}

}  // namespace kvkeep::compare
