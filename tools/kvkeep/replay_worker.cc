#include "tools/kvkeep/replay_worker.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/kvkeep/generator.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

using client::GetStatus;
using client::LeaseMode;
using client::PutStatus;
using std::chrono::steady_clock;

constexpr uint64_t kBufferBytes = 128 * kMiB;
constexpr client::Deadline kPayloadDeadline{30'000};

double SecondsSince(steady_clock::time_point began) {
  return std::chrono::duration<double>(steady_clock::now() - began).count();
}

ChunkKey KeyOf(uint64_t seed, uint64_t id) {
  char both[16];
  std::memcpy(both, &seed, sizeof(seed));
  std::memcpy(both + 8, &id, sizeof(id));
  return Sha256Key({both, sizeof(both)});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReplayWorker>> ReplayWorker::Create(const ReplayOptions& options,
                                                                   int number) {
  std::unique_ptr<ReplayWorker> worker(new ReplayWorker(options));
  KVKEEP_ASSIGN_OR_RETURN(
      worker->client_,
      client::Client::Connect({.endpoint = options.endpoint,
                               .client_name = absl::StrCat("kvkeep replay ", number),
                               .default_deadline = options.timeout,
                               .path = options.path}));
  if (!worker->client_->connected()) return worker->client_->GetServerInfo().status();
  KVKEEP_ASSIGN_OR_RETURN(worker->ns_,
                          worker->client_->OpenNamespace({.model = options.model,
                                                          .dtype = "bytes",
                                                          .tokens_per_chunk = 512,
                                                          .hash_algorithm = "sha256"}));
  uint64_t largest = kBufferBytes;
  for (uint64_t size : options.chunk_sizes) largest = std::max(largest, size);
  worker->buffer_.resize(largest);
  return worker;
}

client::Deadline ReplayWorker::payload_deadline() const {
  return std::max(kPayloadDeadline, options_.timeout);
}

ReplayWorker::Chain ReplayWorker::MakeChain(const TraceRequest& request) const {
  Chain chain;
  chain.ids = request.hash_ids;
  for (uint64_t id : chain.ids) {
    chain.keys.push_back(KeyOf(options_.seed, id));
    chain.sizes.push_back(
        options_.chunk_sizes[MixIds(options_.seed, id) % options_.chunk_sizes.size()]);
  }
  return chain;
}

absl::Status ReplayWorker::Play(const TraceRequest& request) {
  const Chain chain = MakeChain(request);
  ++report_.requests;
  report_.chunk_refs += chain.ids.size();
  if (chain.ids.empty()) return absl::OkStatus();
  size_t delivered = 0;
  KVKEEP_RETURN_IF_ERROR(GetLeadingRun(chain, &delivered));
  report_.leading_hit_chunks += delivered;
  return PutRest(chain, delivered);
}

absl::Status ReplayWorker::Failed(const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
    ++report_.failed_calls;
    if (report_.first_failure.empty()) report_.first_failure = status.ToString();
    return absl::OkStatus();  // a miss
  }
  ++report_.unavailable;
  if (!options_.tolerate_restart) return status;
  if (client_->WaitConnected(options_.restart_timeout)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the daemon did not come back within ",
                                             options_.restart_timeout.count() / 1000, " s"));
}

absl::Status ReplayWorker::GetLeadingRun(const Chain& chain, size_t* delivered) {
  const client::Keys keys(chain.keys);
  size_t done = 0;
  // The first lookup counts the tiers; later ones only lease what did not fit before.
  for (bool first = true;; first = false) {
    const auto began = steady_clock::now();
    auto found = client_->Lookup(
        ns_, keys.subspan(done),
        {.lease = LeaseMode::kLeadingRun, .remote_wait = options_.remote_wait});
    if (!found.ok()) {
      *delivered = done;
      return Failed(found.status());
    }
    if (first) report_.lookup_us.push_back(SecondsSince(began) * 1e6);
    const bool leased = found->leased_keys > 0;
    // Chunks on their way arrive in the lease's space: without a lease they cannot be got.
    const size_t reach = found->leading_keys + (leased ? found->remote_keys : 0);
    if (reach == 0) break;
    if (!leased) ++report_.unleased_windows;
    const size_t window = leased ? found->leased_keys : reach;
    const size_t promised = std::min<size_t>(window, found->leading_keys);
    size_t next = done;
    KVKEEP_RETURN_IF_ERROR(GetWindow(
        chain, {done, done + promised, done + window, leased ? &found->lease : nullptr}, &next));
    for (size_t i = done; i < next; ++i) {
      uint64_t& hits = found->in_g2(i - done)   ? report_.g2_hits
                       : found->in_g3(i - done) ? report_.g3_hits
                                                : report_.g4_hits;
      ++hits;
    }
    const bool broke_off = next < done + window;
    done = next;
    // Waits, as the next window needs the space that this gives back.
    if (leased) (void)client_->Release(std::move(found->lease));
    if (broke_off || window == reach) break;
  }
  *delivered = done;
  return absl::OkStatus();
}

std::vector<std::span<std::byte>> ReplayWorker::Batch(const Chain& chain, size_t begin,
                                                      size_t end) {
  std::vector<std::span<std::byte>> batch;
  uint64_t used = 0;
  for (size_t i = begin; i < end && used + chain.sizes[i] <= buffer_.size(); ++i) {
    batch.push_back(std::span(buffer_).subspan(used, chain.sizes[i]));
    used += chain.sizes[i];
  }
  KVKEEP_CHECK(!batch.empty());
  return batch;
}

absl::Status ReplayWorker::GetWindow(const Chain& chain, const Window& window, size_t* next) {
  const client::Keys keys(chain.keys);
  *next = window.begin;
  while (*next < window.end) {
    const std::vector<std::span<std::byte>> to = Batch(chain, *next, window.end);
    const auto began = steady_clock::now();
    auto got = client_->Get(ns_, keys.subspan(*next, to.size()),
                            {.lease = window.lease,
                             .first_key = static_cast<uint32_t>(*next - window.begin),
                             .deadline = payload_deadline(),
                             .destinations = to});
    const double seconds = SecondsSince(began);
    report_.get_seconds += seconds;
    if (!got.ok()) return Failed(got.status());
    const bool all_kept = window.lease != nullptr && got->error.ok();
    const size_t hits = CheckBatch(chain, *next, *got, to, all_kept ? window.promised : 0);
    report_.get_chunk_us.insert(report_.get_chunk_us.end(), hits,
                                seconds * 1e6 / static_cast<double>(to.size()));
    *next += hits;
    if (!got->error.ok()) return Failed(got->error);
    if (hits < to.size()) return absl::OkStatus();
  }
  return absl::OkStatus();
}

size_t ReplayWorker::CheckBatch(const Chain& chain, size_t begin, const client::GetResult& result,
                                const std::vector<std::span<std::byte>>& to,
                                size_t promised) {
  size_t hits = 0;
  bool leading = true;
  for (size_t i = 0; i < to.size(); ++i) {
    const client::GetOutcome& outcome = result.chunks[i];
    const uint64_t size = chain.sizes[begin + i];
    if (outcome.status == GetStatus::kCorrupt) ++report_.corrupt_chunks;
    // A chunk that does not fit has another size than the one put under this key.
    if (outcome.status == GetStatus::kTooSmall) report_.wrong_bytes += outcome.payload_bytes;
    if (outcome.status != GetStatus::kHit) {
      if (begin + i < promised) ++report_.lost_promises;
      leading = false;
      continue;
    }
    report_.bytes_got += outcome.bytes;
    report_.wrong_bytes += outcome.bytes == size
                               ? CountWrongBytes(options_.seed, chain.ids[begin + i], to[i])
                               : std::max(size, outcome.bytes);
    if (leading) ++hits;
  }
  return hits;
}

absl::Status ReplayWorker::PutRest(const Chain& chain, size_t begin) {
  while (begin < chain.ids.size()) {
    const std::vector<std::span<std::byte>> from = Batch(chain, begin, chain.ids.size());
    std::vector<client::PutChunk> chunks(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      GeneratePayload(options_.seed, chain.ids[begin + i], from[i]);
      chunks[i].key = chain.keys[begin + i];
      chunks[i].runs = {from[i]};
      if (begin + i > 0) chunks[i].parent_key = chain.keys[begin + i - 1];
    }
    const auto began = steady_clock::now();
    auto put = client_->Put(ns_, std::move(chunks), {.deadline = payload_deadline()});
    report_.put_seconds += SecondsSince(began);
    if (!put.ok()) return Failed(put.status());
    for (size_t i = 0; i < from.size(); ++i) {
      switch (put->chunks[i].status) {
        case PutStatus::kStored:
          ++report_.put_chunks;
          report_.bytes_put += from[i].size();
          break;
        case PutStatus::kPresent:
          ++report_.present_chunks;
          report_.bytes_put += from[i].size();
          break;
        case PutStatus::kRejected:
          report_.NoteRejection(put->chunks[i].message);
          break;
        case PutStatus::kUnfinished:
          break;  // counted as the call's failure
      }
    }
    if (!put->error.ok()) return Failed(put->error);
    begin += from.size();
  }
  return absl::OkStatus();
}

}  // namespace kvkeep::tools
