#include "tools/bench/table_sections.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/table_lines.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kChunkBytes = 4 * kMiB;
constexpr uint64_t kLargeChunkBytes = 32 * kMiB;
constexpr uint64_t kSmallChunkInG2 = 2 * kBlockBytes;  // header page and one block
constexpr uint32_t kLookupKeys = 512;
constexpr uint32_t kGetBatch = 64;
constexpr uint32_t kGetDepth = 8;
constexpr uint64_t kPassCallBytes = 32 * kMiB;
constexpr uint32_t kPutDepth = 2;
constexpr double kPassPatienceSeconds = 120;
constexpr double kMaxLockUs = 100;
constexpr double kMaxGrpcLookupUs = 300;
constexpr uint64_t kMinG2Bytes = 192 * kMiB;

std::string Round(const char* what, int round, int rounds) {
  return absl::StrCat(what, ": round ", round + 1, " of ", rounds);
}

// G2 that holds so many chunks, and some more; never so small that a session's staging memory,
// which is limited to a share of it, does not fit.
uint64_t RoomFor(uint64_t chunks, uint64_t bytes_each) {
  const uint64_t bytes = chunks * bytes_each + chunks * bytes_each / 32 + 8 * kMiB;
  return RoundUp(std::max(bytes, kMinG2Bytes), 2 * kMiB);
}

}  // namespace

// ---------------------------------------------------------------- get

namespace {

struct GetSeries {
  Series one, deep, batch;
};

void AddGetLines(TableRun* run, GetSeries& series, const Series& bare) {
  std::vector<Line>& lines = run->report.lines;
  lines.push_back(RatioLine("get 4 MiB, batch 1, depth 1: rate against bare ping-pong", "/s",
                            series.one.OpsPerSecond(), bare.OpsPerSecond(),
                            {Bound::kAtLeast, 0.6}));
  lines.push_back(RatioLine("get 4 MiB, batch 1, depth 1: p99 against bare p99", "us",
                            series.one.LatencyUs(0.99), bare.LatencyUs(0.99), {Bound::kAtMost, 5}));
  lines.push_back(RatioLine("get 4 MiB, depth 8: rate against depth 1", "/s",
                            series.deep.OpsPerSecond(), series.one.OpsPerSecond(),
                            {Bound::kAbove, 1}));
  lines.push_back(PlainLine("get 4 MiB, batch 64: leases", "/s", series.batch.ChunksPerSecond(),
                            {Bound::kAtLeast, 1e6}));
  const double copied =
      static_cast<double>(series.one.total().copied_bytes + series.deep.total().copied_bytes +
                          series.batch.total().copied_bytes);
  lines.push_back(
      PlainLine("get 4 MiB: copied by the client", "bytes", {copied}, {Bound::kAtMost, 0}));
  for (Series* one : {&series.one, &series.deep, &series.batch}) {
    run->report.cases.push_back(std::move(*one));
  }
}

}  // namespace

absl::Status RunGets(TableRun* run) {
  const TableScale& scale = run->scale;
  run->Say("get: start kvkeepd and put");
  const uint64_t g2 = RoomFor(scale.get_keys, kChunkBytes + 2 * kBlockBytes);
  KVKEEP_ASSIGN_OR_RETURN(auto daemon, DaemonProcess::Start(DaemonOf(run->options, g2, 0)));
  KVKEEP_ASSIGN_OR_RETURN(auto generator, run->Connect(*daemon));
  KVKEEP_RETURN_IF_ERROR(generator->Load(0, scale.get_keys, kChunkBytes));
  const auto prepare = [&](const char* name, uint32_t batch, uint32_t depth) {
    return generator->Prepare(name, {.verb = Verb::kGet,
                                     .size = kChunkBytes,
                                     .batch = batch,
                                     .depth = depth,
                                     .keys = scale.get_keys,
                                     .verify = run->options.verify});
  };
  GetSeries series;
  KVKEEP_ASSIGN_OR_RETURN(series.one, prepare("get 4 MiB, batch 1, depth 1", 1, 1));
  KVKEEP_ASSIGN_OR_RETURN(series.deep, prepare("get 4 MiB, batch 1, depth 8", 1, kGetDepth));
  KVKEEP_ASSIGN_OR_RETURN(series.batch, prepare("get 4 MiB, batch 64, depth 1", kGetBatch, 1));
  const Series* bare = nullptr;
  for (int round = 0; round < scale.rounds; ++round) {
    run->Say(Round("get", round, scale.rounds));
    KVKEEP_ASSIGN_OR_RETURN(
        bare, run->baselines.PingPongOf("get of 1 key", GetMessages(1), 1, scale.seconds));
    KVKEEP_RETURN_IF_ERROR(generator->Run(scale.seconds, &series.one));
    KVKEEP_RETURN_IF_ERROR(generator->Run(scale.seconds, &series.deep));
    KVKEEP_RETURN_IF_ERROR(generator->Run(scale.seconds, &series.batch));
    KVKEEP_RETURN_IF_ERROR(
        run->baselines.PingPongOf("get of 64 keys", GetMessages(kGetBatch), 1, scale.seconds / 2)
            .status());
    KVKEEP_RETURN_IF_ERROR(
        run->baselines.PingPongOf("get of 1 key", GetMessages(1), kGetDepth, scale.seconds / 2)
            .status());
  }
  AddGetLines(run, series, *bare);
  return run->NoteLocks(generator.get());
}

// ---------------------------------------------------------------- lookup

namespace {

// A daemon with a table of so many small chunks, and a client that looks them up.
struct LookupSide {
  std::unique_ptr<DaemonProcess> daemon;
  std::unique_ptr<LoadGenerator> generator;
  Series series;
};

absl::StatusOr<Series> PrepareLookups(TableRun* run, LoadGenerator& generator, uint64_t chunks,
                                      const char* path) {
  return generator.Prepare(absl::StrCat("lookup 512 keys of ", chunks, path),
                           {.verb = Verb::kLookup,
                            .size = kSmallChunkBytes,
                            .batch = kLookupKeys,
                            .keys = chunks,
                            .verify = run->options.verify});
}

// On the mount, if there is one, or beside it: it holds one daemon's arena, and nobody looks at
// bytes.
absl::StatusOr<LookupSide> StartLookups(TableRun* run, uint64_t chunks, bool on_mount) {
  LookupSide side;
  run->Say(absl::StrCat("lookup: put ", chunks, " chunks"));
  DaemonOptions options = DaemonOf(run->options, RoomFor(chunks, kSmallChunkInG2), 0);
  options.leases_per_session = run->scale.held_leases + 1;
  if (!on_mount) options.arena_dir = options.arena_readonly_dir = "";
  KVKEEP_ASSIGN_OR_RETURN(side.daemon, DaemonProcess::Start(options));
  KVKEEP_ASSIGN_OR_RETURN(side.generator, run->Connect(*side.daemon));
  KVKEEP_RETURN_IF_ERROR(side.generator->Load(0, chunks, kSmallChunkBytes));
  KVKEEP_ASSIGN_OR_RETURN(side.series, PrepareLookups(run, *side.generator, chunks, ""));
  return side;
}

// A client of the large table over gRPC; it finds what the other one put.
absl::StatusOr<LookupSide> StartGrpcLookups(TableRun* run, const LookupSide& large,
                                            uint64_t chunks) {
  LookupSide side;
  ClientTarget target = TargetOf(run->options, large.daemon.get());
  target.path = "grpc";
  KVKEEP_ASSIGN_OR_RETURN(side.generator,
                          LoadGenerator::Start(target, large.daemon->admin_endpoint(),
                                               /*clients=*/1, large.daemon->pid()));
  KVKEEP_ASSIGN_OR_RETURN(side.series, PrepareLookups(run, *side.generator, chunks, ", gRPC"));
  return side;
}

// What holds the lock longest: the largest batches, a session that dies with many leases, a Clear
// of everything.
absl::Status RunHeavyCalls(TableRun* run, LookupSide* side, uint64_t chunks) {
  const uint32_t keys = static_cast<uint32_t>(std::min(chunks, run->scale.large_call_keys));
  run->Say("lookup: the largest calls");
  KVKEEP_ASSIGN_OR_RETURN(Series large,
                          side->generator->Prepare(absl::StrCat("lookup ", keys, " keys"),
                                                   {.verb = Verb::kLookup,
                                                    .size = kSmallChunkBytes,
                                                    .batch = keys,
                                                    .keys = chunks,
                                                    .verify = run->options.verify}));
  KVKEEP_RETURN_IF_ERROR(side->generator->Run(run->scale.seconds, &large));
  run->report.cases.push_back(std::move(large));
  run->Say("lookup: a session dies, then a clear");
  {
    KVKEEP_ASSIGN_OR_RETURN(auto dying,
                            BenchClient::Start(TargetOf(run->options, side->daemon.get()), 1, 2));
    KVKEEP_RETURN_IF_ERROR(dying->HoldLeases(run->scale.held_leases, kSmallChunkBytes).status());
  }  // SIGKILL
  KVKEEP_RETURN_IF_ERROR(side->generator->Run(run->scale.seconds, &side->series));
  side->series.rounds.pop_back();  // beside a death: not compared with the others
  return side->generator->probe()->Clear().status();
}

}  // namespace

absl::Status RunLookups(TableRun* run) {
  const TableScale& scale = run->scale;
  KVKEEP_ASSIGN_OR_RETURN(LookupSide small,
                          StartLookups(run, scale.small_table, /*on_mount=*/false));
  KVKEEP_ASSIGN_OR_RETURN(LookupSide large,
                          StartLookups(run, scale.large_table, /*on_mount=*/true));
  KVKEEP_ASSIGN_OR_RETURN(LookupSide grpc, StartGrpcLookups(run, large, scale.large_table));
  const Series* bare = nullptr;
  for (int round = 0; round < scale.rounds; ++round) {
    run->Say(Round("lookup", round, scale.rounds));
    KVKEEP_ASSIGN_OR_RETURN(
        bare, run->baselines.PingPongOf("lookup of 512 keys (16 KiB)", LookupMessages(kLookupKeys),
                                        1, scale.seconds));
    KVKEEP_RETURN_IF_ERROR(small.generator->Run(scale.seconds, &small.series));
    KVKEEP_RETURN_IF_ERROR(large.generator->Run(scale.seconds, &large.series));
    KVKEEP_RETURN_IF_ERROR(grpc.generator->Run(scale.seconds, &grpc.series));
  }
  std::vector<Line>& lines = run->report.lines;
  lines.push_back(DifferenceLine(
      absl::StrCat("lookup 512 of ", scale.large_table, " chunks: p50 beyond the bare round trip"),
      "us", large.series.LatencyUs(0.5), bare->LatencyUs(0.5), {Bound::kAtMost, 40}));
  lines.push_back(PlainLine(absl::StrCat("lookup 512 of ", scale.large_table, " chunks, gRPC: p50"),
                            "us", grpc.series.LatencyUs(0.5), {Bound::kAtMost, kMaxGrpcLookupUs}));
  lines.push_back(RatioLine(absl::StrCat("lookup 512: p50 at ", scale.large_table, " against ",
                                         scale.small_table, " chunks"),
                            "us", large.series.LatencyUs(0.5), small.series.LatencyUs(0.5),
                            {Bound::kBelow, 1.6}));
  KVKEEP_RETURN_IF_ERROR(RunHeavyCalls(run, &large, scale.large_table));
  KVKEEP_RETURN_IF_ERROR(run->NoteLocks(large.generator.get()));
  run->Say("lookup: bare loops, for as long as the lock was held");
  const double stop_us = 1e6 * LongestStopOfBareLoops(std::clamp(run->lock_seconds, 0.1, 20.0));
  lines.push_back(DifferenceLine(
      absl::StrCat("any lock held, with a batch of ", scale.large_call_keys, " keys, a dead ",
                   "session's ", scale.held_leases, " leases, a clear of ", scale.large_table,
                   run->lock_worked ? "; time on a CPU," : ";", " beyond the stops of bare loops"),
      "us", {run->longest_lock_us}, {stop_us}, {Bound::kAtMost, kMaxLockUs}));
  run->report.cases.push_back(std::move(small.series));
  run->report.cases.push_back(std::move(large.series));
  run->report.cases.push_back(std::move(grpc.series));
  return absl::OkStatus();
}

// ---------------------------------------------------------------- put

namespace {

struct PutSeries {
  Series first, second;  // over memory that nobody has written yet, and over what is there
};

// One round: a fresh daemon, filled once, then once more.
absl::Status RunPasses(TableRun* run, uint64_t size, int copy_threads, PutSeries* series) {
  DaemonOptions options = DaemonOf(run->options, run->scale.put_g2_bytes, 0);
  options.copy_threads = copy_threads;
  KVKEEP_ASSIGN_OR_RETURN(auto daemon, DaemonProcess::Start(options));
  KVKEEP_ASSIGN_OR_RETURN(auto generator, run->Connect(*daemon));
  const uint32_t batch = static_cast<uint32_t>(std::max<uint64_t>(1, kPassCallBytes / size));
  CaseSpec spec{.verb = Verb::kPut, .size = size, .batch = batch, .depth = kPutDepth};
  spec.verify = false;  // the clock does not stand still while the daemon prefaults
  KVKEEP_ASSIGN_OR_RETURN(const Series first, generator->Prepare(series->first.name, spec));
  spec.verify = run->options.verify;
  KVKEEP_ASSIGN_OR_RETURN(const Series second, generator->Prepare(series->second.name, spec));
  series->first.about = first.about;
  series->second.about = second.about;
  const uint64_t chunks = run->scale.put_g2_bytes / (size + 2 * kBlockBytes);
  const uint64_t calls = std::max<uint64_t>(1, chunks / batch);
  series->first.about["ready_to_first_put_seconds"].push_back(WallSeconds() - daemon->ready_at());
  KVKEEP_RETURN_IF_ERROR(generator->Run(kPassPatienceSeconds, &series->first, calls));
  KVKEEP_RETURN_IF_ERROR(generator->Run(kPassPatienceSeconds, &series->second, calls));
  return run->NoteLocks(generator.get());
}

absl::Status RunPutsOf(TableRun* run, uint64_t size, int copy_threads) {
  const std::string pool = copy_threads == 1 ? "one copy thread" : "copy pool";
  const std::string name = absl::StrCat("put ", tools::FormatBytes(size), ", ", pool);
  const double wanted = copy_threads == 1 ? 0.65 : 0.8;
  std::vector<Line>& lines = run->report.lines;
  PutSeries series;
  series.first = {.name = name + ", first pass", .has_daemon = true};
  series.second = {.name = name + ", second pass", .has_daemon = true};
  const Series* copy = nullptr;
  std::vector<double> copied;
  for (int round = 0; round < run->scale.put_rounds; ++round) {
    run->Say(Round(name.c_str(), round, run->scale.put_rounds));
    KVKEEP_ASSIGN_OR_RETURN(copy, run->baselines.Copy(size, 1, run->scale.seconds));
    copied.push_back(copy->rounds.back().gb_per_second());
    KVKEEP_RETURN_IF_ERROR(run->baselines.Copy(size, 2, run->scale.seconds).status());
    const absl::Status passes = RunPasses(run, size, copy_threads, &series);
    if (absl::IsUnimplemented(passes)) {
      lines.push_back(MissingLine(name, std::string(passes.message())));
      return absl::OkStatus();
    }
    KVKEEP_RETURN_IF_ERROR(passes);
  }
  lines.push_back(RatioLine(name + ": against cold memcpy, 1 thread", "GB/s",
                            series.second.GbPerSecond(), copied, {Bound::kAtLeast, wanted}));
  lines.push_back(RatioLine(name + ": first pass from READY against second", "GB/s",
                            series.first.GbPerSecond(), series.second.GbPerSecond(),
                            {Bound::kAtLeast, 0.9}));
  run->report.cases.push_back(std::move(series.first));
  run->report.cases.push_back(std::move(series.second));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunPuts(TableRun* run) {
  for (uint64_t size : {kChunkBytes, kLargeChunkBytes}) {
    for (int copy_threads : {1, run->options.copy_threads}) {
      KVKEEP_RETURN_IF_ERROR(RunPutsOf(run, size, copy_threads));
    }
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------- pieces

absl::Status RunPieces(TableRun* run) {
  const TableScale& scale = run->scale;
  run->Say("pieces: start kvkeepd, put and write back");
  // Twice G2: taken in turn, every chunk was evicted before it is asked for again.
  KVKEEP_ASSIGN_OR_RETURN(auto daemon,
                          DaemonProcess::Start(DaemonOf(run->options, scale.pieces_g2_bytes,
                                                        4 * scale.pieces_keys * kLargeChunkBytes)));
  KVKEEP_ASSIGN_OR_RETURN(auto generator, run->Connect(*daemon));
  for (uint64_t key = 0; key < scale.pieces_keys; ++key) {
    KVKEEP_RETURN_IF_ERROR(generator->Load(key, 1, kLargeChunkBytes, /*no_g3=*/false));
    KVKEEP_RETURN_IF_ERROR(generator->probe()->AwaitClean(std::chrono::minutes(5)));
  }
  KVKEEP_ASSIGN_OR_RETURN(Series series,
                          generator->Prepare("G3 hit 32 MiB", {.verb = Verb::kPieces,
                                                               .size = kLargeChunkBytes,
                                                               .keys = scale.pieces_keys,
                                                               .verify = run->options.verify,
                                                               .no_g3 = false}));
  for (int round = 0; round < scale.rounds; ++round) {
    run->Say(Round("pieces", round, scale.rounds));
    KVKEEP_RETURN_IF_ERROR(generator->Run(scale.seconds, &series));
  }
  const std::string what = "G3 hit 32 MiB: first piece readable against the whole, p50";
  if (series.total().first_piece.count() == 0) {
    run->report.lines.push_back(MissingLine(what, "only the local path tells pieces"));
  } else {
    const std::vector<double> first = series.Each(
        [](const Measured& m) { return static_cast<double>(m.first_piece.Quantile(0.5)) / 1e3; });
    run->report.lines.push_back(
        RatioLine(what, "us", first, series.LatencyUs(0.5), {Bound::kBelow, 0.25}));
  }
  run->report.cases.push_back(std::move(series));
  return run->NoteLocks(generator.get());
}

}  // namespace kvkeep::bench
