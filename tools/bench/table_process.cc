// The sections of the table about the daemon as a process, as /proc shows it: its first touch of
// its arena, and what it holds and does at rest; and the one about two drives instead of one.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/proc_status.h"
#include "tools/bench/server_program.h"
#include "tools/bench/shared_pages.h"
#include "tools/bench/table.h"

namespace kvkeep::bench {

// ---------------------------------------------------------------- prefault
//
// How fast a daemon that starts brings its pages there, beside as many threads of ours that do
// nothing else.

namespace {

constexpr int kMostTouchThreads = 4;  // of the daemon's copy pool, unless it is configured
constexpr uint64_t kTouchBegun = 16 * kMiB;
constexpr double kTouchPatienceSeconds = 120;

// From the first look that shows some of the arena to the first that shows all.
absl::StatusOr<double> DaemonsTouchRate(TableRun* run) {
  const uint64_t bytes = run->scale.put_g2_bytes;
  uint64_t begun_bytes = 0;
  double begun_at = 0, done_at = 0;
  absl::Status looked;
  const auto look = [&](int pid) {
    if (!looked.ok() || done_at > 0) return;
    const absl::StatusOr<uint64_t> there = ResidentSharedBytes(pid);
    looked = there.status();
    if (!there.ok() || *there < std::min(kTouchBegun, bytes / 8)) return;
    const double now = WallSeconds();
    if (begun_at == 0) {
      begun_at = now;
      begun_bytes = std::min(*there, bytes);
    }
    if (*there >= bytes) done_at = now;
  };
  DaemonOptions options = DaemonOf(run->options, bytes, 0);
  options.while_starting = look;
  KVKEEP_ASSIGN_OR_RETURN(const auto daemon, DaemonProcess::Start(options));
  const double give_up = WallSeconds() + kTouchPatienceSeconds;
  for (; done_at == 0; look(daemon->pid())) {
    KVKEEP_RETURN_IF_ERROR(looked);
    if (WallSeconds() > give_up) return absl::DeadlineExceededError("the arena is not touched");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for another process
  }
  // It was looked once a ms.
  return static_cast<double>(bytes - begun_bytes) / std::max(done_at - begun_at, 1e-3) / 1e9;
}

absl::StatusOr<double> OurTouchRate(TableRun* run, int threads) {
  KVKEEP_ASSIGN_OR_RETURN(SharedPages pages, SharedPages::CreateUntouched(run->scale.put_g2_bytes,
                                                                          run->options.arena_dir));
  const double began = WallSeconds();
  KVKEEP_RETURN_IF_ERROR(pages.Touch(threads));
  return static_cast<double>(pages.memory().size()) / (WallSeconds() - began) / 1e9;
}

}  // namespace

absl::Status RunPrefault(TableRun* run) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = run->options.copy_threads > 0 ? run->options.copy_threads
                                                    : std::min(cores, kMostTouchThreads);
  std::vector<double> daemons, ours;
  for (int round = 0; round < run->scale.rounds; ++round) {
    run->SayRound("prefault", round);
    // Pages that somebody has just given back come sooner: each is the first in turn.
    for (const bool daemon : {round % 2 == 0, round % 2 != 0}) {
      KVKEEP_ASSIGN_OR_RETURN(const double rate,
                              daemon ? DaemonsTouchRate(run) : OurTouchRate(run, threads));
      (daemon ? daemons : ours).push_back(rate);
    }
  }
  Line line = RatioLine(
      absl::StrCat("prefault: against a touch by ", threads, threads == 1 ? " thread" : " threads"),
      "GB/s", daemons, ours, {Bound::kAtLeast, 0.8});
  line.numbers["bytes"] = run->scale.put_g2_bytes;
  run->Add(std::move(line));
  return absl::OkStatus();
}

// ---------------------------------------------------------------- devices
//
// A machine that measures has one drive, so two are simulated, under the store alone:
// kvkeep-devices-bench (tests/bench/store), which is built beside the daemon. It measures; judged
// is here.

absl::Status RunDevices(TableRun* run) {
  const TableScale& scale = run->scale;
  const std::filesystem::path program =
      std::filesystem::path(run->options.daemon).parent_path() / "kvkeep-devices-bench";
  if (!std::filesystem::exists(program)) {
    run->Add(MissingLine("two simulated drives against one", "build kvkeep-devices-bench, too"));
    return absl::OkStatus();
  }
  run->Say(absl::StrCat("devices: ", scale.rounds, " rounds"));
  KVKEEP_ASSIGN_OR_RETURN(
      const ProgramOutput ran,
      RunProgram({program.string(), "--json", "--mib", absl::StrCat(scale.device_bytes / kMiB),
                  "--rounds", absl::StrCat(scale.rounds), "--seconds",
                  absl::StrCat(scale.seconds)}));
  const Json json = Json::parse(ran.text, nullptr, /*allow_exceptions=*/false);
  if (ran.status != 0 || json.is_discarded()) {
    return absl::UnavailableError(absl::StrCat(program.string(), ": ", ran.text));
  }
  const std::string of = absl::StrFormat("two simulated drives of %g MB/s and %d us against one: ",
                                         json.at("bytes_per_second").get<double>() / 1e6,
                                         json.at("latency_us").get<int>());
  run->Add(RatioLine(of + "reads", "GB/s", json.at("read_two"), json.at("read_one"),
                     {Bound::kAtLeast, 1.9}));
  run->Add(RatioLine(of + "write-back", "GB/s", {json.at("written_two").get<double>()},
                     {json.at("written_one").get<double>()}));
  return absl::OkStatus();
}

// ---------------------------------------------------------------- rest

namespace {

constexpr uint32_t kConnections = 16;
constexpr uint64_t kRestChunkBytes = 4 * kMiB;
constexpr uint32_t kRestBatch = 2;
constexpr uint64_t kRestKeys = 32;
constexpr uint64_t kRestPoolBytes = 16 * kMiB;  // of each client
constexpr double kRestPatienceSeconds = 600;

// Half of it put, half of it got.
absl::Status MoveBytes(TableRun* run, LoadGenerator& load) {
  const uint64_t calls =
      run->scale.rest_bytes / 2 / kConnections / (kRestBatch * kRestChunkBytes) + 1;
  KVKEEP_RETURN_IF_ERROR(load.Load(0, kRestKeys, kRestChunkBytes));
  for (const Verb verb : {Verb::kGet, Verb::kPut}) {
    KVKEEP_ASSIGN_OR_RETURN(
        Series series,
        load.Prepare(absl::StrCat(VerbName(verb), " 4 MiB, batch 2, gRPC, 16 connections"),
                     {.verb = verb,
                      .size = kRestChunkBytes,
                      .batch = kRestBatch,
                      .keys = kRestKeys,
                      .verify = run->options.verify}));
    KVKEEP_RETURN_IF_ERROR(load.Run(kRestPatienceSeconds, &series, calls));
    run->Keep(std::move(series));
  }
  return absl::OkStatus();
}

// In all, and in the JSON which threads they were.
Line WakeUpsLine(std::map<std::string, uint64_t> before,
                 const std::map<std::string, uint64_t>& after, double seconds) {
  double all = 0;
  Json by_thread = Json::object();
  for (const auto& [name, count] : after) {
    const double rate = static_cast<double>(count - std::min(count, before[name])) / seconds;
    if (rate > 0) by_thread[name] = rate;
    all += rate;
  }
  Line line =
      PlainLine("idle, 16 clients connected: wake-ups", "/s", {all}, {Bound::kAtMost, 10});
  line.numbers["by_thread"] = std::move(by_thread);
  return line;
}

}  // namespace

absl::Status RunRest(TableRun* run) {
  const TableScale& scale = run->scale;
  run->Say("rest: move bytes over 16 connections of gRPC");
  DaemonOptions options = DaemonOf(run->options, kGiB, 0);
  options.arena_dir = options.arena_readonly_dir = "";  // shared memory is told apart by the kernel
  KVKEEP_ASSIGN_OR_RETURN(const auto daemon, DaemonProcess::Start(options));
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t fresh, ResidentBesideSharedBytes(daemon->pid()));
  ClientTarget target = TargetOf(run->options, daemon.get());
  target.path = "grpc";
  target.pool_bytes = kRestPoolBytes;
  KVKEEP_ASSIGN_OR_RETURN(
      const auto load,
      LoadGenerator::Start(target, daemon->admin_endpoint(), kConnections, daemon->pid()));
  KVKEEP_RETURN_IF_ERROR(MoveBytes(run, *load));
  KVKEEP_RETURN_IF_ERROR(run->NoteLocks(*load));
  run->Say("rest: wait");
  // Its clients are still connected.
  const std::chrono::duration<double> third(scale.rest_seconds / 3);
  std::this_thread::sleep_for(2 * third);  // for the daemon to come to rest
  KVKEEP_ASSIGN_OR_RETURN(const auto before, WakeUpsOf(daemon->pid()));
  const double began = WallSeconds();
  std::this_thread::sleep_for(third);  // for nothing: that is what is measured
  KVKEEP_ASSIGN_OR_RETURN(const auto after, WakeUpsOf(daemon->pid()));
  const double seconds = WallSeconds() - began;
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t resident, ResidentBesideSharedBytes(daemon->pid()));
  Line memory = PlainLine(
      absl::StrFormat("%g s after %.2g GB of gRPC on 16 connections: resident beside the arena",
                      scale.rest_seconds, static_cast<double>(scale.rest_bytes) / 1e9),
      "MiB", {static_cast<double>(resident) / kMiB}, {Bound::kAtMost, 300});
  memory.numbers["bytes_moved"] = scale.rest_bytes;
  memory.numbers["seconds_of_rest"] = scale.rest_seconds;
  memory.numbers["resident_bytes_when_fresh"] = fresh;
  run->Add(std::move(memory));
  run->Add(WakeUpsLine(before, after, seconds));
  return absl::OkStatus();
}

}  // namespace kvkeep::bench
