// The sections of the table about calls on chunks: gets, lookups, puts, the first piece of a chunk
// on NVMe, and hits beside write-back.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/table.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kChunkBytes = 4 * kMiB;
constexpr uint64_t kLargeChunkBytes = 32 * kMiB;
constexpr uint64_t kSmallChunkInG2 = 2 * kBlockBytes;  // header page and one block
constexpr uint32_t kLookupKeys = 512;
constexpr uint64_t kPassCallBytes = 32 * kMiB;
constexpr double kPassPatienceSeconds = 120;
constexpr double kSliceSeconds = 0.1;  // of hits: some follow while there is something dirty
constexpr uint64_t kMinG2Bytes = 192 * kMiB;

// G2 that holds so many chunks, and some more; never so small that a session's staging memory,
// which is limited to a share of it, does not fit.
uint64_t RoomFor(uint64_t chunks, uint64_t bytes_each) {
  const uint64_t bytes = chunks * bytes_each + chunks * bytes_each / 32 + 8 * kMiB;
  return RoundUp(std::max(bytes, kMinG2Bytes), 2 * kMiB);
}

}  // namespace

// ---------------------------------------------------------------- get

absl::Status RunGets(TableRun* run) {
  const TableScale& scale = run->scale;
  run->Say("get: start kvkeepd and put");
  const uint64_t g2 = RoomFor(scale.get_keys, kChunkBytes + 2 * kBlockBytes);
  KVKEEP_ASSIGN_OR_RETURN(const TableSide side, run->Start(DaemonOf(run->options, g2, 0)));
  KVKEEP_RETURN_IF_ERROR(side.load->Load(0, scale.get_keys, kChunkBytes));
  std::vector<Series> series;
  for (const auto& [batch, depth] : {std::pair(1u, 1u), {1u, 8u}, {64u, 1u}}) {
    KVKEEP_ASSIGN_OR_RETURN(
        series.emplace_back(),
        side.load->Prepare(absl::StrCat("get 4 MiB, batch ", batch, ", depth ", depth),
                           {.verb = Verb::kGet,
                            .size = kChunkBytes,
                            .batch = batch,
                            .depth = depth,
                            .keys = scale.get_keys,
                            .verify = run->options.verify}));
  }
  const Series* bare = nullptr;
  for (int round = 0; round < scale.rounds; ++round) {
    run->SayRound("get", round);
    KVKEEP_ASSIGN_OR_RETURN(bare, run->baselines.PingPongOf(Verb::kGet, 1, 1, scale.seconds));
    for (Series& one : series) KVKEEP_RETURN_IF_ERROR(side.load->Run(scale.seconds, &one));
    for (const auto& [keys, depth] : {std::pair(64u, 1u), {1u, 8u}}) {
      KVKEEP_RETURN_IF_ERROR(
          run->baselines.PingPongOf(Verb::kGet, keys, depth, scale.seconds / 2).status());
    }
  }
  const Series &one = series[0], &deep = series[1], &batch = series[2];
  run->Add(RatioLine("get 4 MiB, batch 1, depth 1: rate against bare ping-pong", "/s",
                     one.OpsPerSecond(), bare->OpsPerSecond(), {Bound::kAtLeast, 0.6}));
  run->Add(RatioLine("get 4 MiB, batch 1, depth 1: p99 against bare p99", "us",
                     one.LatencyUs(0.99), bare->LatencyUs(0.99), {Bound::kAtMost, 5}));
  run->Add(RatioLine("get 4 MiB, depth 8: rate against depth 1", "/s", deep.OpsPerSecond(),
                     one.OpsPerSecond(), {Bound::kAbove, 1}));
  run->Add(PlainLine("get 4 MiB, batch 64: leases", "/s", batch.ChunksPerSecond(),
                     {Bound::kAtLeast, 1e6}));
  uint64_t copied = 0;
  for (Series& each : series) {
    copied += each.total().copied_bytes;
    run->Keep(std::move(each));
  }
  run->Add(PlainLine("get 4 MiB: copied by the client", "bytes", {static_cast<double>(copied)},
                     {Bound::kAtMost, 0}));
  return run->NoteLocks(*side.load);
}

// ---------------------------------------------------------------- lookup

namespace {

// A daemon with a table of so many small chunks, and a client that looks them up.
struct LookupSide {
  TableSide side;
  Series series;
};

absl::StatusOr<Series> PrepareLookups(TableRun* run, LoadGenerator& load, uint64_t chunks,
                                      uint32_t keys, const std::string& name) {
  return load.Prepare(name, {.verb = Verb::kLookup,
                             .size = kSmallChunkBytes,
                             .batch = keys,
                             .keys = chunks,
                             .verify = run->options.verify});
}

// On the mount, if there is one, or beside it: it holds one daemon's arena, and nobody looks at
// bytes.
absl::StatusOr<LookupSide> StartLookups(TableRun* run, uint64_t chunks, bool on_mount) {
  LookupSide of;
  run->Say(absl::StrCat("lookup: put ", chunks, " chunks"));
  DaemonOptions options = DaemonOf(run->options, RoomFor(chunks, kSmallChunkInG2), 0);
  options.leases_per_session = run->scale.held_leases + 1;
  if (!on_mount) options.arena_dir = options.arena_readonly_dir = "";
  KVKEEP_ASSIGN_OR_RETURN(of.side, run->Start(options));
  KVKEEP_RETURN_IF_ERROR(of.side.load->Load(0, chunks, kSmallChunkBytes));
  KVKEEP_ASSIGN_OR_RETURN(of.series,
                          PrepareLookups(run, *of.side.load, chunks, kLookupKeys,
                                         absl::StrCat("lookup 512 keys of ", chunks)));
  return of;
}

// What holds the lock longest: the largest batches, a session that dies with many leases, a Clear
// of everything.
absl::Status RunHeavyCalls(TableRun* run, LookupSide* of, uint64_t chunks) {
  const uint32_t keys = static_cast<uint32_t>(std::min(chunks, run->scale.large_call_keys));
  run->Say("lookup: the largest calls");
  LoadGenerator& load = *of->side.load;
  KVKEEP_ASSIGN_OR_RETURN(
      Series large,
      PrepareLookups(run, load, chunks, keys, absl::StrCat("lookup ", keys, " keys")));
  KVKEEP_RETURN_IF_ERROR(load.Run(run->scale.seconds, &large));
  run->Keep(std::move(large));
  run->Say("lookup: a session dies, then a clear");
  {
    KVKEEP_ASSIGN_OR_RETURN(
        auto dying, LoadGenerator::Start(TargetOf(run->options, of->side.daemon.get()), "", 1));
    KVKEEP_RETURN_IF_ERROR(dying->HoldLeases(run->scale.held_leases, kSmallChunkBytes));
  }  // SIGKILL
  KVKEEP_RETURN_IF_ERROR(load.Run(run->scale.seconds, &of->series));
  of->series.rounds.pop_back();  // beside a death: not compared with the others
  return load.probe()->Clear();
}

}  // namespace

absl::Status RunLookups(TableRun* run) {
  const TableScale& scale = run->scale;
  KVKEEP_ASSIGN_OR_RETURN(LookupSide small, StartLookups(run, scale.small_table, false));
  KVKEEP_ASSIGN_OR_RETURN(LookupSide large, StartLookups(run, scale.large_table, true));
  // A client of the large table over gRPC; it finds what the other one put.
  ClientTarget target = TargetOf(run->options, large.side.daemon.get());
  target.path = "grpc";
  KVKEEP_ASSIGN_OR_RETURN(
      const auto grpc_load, LoadGenerator::Start(target, large.side.daemon->admin_endpoint(), 1,
                                                 large.side.daemon->pid()));
  const std::string of_large = absl::StrCat(" of ", scale.large_table);
  KVKEEP_ASSIGN_OR_RETURN(Series grpc,
                          PrepareLookups(run, *grpc_load, scale.large_table, kLookupKeys,
                                         absl::StrCat("lookup 512 keys", of_large, ", gRPC")));
  const Series* bare = nullptr;
  for (int round = 0; round < scale.rounds; ++round) {
    run->SayRound("lookup", round);
    KVKEEP_ASSIGN_OR_RETURN(
        bare, run->baselines.PingPongOf(Verb::kLookup, kLookupKeys, 1, scale.seconds));
    KVKEEP_RETURN_IF_ERROR(small.side.load->Run(scale.seconds, &small.series));
    KVKEEP_RETURN_IF_ERROR(large.side.load->Run(scale.seconds, &large.series));
    KVKEEP_RETURN_IF_ERROR(grpc_load->Run(scale.seconds, &grpc));
  }
  run->Add(DifferenceLine(
      absl::StrCat("lookup 512", of_large, " chunks: p50 beyond the bare round trip"), "us",
      large.series.LatencyUs(0.5), bare->LatencyUs(0.5), {Bound::kAtMost, 40}));
  run->Add(PlainLine(absl::StrCat("lookup 512", of_large, " chunks, gRPC: p50"), "us",
                     grpc.LatencyUs(0.5), {Bound::kAtMost, 300}));
  run->Add(RatioLine(absl::StrCat("lookup 512: p50 at ", scale.large_table, " against ",
                                  scale.small_table, " chunks"),
                     "us", large.series.LatencyUs(0.5), small.series.LatencyUs(0.5),
                     {Bound::kBelow, 1.6}));
  KVKEEP_RETURN_IF_ERROR(RunHeavyCalls(run, &large, scale.large_table));
  KVKEEP_RETURN_IF_ERROR(run->NoteLocks(*large.side.load));
  run->Say("lookup: bare loops, for as long as the lock was held");
  const double stop_us = 1e6 * LongestStopOfBareLoops(std::clamp(run->lock_seconds, 0.1, 20.0));
  run->Add(DifferenceLine(
      absl::StrCat("any lock held, with a batch of ", scale.large_call_keys, " keys, a dead ",
                   "session's ", scale.held_leases, " leases, a clear", of_large,
                   run->lock_worked ? "; time on a CPU," : ";", " beyond the stops of bare loops"),
      "us", {run->longest_lock_us}, {stop_us}, {Bound::kAtMost, 100}));
  for (Series* one : {&small.series, &large.series, &grpc}) run->Keep(std::move(*one));
  return absl::OkStatus();
}

// ---------------------------------------------------------------- put

namespace {

// One round: a fresh daemon, filled once, over memory that nobody has written yet, then once more.
absl::Status RunPasses(TableRun* run, uint64_t size, int copy_threads, Series* first,
                       Series* second) {
  DaemonOptions options = DaemonOf(run->options, run->scale.put_g2_bytes, 0);
  options.copy_threads = copy_threads;
  KVKEEP_ASSIGN_OR_RETURN(const TableSide side, run->Start(options));
  const uint64_t batch = std::max<uint64_t>(1, kPassCallBytes / size);
  CaseSpec spec{
      .verb = Verb::kPut, .size = size, .batch = static_cast<uint32_t>(batch), .depth = 2};
  spec.verify = false;  // the clock does not stand still while the daemon prefaults
  Json ready = std::move(first->about["ready_to_first_put_seconds"]);  // of the rounds so far
  for (Series* pass : {first, second}) {
    KVKEEP_ASSIGN_OR_RETURN(Series prepared, side.load->Prepare(pass->name, spec));
    pass->about = std::move(prepared.about);
    spec.verify = run->options.verify;
  }
  ready.push_back(WallSeconds() - side.daemon->ready_at());
  first->about["ready_to_first_put_seconds"] = std::move(ready);
  const uint64_t chunks = run->scale.put_g2_bytes / (size + 2 * kBlockBytes);
  const uint64_t calls = std::max<uint64_t>(1, chunks / batch);
  for (Series* pass : {first, second}) {
    KVKEEP_RETURN_IF_ERROR(side.load->Run(kPassPatienceSeconds, pass, calls));
  }
  return run->NoteLocks(*side.load);
}

absl::Status RunPutsOf(TableRun* run, uint64_t size, int copy_threads) {
  const bool alone = copy_threads == 1;
  const std::string name = absl::StrCat("put ", tools::FormatBytes(size), ", ",
                                        alone ? "one copy thread" : "copy pool");
  Series first{.name = name + ", first pass", .about = Json::object(), .has_daemon = true};
  Series second{.name = name + ", second pass", .has_daemon = true};
  std::vector<double> copied;
  for (int round = 0; round < run->scale.put_rounds; ++round) {
    run->Say(absl::StrCat(name, ": round ", round + 1, " of ", run->scale.put_rounds));
    KVKEEP_ASSIGN_OR_RETURN(const Series* copy, run->baselines.Copy(size, 1, run->scale.seconds));
    copied.push_back(copy->rounds.back().gb_per_second());
    KVKEEP_RETURN_IF_ERROR(run->baselines.Copy(size, 2, run->scale.seconds).status());
    KVKEEP_RETURN_IF_ERROR(RunPasses(run, size, copy_threads, &first, &second));
  }
  run->Add(RatioLine(name + ": against cold memcpy, 1 thread", "GB/s", second.GbPerSecond(),
                     copied, {Bound::kAtLeast, alone ? 0.65 : 0.8}));
  run->Add(RatioLine(name + ": first pass from READY against second", "GB/s", first.GbPerSecond(),
                     second.GbPerSecond(), {Bound::kAtLeast, 0.9}));
  run->Keep(std::move(first));
  run->Keep(std::move(second));
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
  KVKEEP_ASSIGN_OR_RETURN(const TableSide side,
                          run->Start(DaemonOf(run->options, scale.pieces_g2_bytes,
                                              4 * scale.pieces_keys * kLargeChunkBytes)));
  for (uint64_t key = 0; key < scale.pieces_keys; ++key) {
    KVKEEP_RETURN_IF_ERROR(side.load->Load(key, 1, kLargeChunkBytes, /*no_g3=*/false));
    KVKEEP_RETURN_IF_ERROR(side.load->probe()->AwaitClean());
  }
  KVKEEP_ASSIGN_OR_RETURN(Series series,
                          side.load->Prepare("G3 hit 32 MiB", {.verb = Verb::kPieces,
                                                               .size = kLargeChunkBytes,
                                                               .keys = scale.pieces_keys,
                                                               .verify = run->options.verify,
                                                               .no_g3 = false}));
  for (int round = 0; round < scale.rounds; ++round) {
    run->SayRound("pieces", round);
    KVKEEP_RETURN_IF_ERROR(side.load->Run(scale.seconds, &series));
  }
  const std::string what = "G3 hit 32 MiB: first piece readable against the whole, p50";
  if (series.total().first_piece.count() == 0) {
    run->Add(MissingLine(what, "only the local path tells pieces"));
  } else {
    const std::vector<double> first =
        series.Each([](const Measured& m) { return m.first_piece.QuantileUs(0.5); });
    run->Add(RatioLine(what, "us", first, series.LatencyUs(0.5), {Bound::kBelow, 0.25}));
  }
  run->Keep(std::move(series));
  return run->NoteLocks(*side.load);
}

// ---------------------------------------------------------------- hits
//
// In G2 while write-back keeps the drive busy, and nothing else does anything: puts would take the
// CPU that hits want, and could not keep a drive of today busy. So chunks lie in G2 that are not
// worth a write until they are used again (admission second_use): a quiet slice of gets, then one
// lookup of all of those, and gets for as long as they are written.

namespace {

struct HitSeries {
  Series quiet, busy;
  Series use;                                 // the lookup
  std::vector<double> written_gb_per_second;  // meanwhile
};

// Gets until nothing is dirty or the time is up. A slice at whose end nothing was dirty any more
// does not count; where the drive was done before the first one ended, nor does the quiet one.
absl::Status GetWhileDirty(TableRun* run, LoadGenerator& load, HitSeries* series) {
  Series slices = series->busy;
  slices.rounds.clear();
  const double began = WallSeconds();
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus before, load.Status());
  uint64_t dirty = before.g2_dirty_bytes;
  double took = 0;
  while (took < run->scale.seconds) {
    KVKEEP_RETURN_IF_ERROR(load.Run(std::min(kSliceSeconds, run->scale.seconds), &slices));
    KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus now, load.Status());
    if (now.g2_dirty_bytes == 0) {
      slices.rounds.pop_back();
      break;
    }
    dirty = now.g2_dirty_bytes;
    took = WallSeconds() - began;
  }
  if (slices.rounds.empty()) {
    series->quiet.rounds.pop_back();
    return absl::OkStatus();
  }
  series->busy.rounds.push_back(slices.total());
  series->busy.daemon = slices.daemon;
  series->written_gb_per_second.push_back(
      (static_cast<double>(before.g2_dirty_bytes) - static_cast<double>(dirty)) / took / 1e9);
  return absl::OkStatus();
}

// One round: a daemon that nothing was offered to yet.
absl::Status RunHitRound(TableRun* run, HitSeries* series) {
  const TableScale& scale = run->scale;
  const uint64_t bytes = scale.hits_dirty_chunks * kChunkBytes;
  DaemonOptions options = DaemonOf(run->options, RoundUp(bytes / 4 * 5, 2 * kMiB), 2 * bytes);
  options.g3_admission = "second_use";
  KVKEEP_ASSIGN_OR_RETURN(const TableSide side, run->Start(options));
  CaseSpec spec = {.verb = Verb::kGet,
                   .size = kChunkBytes,
                   .keys = scale.hits_keys,
                   .verify = run->options.verify};
  KVKEEP_ASSIGN_OR_RETURN(const Series get, side.load->Prepare(series->quiet.name, spec));
  spec.verb = Verb::kLookup;
  spec.keys = scale.hits_dirty_chunks;
  spec.batch = static_cast<uint32_t>(scale.hits_dirty_chunks);
  KVKEEP_ASSIGN_OR_RETURN(const Series use, side.load->Prepare(series->use.name, spec));
  series->quiet.about = series->busy.about = get.about;
  series->use.about = use.about;
  KVKEEP_RETURN_IF_ERROR(
      side.load->Load(0, scale.hits_dirty_chunks, kChunkBytes, /*no_g3=*/false));
  KVKEEP_RETURN_IF_ERROR(side.load->Run(scale.seconds, &series->quiet));
  KVKEEP_RETURN_IF_ERROR(side.load->Run(scale.seconds, &series->use, /*max_ops=*/1));
  KVKEEP_RETURN_IF_ERROR(GetWhileDirty(run, *side.load, series));
  return run->NoteLocks(*side.load);
}

}  // namespace

absl::Status RunHits(TableRun* run) {
  HitSeries series{.quiet = {.name = "hits of 4 MiB, quiet", .has_daemon = true},
                   .busy = {.name = "hits of 4 MiB beside write-back", .has_daemon = true},
                   .use = {.name = "use of what is not written", .has_daemon = true}};
  for (int round = 0; round < run->scale.rounds; ++round) {
    run->SayRound("hits", round);
    KVKEEP_RETURN_IF_ERROR(RunHitRound(run, &series));
  }
  const std::string what = "hit of 4 MiB in G2 while write-back is at its most: ";
  if (series.busy.rounds.empty()) {
    run->Add(MissingLine(what + "p50 and p99", "the drive was done before a slice of gets was"));
  } else {
    Line p50 = RatioLine(what + "p50 against quiet", "us", series.busy.LatencyUs(0.5),
                         series.quiet.LatencyUs(0.5), {Bound::kAtMost, 1.2});
    p50.numbers["written_gb_per_second"] = series.written_gb_per_second;
    run->Add(std::move(p50));
    std::vector<double> twice = series.quiet.LatencyUs(0.99);
    for (double& us : twice) us *= 2;
    run->Add(DifferenceLine(what + "p99 beyond twice the quiet one", "us",
                            series.busy.LatencyUs(0.99), twice, {Bound::kAtMost, 100}));
  }
  for (Series* one : {&series.quiet, &series.busy, &series.use}) {
    if (!one->rounds.empty()) run->Keep(std::move(*one));
  }
  return absl::OkStatus();
}

}  // namespace kvkeep::bench
