#include "tools/bench/gpu_cases.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/fio.h"
#include "tools/bench/table_lines.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

constexpr std::chrono::minutes kArenaPinPatience{5};
constexpr uint64_t kPromisedG3ChunkBytes = 32 * kMiB;
constexpr double kAllFromG3 = 0.99;

// What must hold on a real GPU, of runs that lie so far in one piece; nothing: it is only told.
std::optional<Target> PromiseOf(const CaseSpec& spec, bool from_g3) {
  const bool long_runs = uint64_t{spec.run_bytes} * spec.adjacent >= kMiB;
  if (from_g3 && (!long_runs || spec.size < kPromisedG3ChunkBytes)) return std::nullopt;
  if (long_runs) return Target{Bound::kAtLeast, 0.9};
  if (spec.run_bytes >= 32 * kKiB && spec.adjacent >= 16) return Target{Bound::kAtLeast, 0.8};
  return std::nullopt;
}

std::string NameOf(const CaseSpec& spec, bool from_g3) {
  std::string name =
      absl::StrCat(spec.verb == Verb::kGet ? "get to the GPU, " : "put from the GPU, ",
                   from_g3 ? "from NVMe, " : "", tools::FormatBytes(spec.size), ", runs of ",
                   tools::FormatBytes(spec.run_bytes));
  if (spec.adjacent > 1) absl::StrAppend(&name, ", ", spec.adjacent, " adjacent");
  if (spec.batch > 1) absl::StrAppend(&name, ", batch ", spec.batch);
  return name;
}

class GpuCases {
 public:
  GpuCases(const Progress& progress, const DaemonProcess* daemon, LoadGenerator* generator,
           Report* report)
      : options_(report->options),
        progress_(progress),
        daemon_(daemon),
        generator_(*generator),
        report_(*report),
        from_g3_(report->options.tier == "g3") {}

  absl::Status Run() {
    const uint64_t largest = *std::max_element(options_.sizes.begin(), options_.sizes.end());
    Say("open the GPU");
    KVKEEP_ASSIGN_OR_RETURN(
        const OpenedGpu gpu,
        generator_.client(0).OpenGpu(options_.path, largest * options_.batch, options_.arena_dir));
    report_.path = absl::StrCat(options_.path, ": ", gpu.device);
    if (options_.path == "cuda-ipc") report_.daemon_gpu_bytes = gpu.daemon_bytes;
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
    KVKEEP_RETURN_IF_ERROR(from_g3_ ? LoadG3(size) : generator_.Load(0, options_.keys, size));
    const std::vector<Verb> verbs =
        from_g3_ ? std::vector{Verb::kGet} : std::vector{Verb::kGet, Verb::kPut};
    for (const Verb verb : verbs) {
      for (const uint64_t run : options_.run_sizes) {
        for (const uint32_t adjacent : options_.adjacent) {
          if (run * adjacent > size) continue;
          KVKEEP_RETURN_IF_ERROR(RunCase({.verb = verb,
                                          .size = size,
                                          .batch = options_.batch,
                                          .keys = options_.keys,
                                          .verify = options_.verify,
                                          .verify_all = from_g3_,
                                          .no_g3 = !from_g3_,
                                          .run_bytes = run,
                                          .adjacent = adjacent}));
        }
      }
    }
    return absl::OkStatus();
  }

  // As much at once as G2 takes while nothing of it is written yet; and what fio reads.
  absl::Status LoadG3(uint64_t size) {
    const uint64_t at_once = std::max<uint64_t>(options_.g2_bytes / 2 / size, 1);
    for (uint64_t at = 0; at < options_.keys; at += at_once) {
      const uint64_t chunks = std::min(at_once, options_.keys - at);
      KVKEEP_RETURN_IF_ERROR(generator_.Load(at, chunks, size, /*no_g3=*/false));
      KVKEEP_RETURN_IF_ERROR(generator_.probe()->AwaitClean(kWriteBackPatience));
    }
    Say("fio writes its file");
    fio_.reset();
    KVKEEP_ASSIGN_OR_RETURN(fio_, Fio::Make({.directory = daemon_->directory(),
                                             .data_bytes = options_.keys * size,
                                             .seconds = options_.seconds}));
    return absl::OkStatus();
  }

  // One more round of what the case is compared with: GB/s.
  absl::StatusOr<double> RunBeside(const CaseSpec& spec) {
    if (from_g3_) return fio_->Read();
    const bool to_gpu = spec.verb == Verb::kGet;
    const uint64_t bytes = spec.size * spec.batch;
    KVKEEP_ASSIGN_OR_RETURN(Measured copied,
                            generator_.client(0).CopyPlain(to_gpu, bytes, options_.seconds / 2));
    if (copied.failed_ops > 0) return absl::UnavailableError(copied.first_failure);
    const double gb_per_second = copied.gb_per_second();
    PlainOf(to_gpu, bytes).rounds.push_back(std::move(copied));
    return gb_per_second;
  }

  absl::Status RunCase(const CaseSpec& spec) {
    KVKEEP_ASSIGN_OR_RETURN(Series series, generator_.Prepare(NameOf(spec, from_g3_), spec));
    series.about["path"] = options_.path;
    series.about["tier"] = options_.tier;
    KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus before, generator_.Status());
    std::vector<double> beside;
    for (int round = 0; round < options_.rounds; ++round) {
      Say(absl::StrCat(series.name, ": round ", round + 1, " of ", options_.rounds));
      KVKEEP_ASSIGN_OR_RETURN(beside.emplace_back(), RunBeside(spec));
      KVKEEP_RETURN_IF_ERROR(generator_.Run(options_.seconds, &series, options_.ops));
    }
    const std::optional<Target> promise = PromiseOf(spec, from_g3_);
    const std::vector<double> figures = series.GbPerSecond();
    Line line = promise ? RatioLine(series.name, "GB/s", figures, beside, *promise)
                        : RatioLine(series.name, "GB/s", figures, beside);
    line.numbers["direction"] = spec.verb == Verb::kGet ? "h2d" : "d2h";
    line.numbers["size"] = spec.size;
    line.numbers["run_bytes"] = spec.run_bytes;
    line.numbers["adjacent"] = spec.adjacent;
    if (from_g3_) {
      KVKEEP_ASSIGN_OR_RETURN(line.numbers["from_g3"], FromG3Since(before));
    }
    report_.lines.push_back(std::move(line));
    report_.cases.push_back(std::move(series));
    return absl::OkStatus();
  }

  // The part of what was handed out since that had to be read from NVMe. FailedPrecondition: what
  // was measured is not that.
  absl::StatusOr<double> FromG3Since(const DaemonStatus& before) {
    KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus after, generator_.Status());
    const auto since = [&](const char* name) { return after.counter(name) - before.counter(name); };
    const auto from_g3 = static_cast<double>(since("served_g3_bytes"));
    const double all = from_g3 + static_cast<double>(since("served_g2_bytes"));
    const double part = all == 0 ? 0 : from_g3 / all;
    if (part >= kAllFromG3) return part;
    return absl::FailedPreconditionError(absl::StrFormat(
        "only %.0f of %.0f bytes were read from NVMe: more --keys, or less --g2", from_g3, all));
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
  const DaemonProcess* const daemon_;
  LoadGenerator& generator_;
  Report& report_;
  const bool from_g3_;
  std::unique_ptr<Fio> fio_;  // of the size that is measured now
  std::map<std::string, Series> plain_;
};

}  // namespace

absl::Status MeasureGpu(const Progress& progress, const DaemonProcess* daemon,
                        LoadGenerator* generator, Report* report) {
  return GpuCases(progress, daemon, generator, report).Run();
}

}  // namespace kvkeep::bench
