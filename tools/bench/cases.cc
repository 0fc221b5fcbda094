#include "tools/bench/cases.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tools/bench/baselines.h"
#include "tools/bench/gpu_memory.h"
#include "tools/bench/load_generator.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kMaxPoolBytes = 512ull << 20;  // half of what a daemon gives a session

absl::Status RunBaselines(const Options& options, uint64_t size, BaselineSet* baselines) {
  for (int threads : {1, 2}) {
    KVKEEP_RETURN_IF_ERROR(baselines->Copy(size, threads, options.seconds / 2).status());
  }
  const std::string verb = options.verb == "baseline" ? "get" : options.verb;
  return baselines
      ->PingPongOf(VerbNamed(verb), options.batch, std::min(options.depth, 64u),
                   options.seconds / 2)
      .status();
}

CaseSpec SpecOf(const Options& options, uint64_t size, Verb verb) {
  const bool of_table = verb == Verb::kLookup && options.table_chunks > 0;
  return {.verb = verb,
          .size = of_table ? kSmallChunkBytes : size,
          .batch = options.batch,
          .depth = options.depth,
          .keys = of_table ? options.table_chunks : options.keys,
          .verify = options.verify,
          .no_g3 = verb != Verb::kPieces,
          .mix = options.mix};
}

absl::Status Measure(const Options& options, const Progress& progress, LoadGenerator& load,
                     BaselineSet* baselines, Report* report) {
  const Verb verb = VerbNamed(options.verb);
  if (options.table_chunks > 0) {
    Say(progress, absl::StrCat("put ", options.table_chunks, " small chunks"));
    KVKEEP_RETURN_IF_ERROR(load.Load(0, options.table_chunks, kSmallChunkBytes));
  }
  for (uint64_t size : options.sizes) {
    const CaseSpec spec = SpecOf(options, size, verb);
    if (verb != Verb::kPut && (verb != Verb::kLookup || options.table_chunks == 0)) {
      Say(progress, absl::StrCat("put ", spec.keys, " chunks"));
      // Keys of another size are in the way.
      if (load.probe() != nullptr) KVKEEP_RETURN_IF_ERROR(load.probe()->Clear());
      KVKEEP_RETURN_IF_ERROR(load.Load(0, spec.keys, size, spec.no_g3));
      if (verb == Verb::kPieces && load.probe() != nullptr) {
        KVKEEP_RETURN_IF_ERROR(load.probe()->AwaitClean());
      }
    }
    KVKEEP_ASSIGN_OR_RETURN(
        Series series,
        load.Prepare(absl::StrCat(options.verb, " ", tools::FormatBytes(spec.size), ", batch ",
                                  options.batch, ", depth ", options.depth, ", clients ",
                                  options.clients),
                     spec));
    for (int round = 0; round < options.rounds; ++round) {
      Say(progress, absl::StrCat(series.name, ": round ", round + 1, " of ", options.rounds));
      KVKEEP_RETURN_IF_ERROR(RunBaselines(options, size, baselines));
      KVKEEP_RETURN_IF_ERROR(load.Run(options.seconds, &series, options.ops));
    }
    report->cases.push_back(std::move(series));
  }
  return absl::OkStatus();
}

}  // namespace

DaemonOptions DaemonOf(const Options& options, uint64_t g2_bytes, uint64_t g3_bytes) {
  return {.binary = options.daemon,
          .scratch_dir = options.scratch_dir,
          .g2_bytes = g2_bytes,
          .g3_bytes = g3_bytes,
          .arena_dir = options.arena_dir,
          .arena_readonly_dir = options.arena_readonly_dir,
          .copy_threads = options.copy_threads};
}

ClientTarget TargetOf(const Options& options, const DaemonProcess* daemon) {
  return {.endpoint = daemon == nullptr ? options.endpoint : daemon->endpoint(),
          .local_socket = daemon == nullptr ? options.local_socket : daemon->local_socket(),
          .path = GpuWayOf(options.path) ? "local" : options.path,
          .seed = options.seed,
          .pool_bytes = std::min(kMaxPoolBytes,
                                 options.region_bytes == 0 ? ColdBytes() : options.region_bytes)};
}

absl::Status Describe(LoadGenerator& load, Report* report) {
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus status, load.Status());
  report->arena = status.arena;
  report->daemon = status.version;
  report->path = load.path();
  return absl::OkStatus();
}

absl::StatusOr<Report> RunCases(const Options& options, const Progress& progress) {
  Report report{.options = options};
  BaselineSet baselines(options.arena_dir, options.region_bytes);
  if (options.verb == "baseline") {
    for (int round = 0; round < options.rounds; ++round) {
      for (uint64_t size : options.sizes) {
        Say(progress, absl::StrCat("baselines: round ", round + 1, " of ", options.rounds));
        KVKEEP_RETURN_IF_ERROR(RunBaselines(options, size, &baselines));
      }
    }
  } else {
    std::unique_ptr<DaemonProcess> daemon;
    if (!options.daemon.empty()) {
      Say(progress, "start kvkeepd");
      KVKEEP_ASSIGN_OR_RETURN(
          daemon, DaemonProcess::Start(DaemonOf(options, options.g2_bytes, options.g3_bytes)));
    }
    const std::string admin = daemon == nullptr ? options.admin_endpoint : daemon->admin_endpoint();
    KVKEEP_ASSIGN_OR_RETURN(const auto load,
                            LoadGenerator::Start(TargetOf(options, daemon.get()), admin,
                                                 options.clients, options.daemon_pid));
    KVKEEP_RETURN_IF_ERROR(Describe(*load, &report));
    KVKEEP_RETURN_IF_ERROR(GpuWayOf(options.path)
                               ? MeasureGpu(progress, daemon.get(), *load, &report)
                               : Measure(options, progress, *load, &baselines, &report));
  }
  baselines.AddTo(&report);
  return report;
}

}  // namespace kvkeep::bench
