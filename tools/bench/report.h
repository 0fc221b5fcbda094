// Report: all that one invocation found out, for people and for machines. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/line.h"
#include "tools/bench/options.h"
#include "tools/bench/series.h"

namespace kvkeep::bench {

// What a gigabyte (1e9 bytes of payload) costs.
struct CpuCost {
  std::string path;      // "local get", "tcp put", "promotion", "write-back"
  double gigabytes = 0;  // that were moved to tell
  double client_seconds_per_gb = 0, daemon_seconds_per_gb = 0;

  KVKEEP_FIELDS(path, gigabytes, client_seconds_per_gb, daemon_seconds_per_gb)
};

struct Report {
  Options options;
  std::string arena;   // the daemon's own words
  std::string daemon;  // its version
  std::string path;    // "grpc" or "local", and why when it was chosen
  uint64_t baseline_huge_page_bytes = 0;
  std::optional<uint64_t> daemon_gpu_bytes;  // of the GPU's memory, taken to serve a GPU's path
  std::vector<Series> cases;
  std::vector<Series> baselines;
  std::vector<Line> lines;
  std::vector<CpuCost> cpu_costs;
  std::string failure;  // why a section of the table could not be measured

  // No wrong byte, no call failed, no section either.
  bool sound() const;
  bool all_ok() const { return NoneMissed(lines); }
};

Json ToJson(const Report& report);
std::string FormatReport(const Report& report);

}  // namespace kvkeep::bench
