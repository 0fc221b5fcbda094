#include "tools/bench/cases.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/fio.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

constexpr std::chrono::minutes kArenaPinPatience{5};
constexpr uint64_t kPromisedG3ChunkBytes = 32 * kMiB;
constexpr double kAllFromG3 = 0.99;

// What must hold on a real GPU, of runs that lie so far in one piece.
Target PromiseOf(const CaseSpec& spec, bool from_g3) {
  const bool long_runs = uint64_t{spec.run_bytes} * spec.adjacent >= kMiB;
  if (from_g3 && (!long_runs || spec.size < kPromisedG3ChunkBytes)) return {};
  if (long_runs) return {Bound::kAtLeast, 0.9};
  if (spec.run_bytes >= 32 * kKiB && spec.adjacent >= 16) return {Bound::kAtLeast, 0.8};
  return {};
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

const char* DirectionOf(Verb verb) { return verb == Verb::kGet ? "h2d" : "d2h"; }

class GpuCases {
 public:
  GpuCases(const Progress& progress, const DaemonProcess* daemon, LoadGenerator& load,
           Report* report)
      : options_(report->options),
        progress_(progress),
        daemon_(daemon),
        load_(load),
        report_(*report),
        from_g3_(report->options.tier == "g3") {}

  absl::Status Run() {
    const uint64_t largest = *std::max_element(options_.sizes.begin(), options_.sizes.end());
    Say(progress_, "open the GPU");
    KVKEEP_ASSIGN_OR_RETURN(const OpenedGpu gpu, load_.OpenGpu(options_.path,
                                                               largest * options_.batch,
                                                               options_.arena_dir));
    report_.path = absl::StrCat(options_.path, ": ", gpu.device);
    if (options_.path == "cuda-ipc") {
      report_.daemon_gpu_bytes = gpu.daemon_bytes;
      Say(progress_, "the daemon registers its arena with the driver");
      if (load_.probe() != nullptr) {
        KVKEEP_RETURN_IF_ERROR(load_.probe()->AwaitGpuArena(kArenaPinPatience));
      }
    }
    for (const uint64_t size : options_.sizes) KVKEEP_RETURN_IF_ERROR(RunSize(size));
    for (auto& [name, series] : plain_) report_.baselines.push_back(std::move(series));
    return absl::OkStatus();
  }

 private:
  // First the gets: puts may evict what is got. From NVMe there are gets only.
  absl::Status RunSize(uint64_t size) {
    if (load_.probe() != nullptr) KVKEEP_RETURN_IF_ERROR(load_.probe()->Clear());
    Say(progress_, absl::StrCat("put ", options_.keys, " chunks"));
    KVKEEP_RETURN_IF_ERROR(from_g3_ ? LoadG3(size) : load_.Load(0, options_.keys, size));
    for (const Verb verb : {Verb::kGet, Verb::kPut}) {
      if (verb == Verb::kPut && from_g3_) continue;
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
      KVKEEP_RETURN_IF_ERROR(load_.Load(at, chunks, size, /*no_g3=*/false));
      KVKEEP_RETURN_IF_ERROR(load_.probe()->AwaitClean());
    }
    Say(progress_, "fio writes its file");
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
    KVKEEP_ASSIGN_OR_RETURN(Measured copied, load_.CopyPlain(to_gpu, bytes, options_.seconds / 2));
    if (copied.failed_ops > 0) return absl::UnavailableError(copied.first_failure);
    const std::string name = absl::StrCat("plain copy ", to_gpu ? "to the GPU, " : "from the GPU, ",
                                          tools::FormatBytes(bytes));
    Series& series = plain_[name];
    series.name = name;
    series.about = {{"direction", DirectionOf(spec.verb)}, {"size", bytes}};
    series.rounds.push_back(std::move(copied));
    return series.rounds.back().gb_per_second();
  }

  absl::Status RunCase(const CaseSpec& spec) {
    KVKEEP_ASSIGN_OR_RETURN(Series series, load_.Prepare(NameOf(spec, from_g3_), spec));
    series.about["path"] = options_.path;
    series.about["tier"] = options_.tier;
    KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus before, load_.Status());
    std::vector<double> beside;
    for (int round = 0; round < options_.rounds; ++round) {
      Say(progress_, absl::StrCat(series.name, ": round ", round + 1, " of ", options_.rounds));
      KVKEEP_ASSIGN_OR_RETURN(beside.emplace_back(), RunBeside(spec));
      KVKEEP_RETURN_IF_ERROR(load_.Run(options_.seconds, &series, options_.ops));
    }
    Line line =
        RatioLine(series.name, "GB/s", series.GbPerSecond(), beside, PromiseOf(spec, from_g3_));
    line.numbers["direction"] = DirectionOf(spec.verb);
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
    KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus after, load_.Status());
    const auto from_g3 = static_cast<double>(after.Since(before, "served_g3_bytes"));
    const double all = from_g3 + static_cast<double>(after.Since(before, "served_g2_bytes"));
    const double part = all == 0 ? 0 : from_g3 / all;
    if (part >= kAllFromG3) return part;
    return absl::FailedPreconditionError(absl::StrFormat(
        "only %.0f of %.0f bytes were read from NVMe: more --keys, or less --g2", from_g3, all));
  }

  const Options& options_;
  const Progress& progress_;
  const DaemonProcess* const daemon_;
  LoadGenerator& load_;
  Report& report_;
  const bool from_g3_;
  std::unique_ptr<Fio> fio_;  // of the size that is measured now
  std::map<std::string, Series> plain_;
};

}  // namespace

absl::Status MeasureGpu(const Progress& progress, const DaemonProcess* daemon, LoadGenerator& load,
                        Report* report) {
  return GpuCases(progress, daemon, load, report).Run();
}

}  // namespace kvkeep::bench
