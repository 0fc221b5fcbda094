// The section of the table about a daemon at rest: what it still holds when much has gone through
// it, and what it does when nothing is asked of it.
#include <absl/strings/str_format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/process_memory.h"
#include "tools/bench/table_lines.h"
#include "tools/bench/table_sections.h"

namespace kvkeep::bench {
namespace {

constexpr uint32_t kConnections = 16;
constexpr uint64_t kRestChunkBytes = 4 * kMiB;
constexpr uint32_t kBatch = 2;
constexpr uint64_t kKeys = 32;
constexpr uint64_t kG2Bytes = 1 * kGiB;
constexpr uint64_t kRestPoolBytes = 16 * kMiB;  // of each client
constexpr double kPatienceSeconds = 600;
constexpr double kMaxMiB = 300;
constexpr double kMaxWakeUps = 10;  // a second

// Half of it put, half of it got.
absl::Status MoveBytes(TableRun* run, LoadGenerator* generator) {
  const uint64_t calls = run->scale.rest_bytes / 2 / kConnections / (kBatch * kRestChunkBytes) + 1;
  KVKEEP_RETURN_IF_ERROR(generator->Load(0, kKeys, kRestChunkBytes));
  for (const Verb verb : {Verb::kGet, Verb::kPut}) {
    KVKEEP_ASSIGN_OR_RETURN(
        Series series,
        generator->Prepare(verb == Verb::kGet ? "get 4 MiB, batch 2, gRPC, 16 connections"
                                              : "put 4 MiB, batch 2, gRPC, 16 connections",
                           {.verb = verb,
                            .size = kRestChunkBytes,
                            .batch = kBatch,
                            .keys = kKeys,
                            .verify = run->options.verify}));
    KVKEEP_RETURN_IF_ERROR(generator->Run(kPatienceSeconds, &series, calls));
    run->report.cases.push_back(std::move(series));
  }
  return absl::OkStatus();
}

// In all, and in the JSON which threads they were.
Line WakeUpsLine(const std::map<std::string, uint64_t>& before,
                 const std::map<std::string, uint64_t>& after, double seconds) {
  double all = 0;
  Json by_thread = Json::object();
  for (const auto& [name, count] : after) {
    const auto earlier = before.find(name);
    const uint64_t since = earlier == before.end() ? 0 : earlier->second;
    const double rate = static_cast<double>(count - std::min(count, since)) / seconds;
    if (rate > 0) by_thread[name] = rate;
    all += rate;
  }
  Line line =
      PlainLine("idle, 16 clients connected: wake-ups", "/s", {all}, {Bound::kAtMost, kMaxWakeUps});
  line.numbers["by_thread"] = std::move(by_thread);
  return line;
}

}  // namespace

absl::Status RunRest(TableRun* run) {
  run->Say("rest: move bytes over 16 connections of gRPC");
  DaemonOptions options = DaemonOf(run->options, kG2Bytes, 0);
  options.arena_dir = options.arena_readonly_dir = "";  // shared memory is told apart by the kernel
  KVKEEP_ASSIGN_OR_RETURN(auto daemon, DaemonProcess::Start(options));
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t fresh, ResidentBesideSharedBytes(daemon->pid()));
  ClientTarget target = TargetOf(run->options, daemon.get());
  target.path = "grpc";
  target.pool_bytes = kRestPoolBytes;
  KVKEEP_ASSIGN_OR_RETURN(auto generator, LoadGenerator::Start(target, daemon->admin_endpoint(),
                                                               kConnections, daemon->pid()));
  KVKEEP_RETURN_IF_ERROR(MoveBytes(run, generator.get()));
  KVKEEP_RETURN_IF_ERROR(run->NoteLocks(generator.get()));
  run->Say("rest: wait");
  // Its clients are still connected.
  const std::chrono::duration<double> third(run->scale.rest_seconds / 3);
  std::this_thread::sleep_for(2 * third);  // for the daemon to come to rest
  KVKEEP_ASSIGN_OR_RETURN(const auto before, WakeUpsOf(daemon->pid()));
  const double began = WallSeconds();
  std::this_thread::sleep_for(third);  // for nothing: that is what is measured
  KVKEEP_ASSIGN_OR_RETURN(const auto after, WakeUpsOf(daemon->pid()));
  const double seconds = WallSeconds() - began;
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t resident, ResidentBesideSharedBytes(daemon->pid()));
  Line memory = PlainLine(
      absl::StrFormat("%g s after %.2g GB of gRPC on 16 connections: resident beside the arena",
                      run->scale.rest_seconds, static_cast<double>(run->scale.rest_bytes) / 1e9),
      "MiB", {static_cast<double>(resident) / kMiB}, {Bound::kAtMost, kMaxMiB});
  memory.numbers["bytes_moved"] = run->scale.rest_bytes;
  memory.numbers["seconds_of_rest"] = run->scale.rest_seconds;
  memory.numbers["resident_bytes_when_fresh"] = fresh;
  run->report.lines.push_back(std::move(memory));
  run->report.lines.push_back(WakeUpsLine(before, after, seconds));
  return absl::OkStatus();
}

}  // namespace kvkeep::bench
