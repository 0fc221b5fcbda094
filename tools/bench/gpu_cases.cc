#include "tools/bench/gpu_cases.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/table_lines.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

constexpr std::chrono::minutes kArenaPinPatience{5};

// What must hold on a real GPU, of runs that lie so far in one piece; nothing: it is only told.
std::optional<Wanted> PromiseOf(const CaseSpec& spec) {
  if (uint64_t{spec.run_bytes} * spec.adjacent >= kMiB) return Wanted{Bound::kAtLeast, 0.9};
  if (spec.run_bytes >= 32 * kKiB && spec.adjacent >= 16) return Wanted{Bound::kAtLeast, 0.8};
  return std::nullopt;
}

std::string NameOf(const CaseSpec& spec) {
  std::string name =
      absl::StrCat(spec.verb == Verb::kGet ? "get to the GPU, " : "put from the GPU, ",
                   tools::FormatBytes(spec.size), ", runs of ", tools::FormatBytes(spec.run_bytes));
  if (spec.adjacent > 1) absl::StrAppend(&name, ", ", spec.adjacent, " adjacent");
  if (spec.batch > 1) absl::StrAppend(&name, ", batch ", spec.batch);
  return name;
}

class GpuCases {
 public:
  GpuCases(const Options& options, const Progress& progress, LoadGenerator* generator,
           Report* report)
      : options_(options), progress_(progress), generator_(*generator), report_(*report) {}

  absl::Status Run() {
    const uint64_t largest = *std::max_element(options_.sizes.begin(), options_.sizes.end());
    Say("open the GPU");
    KVKEEP_ASSIGN_OR_RETURN(
        const std::string device,
        generator_.client(0).OpenGpu(options_.path, largest * options_.batch, options_.arena_dir));
    report_.path = absl::StrCat(options_.path, ": ", device);
    if (options_.path == "cuda-ipc" && generator_.probe() != nullptr) {
      Say("the daemon registers its arena with the driver");
      KVKEEP_RETURN_IF_ERROR(generator_.probe()->AwaitGpuArena(kArenaPinPatience));
    }
    for (const uint64_t size : options_.sizes) KVKEEP_RETURN_IF_ERROR(RunSize(size));
    for (auto& [name, series] : plain_) report_.baselines.push_back(std::move(series));
    return absl::OkStatus();
  }

 private:
  void Say(const std::string& what) const {
    if (progress_) progress_(what);
  }

  // First the gets: puts may evict what is got.
  absl::Status RunSize(uint64_t size) {
    if (generator_.probe() != nullptr) {
      KVKEEP_RETURN_IF_ERROR(generator_.probe()->Clear().status());
    }
    Say(absl::StrCat("put ", options_.keys, " chunks"));
    KVKEEP_RETURN_IF_ERROR(generator_.Load(0, options_.keys, size));
    for (const Verb verb : {Verb::kGet, Verb::kPut}) {
      for (const uint64_t run : options_.run_sizes) {
        for (const uint32_t adjacent : options_.adjacent) {
          if (run * adjacent > size) continue;
          KVKEEP_RETURN_IF_ERROR(RunCase({.verb = verb,
                                          .size = size,
                                          .batch = options_.batch,
                                          .keys = options_.keys,
                                          .verify = options_.verify,
                                          .run_bytes = run,
                                          .adjacent = adjacent}));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunCase(const CaseSpec& spec) {
    KVKEEP_ASSIGN_OR_RETURN(Series series, generator_.Prepare(NameOf(spec), spec));
    series.about["path"] = options_.path;
    const bool to_gpu = spec.verb == Verb::kGet;
    const uint64_t bytes = spec.size * spec.batch;
    Series& plain = PlainOf(to_gpu, bytes);
    std::vector<double> beside;
    for (int round = 0; round < options_.rounds; ++round) {
      Say(absl::StrCat(series.name, ": round ", round + 1, " of ", options_.rounds));
      KVKEEP_ASSIGN_OR_RETURN(Measured copied,
                              generator_.client(0).CopyPlain(to_gpu, bytes, options_.seconds / 2));
      if (copied.failed_ops > 0) return absl::UnavailableError(copied.first_failure);
      beside.push_back(copied.gb_per_second());
      plain.rounds.push_back(std::move(copied));
      KVKEEP_RETURN_IF_ERROR(generator_.Run(options_.seconds, &series, options_.ops));
    }
    const std::optional<Wanted> promise = PromiseOf(spec);
    const std::vector<double> figures = series.GbPerSecond();
    Line line = promise ? RatioLine(series.name, "GB/s", figures, beside, *promise)
                        : RatioLine(series.name, "GB/s", figures, beside);
    line.numbers["direction"] = to_gpu ? "h2d" : "d2h";
    line.numbers["size"] = spec.size;
    line.numbers["run_bytes"] = spec.run_bytes;
    line.numbers["adjacent"] = spec.adjacent;
    report_.lines.push_back(std::move(line));
    report_.cases.push_back(std::move(series));
    return absl::OkStatus();
  }

  Series& PlainOf(bool to_gpu, uint64_t bytes) {
    const std::string name = absl::StrCat("plain copy ", to_gpu ? "to the GPU, " : "from the GPU, ",
                                          tools::FormatBytes(bytes));
    Series& series = plain_[name];
    series.name = name;
    series.about = {{"direction", to_gpu ? "h2d" : "d2h"}, {"size", bytes}};
    return series;
  }

  const Options& options_;
  const Progress& progress_;
  LoadGenerator& generator_;
  Report& report_;
  std::map<std::string, Series> plain_;
};

}  // namespace

absl::Status MeasureGpu(const Options& options, const Progress& progress, LoadGenerator* generator,
                        Report* report) {
  return GpuCases(options, progress, generator, report).Run();
}

}  // namespace kvkeep::bench
