#include "tools/kvkeep/replay.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "client/admin.h"
#include "tiers/base/mutex.h"
#include "tiers/base/status_macros.h"
#include "tools/kvkeep/capacity_watch.h"
#include "tools/kvkeep/replay_worker.h"

namespace kvkeep::tools {
namespace {

constexpr std::chrono::milliseconds kSettlePollEvery{1};

// Waits until G2 has no chunk that is still to be written to G3.
absl::Status AwaitSettled(client::AdminClient& admin, client::Deadline timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    KVKEEP_ASSIGN_OR_RETURN(const auto status, admin.Status());
    const uint64_t dirty = status.g2().dirty_bytes();
    if (dirty == 0) return absl::OkStatus();
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("g2 has ", dirty, " dirty bytes left after ", timeout.count(), " ms"));
    }
    std::this_thread::sleep_for(kSettlePollEvery);  // for the daemon's writes: there is no event
  }
}

}  // namespace

void ReplayReport::Add(ReplayReport&& other) {
  requests += other.requests;
  chunk_refs += other.chunk_refs;
  leading_hit_chunks += other.leading_hit_chunks;
  g2_hits += other.g2_hits;
  g3_hits += other.g3_hits;
  g4_hits += other.g4_hits;
  put_chunks += other.put_chunks;
  present_chunks += other.present_chunks;
  rejected += other.rejected;
  for (const auto& [reason, count] : other.rejected_because) rejected_because[reason] += count;
  if (first_rejection.empty()) first_rejection = std::move(other.first_rejection);
  wrong_bytes += other.wrong_bytes;
  corrupt_chunks += other.corrupt_chunks;
  lost_promises += other.lost_promises;
  unleased_windows += other.unleased_windows;
  unavailable += other.unavailable;
  failed_calls += other.failed_calls;
  if (first_failure.empty()) first_failure = std::move(other.first_failure);
  bytes_got += other.bytes_got;
  bytes_put += other.bytes_put;
  get_seconds += other.get_seconds;
  put_seconds += other.put_seconds;
  lookup_us.insert(lookup_us.end(), other.lookup_us.begin(), other.lookup_us.end());
  get_chunk_us.insert(get_chunk_us.end(), other.get_chunk_us.begin(), other.get_chunk_us.end());
}

void ReplayReport::NoteRejection(const std::string& message) {
  ++rejected;
  // Messages are "REASON: details", from the daemon and from the client.
  ++rejected_because[message.substr(0, message.find(':'))];
  if (first_rejection.empty()) first_rejection = message;
}

double Percentile(std::vector<double>& samples, double fraction) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(samples.size())));
  return samples[rank == 0 ? 0 : rank - 1];
}

absl::StatusOr<ReplayReport> Replay(const ReplayOptions& options,
                                    std::span<const TraceRequest> requests,
                                    ReplayProgress progress) {
  std::vector<std::unique_ptr<ReplayWorker>> workers;
  for (int i = 0; i < options.concurrency; ++i) {
    KVKEEP_ASSIGN_OR_RETURN(workers.emplace_back(), ReplayWorker::Create(options, i));
  }
  std::optional<client::AdminClient> admin;
  if (options.settle) admin.emplace(options.admin_endpoint, options.timeout);
  std::optional<CapacityWatch> watch;
  if (options.check_capacity) watch.emplace(options.admin_endpoint, options.timeout);

  const auto began = std::chrono::steady_clock::now();
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  Mutex mu;  // for what follows
  absl::Status status;
  uint64_t done = 0;
  std::vector<std::thread> threads;
  for (auto& worker : workers) {
    threads.emplace_back([&, worker = worker.get()] {
      for (size_t i = next++; i < requests.size() && !failed; i = next++) {
        absl::Status played = absl::OkStatus();
        if (admin) played = AwaitSettled(*admin, options.settle_timeout);
        if (played.ok()) played = worker->Play(requests[i]);
        MutexLock lock(&mu);
        if (!played.ok() && !failed.exchange(true)) status = std::move(played);
        progress(++done);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  ReplayReport report;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  report.concurrency = options.concurrency;
  for (auto& worker : workers) report.Add(worker->TakeReport());
  if (watch.has_value()) {
    CapacityWatch::Findings findings = watch->Stop();
    if (findings.polls == 0 && status.ok()) {
      status = absl::UnavailableError("the admin socket never answered; capacity was not checked");
    }
    report.status_polls = findings.polls;
    report.capacity_violations = findings.violations;
    report.first_violation = std::move(findings.first_violation);
    report.resident_chunks_g2 = findings.resident_chunks_g2;
    report.resident_chunks_g3 = findings.resident_chunks_g3;
  }
  if (!status.ok()) return status;
  return report;
}

}  // namespace kvkeep::tools
