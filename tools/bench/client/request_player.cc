#include "tools/bench/client/request_player.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/client/content.h"
#include "tools/bench/client/cpu_time.h"
#include "tools/bench/client/operation.h"
#include "tools/kvkeep/generator.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kBufferBytes = 64 * kMiB;  // of a player, or one chunk
constexpr uint64_t kPutCallBytes = 32 * kMiB;

}  // namespace

// A clock that stops during work that an engine would not do.
class RequestPlayer::Watch {
 public:
  explicit Watch(double since) : last_(since) {}
  double Lap() {
    const double now = WallSeconds();
    return now - std::exchange(last_, now);
  }
  void Restart() { last_ = WallSeconds(); }

 private:
  double last_;
};

ChunkKey PlayerContext::KeyOf(uint64_t chunk) const {
  const uint64_t payload = tools::MixIds(side->seed, chunk) % pool->count(job.chunk_bytes);
  return MakeKey(~side->seed, chunk, payload);
}

void RequestPlayer::Play(const PromptRequest& request, double due_at, bool stores,
                         PatternMeasured* measured) {
  const absl::StatusOr<size_t> found = ReadPrefix(request, due_at, measured);
  ++measured->requests;
  if (!found.ok()) return measured->Fail(found.status().ToString());
  std::vector<uint64_t> chunks = request.prompt;
  chunks.insert(chunks.end(), request.answer.begin(), request.answer.end());
  if (!stores || chunks.size() == *found) return;
  const double began = WallSeconds();
  const absl::Status stored = Store(chunks, *found, chunks.size() - *found, measured);
  if (!stored.ok()) return measured->Fail(stored.ToString());
  measured->store.RecordSeconds(WallSeconds() - began);
}

absl::StatusOr<size_t> RequestPlayer::ReadPrefix(const PromptRequest& request, double due_at,
                                                 PatternMeasured* measured) {
  std::vector<ChunkKey> keys;
  for (const uint64_t chunk : request.prompt) keys.push_back(context_.KeyOf(chunk));
  Recall recall{.asked_chunks = keys.size()};
  Watch watch(due_at);
  const absl::Status read = context_.side->local ? ReadInPlace(keys, &watch, &recall, measured)
                                           : ReadByCopy(keys, &watch, &recall, measured);
  const size_t found = recall.waits_seconds.size();
  recall.bytes = found * chunk_bytes();
  recall.recompute_seconds = static_cast<double>(found) * context_.job.recompute_seconds_per_chunk;
  measured->Count(recall);
  if (!read.ok()) return read;
  return found;
}

absl::Status RequestPlayer::ReadInPlace(const std::vector<ChunkKey>& keys, Watch* watch,
                                        Recall* recall, PatternMeasured* measured) {
  while (recall->waits_seconds.size() < keys.size()) {
    const size_t from = recall->waits_seconds.size();
    KVKEEP_ASSIGN_OR_RETURN(const client::Acquired held,
                            client().Acquire(ns(), client::Keys(keys).subspan(from),
                                                     {.deadline = kCallDeadline}));
    if (held.leased_keys == 0) break;
    KVKEEP_RETURN_IF_ERROR(WaitAndCompare(keys, held, watch, recall, measured));
    // The rest was not leased only because space was short: the next call may lease it.
    if (held.leased_keys == held.leading_keys) break;
  }
  return absl::OkStatus();
}

absl::Status RequestPlayer::WaitAndCompare(const std::vector<ChunkKey>& keys,
                                           const client::Acquired& held, Watch* watch,
                                           Recall* recall, PatternMeasured* measured) {
  const size_t from = recall->waits_seconds.size();
  const size_t pieces = DivideRoundUp(chunk_bytes(), kPieceBytes);
  for (size_t i = 0; i < held.chunks.size(); ++i) {
    recall->from_nvme |= held.pieces_ready(i) < pieces;
  }
  for (size_t i = 0; i < held.chunks.size(); ++i) {
    KVKEEP_RETURN_IF_ERROR(held.WaitPieces(i, pieces, kCallDeadline));
    recall->waits_seconds.push_back(watch->Lap());
  }
  VerifyResult all;
  for (const client::ChunkView& view : held.chunks) {
    uint64_t at = 0;
    for (const std::span<const std::byte> run : view.runs) {
      all.wrong += CountWrong(seed(), keys[from + view.chunk], run, at);
      at += run.size();
    }
    all.bytes += chunk_bytes();
    if (at != chunk_bytes()) all.wrong += chunk_bytes();  // all of it counts as wrong
  }
  // A lease that was revoked meanwhile gives no promise.
  if (!held.valid()) return absl::AbortedError("a lease was revoked while it was read");
  measured->verified_bytes += all.bytes;
  measured->wrong_bytes += all.wrong;
  watch->Restart();
  return absl::OkStatus();
}

absl::Status RequestPlayer::ReadByCopy(const std::vector<ChunkKey>& keys, Watch* watch,
                                       Recall* recall, PatternMeasured* measured) {
  const size_t room = std::max<size_t>(kBufferBytes / chunk_bytes(), 1);
  buffer_.resize(std::min(room, keys.size()) * chunk_bytes());
  while (recall->waits_seconds.size() < keys.size()) {
    const size_t from = recall->waits_seconds.size();
    KVKEEP_ASSIGN_OR_RETURN(const client::LookupResult found,
                            client().Lookup(ns(), client::Keys(keys).subspan(from),
                                                    {.lease = client::LeaseMode::kLeadingRun,
                                                     .deadline = kCallDeadline}));
    for (size_t i = 0; i < found.leased_keys; ++i) recall->from_nvme |= !found.in_g2(i);
    const std::vector<ChunkKey> leased(
        keys.begin() + static_cast<std::ptrdiff_t>(from),
        keys.begin() + static_cast<std::ptrdiff_t>(from + found.leased_keys));
    for (size_t first = 0; first < leased.size(); first += room) {
      const size_t end = std::min(leased.size(), first + room);
      KVKEEP_RETURN_IF_ERROR(FillBuffer(leased, found.lease, first, end, watch, recall));
      for (size_t i = first; i < end; ++i) {
        measured->wrong_bytes += CountWrong(
            seed(), leased[i],
            std::span(buffer_).subspan((i - first) * chunk_bytes(), chunk_bytes()));
        measured->verified_bytes += chunk_bytes();
      }
      watch->Restart();
    }
    if (leased.empty() || found.leased_keys == found.leading_keys) break;
  }
  return absl::OkStatus();
}

absl::Status RequestPlayer::FillBuffer(const std::vector<ChunkKey>& keys,
                                       const client::Lease& lease, size_t first, size_t end,
                                       Watch* watch, Recall* recall) {
  for (size_t at = first; at < end; at += context_.job.get_chunks) {
    const size_t count = std::min<size_t>(context_.job.get_chunks, end - at);
    std::vector<std::span<std::byte>> to;
    for (size_t i = at; i < at + count; ++i) {
      to.push_back(
          std::span(buffer_).subspan((i - first) * chunk_bytes(), chunk_bytes()));
    }
    client::GetOptions options;
    options.lease = &lease;
    options.first_key = static_cast<uint32_t>(at);
    options.deadline = kCallDeadline;
    options.destinations = to;
    KVKEEP_ASSIGN_OR_RETURN(const client::GetResult got,
                            client().Get(ns(), client::Keys(keys).subspan(at, count),
                                                 std::move(options)));
    KVKEEP_RETURN_IF_ERROR(got.error);
    for (const client::GetOutcome& outcome : got.chunks) {
      if (outcome.status == client::GetStatus::kHit && outcome.bytes == chunk_bytes()) {
        continue;
      }
      return absl::DataLossError(
          absl::StrCat("get of a leased chunk: ", client::GetStatusName(outcome.status)));
    }
    // They arrive together: a sequential reader waited for the first of them.
    recall->waits_seconds.push_back(watch->Lap());
    recall->waits_seconds.resize(recall->waits_seconds.size() + count - 1);
  }
  return absl::OkStatus();
}

absl::Status RequestPlayer::Store(const std::vector<uint64_t>& chunks, size_t first, size_t count,
                                  PatternMeasured* measured) {
  const size_t per_call = std::max<size_t>(kPutCallBytes / chunk_bytes(), 1);
  const size_t end = first + count;
  for (size_t at = first; at < end; at += per_call) {
    std::vector<client::PutChunk> puts(std::min(per_call, end - at));
    for (size_t i = 0; i < puts.size(); ++i) {
      puts[i].key = context_.KeyOf(chunks[at + i]);
      puts[i].runs = {context_.pool->payload(PayloadOf(puts[i].key), chunk_bytes())};
      if (at + i > 0 && PositionOf(chunks[at + i]) == PositionOf(chunks[at + i - 1]) + 1) {
        puts[i].parent_key = context_.KeyOf(chunks[at + i - 1]);
      }
    }
    KVKEEP_ASSIGN_OR_RETURN(
        const client::PutResult result,
        client().Put(ns(), std::move(puts), {.deadline = kCallDeadline}));
    KVKEEP_RETURN_IF_ERROR(result.error);
    for (const client::PutOutcome& outcome : result.chunks) {
      const bool stored = outcome.status == client::PutStatus::kStored;
      measured->stored_chunks += stored;
      measured->stored_bytes += stored ? chunk_bytes() : 0;
      if (outcome.status != client::PutStatus::kRejected) continue;
      ++measured->refused_chunks;
      if (measured->first_failure.empty()) measured->first_failure = outcome.message;
    }
  }
  return absl::OkStatus();
}

}  // namespace kvkeep::bench
