#include "client/local/local_put.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "client/local/put_reply.h"
#include "client/transport/check_call.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

// A batch is sent when it fills this part of the staging memory, so that the next one is filled
// while the daemon reads this one.
constexpr uint64_t kBatchesInStaging = 4;
// A batch is also sent at this many bytes, beside which the cost of a message is small.
constexpr uint64_t kMostStagedBytes = 8 * kMiB;
// How long a chunk waits for room that other puts of this client hold, before it goes another way.
constexpr std::chrono::milliseconds kPatience{100};
// A chunk with at least this many bytes to copy is sent alone, while it is copied.
constexpr uint64_t kInPartsFrom = 4 * kMiB;

struct Runs {
  std::vector<std::optional<PutMemory::Direct>> direct;
  uint64_t to_copy = 0;
  bool reused = false;  // the caller gets some of it back by the deadline
};

Runs FindRuns(PutMemory& memory, const LocalSession& session, const PutChunk& chunk) {
  Runs runs;
  for (const auto& run : chunk.runs) {
    runs.direct.push_back(memory.Find(session, run));
    if (!runs.direct.back().has_value()) {
      runs.to_copy += run.size();
      continue;
    }
    for (const auto& region : runs.direct.back()->registered) {
      runs.reused = runs.reused || region->reused;
    }
  }
  return runs;
}

void Finish(const std::vector<PutChunk>& chunks, LocalCounters& counters, PutResult* result) {
  size_t unfinished = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const PutStatus status = result->chunks[i].status;
    unfinished += status == PutStatus::kUnfinished;
    if (status == PutStatus::kStored || status == PutStatus::kPresent) {
      counters.bytes_sent.fetch_add(PayloadBytes(chunks[i]), std::memory_order_relaxed);
    }
  }
  if (unfinished == 0) result->error = absl::OkStatus();
}

}  // namespace

LocalPut::LocalPut(What what) : what_(std::move(what)) {
  result_.chunks.resize(what_.chunks.size());
}

absl::StatusOr<PutResult> LocalPut::Run() {
  batch_.emplace(NewBatch());
  for (uint32_t i = 0; i < what_.chunks.size() && result_.error.ok(); ++i) {
    std::string reason = WhyRejected(what_.chunks[i], what_.spec);
    if (!reason.empty()) {
      result_.chunks[i] = {.status = PutStatus::kRejected, .message = std::move(reason)};
    } else if (absl::Status failed = AddChunk(i); !failed.ok()) {
      result_.error = std::move(failed);
    }
  }
  if (!batch_->empty()) Flush();
  while (!sent_.empty()) AwaitOldest();
  Finish(what_.chunks, *what_.counters, &result_);
  return PutResultOf(std::move(result_));
}

absl::Status LocalPut::AddChunk(uint32_t index) {
  const PutChunk& chunk = what_.chunks[index];
  if (!batch_->empty() && !batch_->HasRoomFor(chunk)) Flush();
  Runs runs = FindRuns(*what_.memory, *what_.session, chunk);
  std::shared_ptr<StagingArea> area;
  std::span<std::byte> staged;
  const bool large = runs.to_copy >= kInPartsFrom && !runs.reused &&
                     what_.session->welcome().version >= local::kPutInPartsSince;
  if (large && !batch_->empty()) Flush();
  if (runs.to_copy > 0) {
    absl::StatusOr<std::span<std::byte>> got = Stage(runs.to_copy, &area);
    if (absl::IsResourceExhausted(got.status())) {
      result_.chunks[index] = {.status = PutStatus::kRejected,
                               .message = std::string(got.status().message())};
      return absl::OkStatus();
    }
    if (!got.ok()) return got.status();
    staged = *got;
  }
  const bool staging = area != nullptr && area->region() == local::kStagingRegion;
  const auto word = large && staging ? area->TryAllocate(sizeof(uint64_t)) : std::nullopt;
  if (word.has_value()) {
    batch_->AddInParts(index, chunk, runs.direct, area, staged, *word);
    Flush();
    return absl::OkStatus();
  }
  batch_->Add(index, chunk, runs.direct, area, staged);
  if (area == nullptr) return absl::OkStatus();
  const uint64_t most = std::min(area->memory().size() / kBatchesInStaging, kMostStagedBytes);
  if (batch_->staged_bytes() >= most) Flush();
  return absl::OkStatus();
}

absl::StatusOr<std::span<std::byte>> LocalPut::Stage(uint64_t bytes,
                                                     std::shared_ptr<StagingArea>* area) {
  PutMemory& memory = *what_.memory;
  while (true) {
    if ((!batch_->empty() || !sent_.empty()) && memory.Changes(what_.session, bytes)) {
      // Our own earlier chunks would prevent a larger area.
      if (!batch_->empty()) Flush();
      while (!sent_.empty()) AwaitOldest();
    }
    KVKEEP_ASSIGN_OR_RETURN(*area, memory.Area(what_.session, bytes, what_.deadline));
    if (auto range = (*area)->TryAllocate(bytes); range.has_value()) return *range;
    if (what_.session->over()) return absl::UnavailableError("put: the session ended");
    if (!batch_->empty()) {
      Flush();
      continue;
    }
    memory.NoteWait(what_.session, **area, bytes);
    if (!sent_.empty()) {
      AwaitOldest();
      continue;
    }
    const auto patient_until =
        std::min(what_.deadline, std::chrono::steady_clock::now() + kPatience);
    if (auto range = (*area)->AllocateUntil(bytes, patient_until); range.has_value()) return *range;
    const auto now = std::chrono::steady_clock::now();
    if (now >= what_.deadline) {
      return absl::DeadlineExceededError(absl::StrCat("staging memory: no ", bytes, " of its ",
                                                      (*area)->memory().size(),
                                                      " bytes became free by the deadline"));
    }
    if (now >= patient_until) memory.Avoid(**area);
  }
}

void LocalPut::Flush() {
  Sent& sent = sent_.emplace_back();
  {
    LocalSession::BlockingScope scope(&sent.blocking);
    batch_->Send(what_.deadline,
                 [reply = sent.reply.get()](auto outcomes) { reply->Set(std::move(outcomes)); });
  }
  batch_->FillParts();
  batch_.emplace(NewBatch());
}

void LocalPut::AwaitOldest() {
  Sent& sent = sent_.front();
  if (sent.blocking.session != nullptr) {
    sent.blocking.session->ReadUntil(sent.reply.get(), what_.deadline);
  }
  Note(sent.reply->Take());
  sent_.pop_front();
}

void LocalPut::Note(absl::StatusOr<std::vector<PutBatch::Outcome>> outcomes) {
  if (!outcomes.ok()) {
    if (result_.error.ok()) result_.error = outcomes.status();
    return;
  }
  for (PutBatch::Outcome& one : *outcomes) {
    result_.chunks[one.index] = std::move(one.outcome);
  }
}

bool LocalPut::TrySend(What& what, Callback<PutResult>& done) {
  for (const PutChunk& chunk : what.chunks) {  // first, before the message is built
    for (const auto& run : chunk.runs) {
      if (!what.memory->Find(*what.session, run).has_value()) return false;
    }
  }
  PutBatch batch(what.session, what.ns, what.options);
  PutResult result{.chunks = std::vector<PutOutcome>(what.chunks.size()), .error = {}};
  for (uint32_t i = 0; i < what.chunks.size(); ++i) {
    const PutChunk& chunk = what.chunks[i];
    std::string reason = WhyRejected(chunk, what.spec);
    if (!reason.empty()) {
      result.chunks[i] = {.status = PutStatus::kRejected, .message = std::move(reason)};
      continue;
    }
    const Runs runs = FindRuns(*what.memory, *what.session, chunk);
    if (runs.to_copy > 0 || !batch.HasRoomFor(chunk)) return false;
    batch.Add(i, chunk, runs.direct, nullptr, {});
  }
  if (batch.empty()) return false;
  batch.Send(what.deadline,
             [result = std::move(result), chunks = std::move(what.chunks), counters = what.counters,
              done = std::move(done)](auto outcomes) mutable {
               if (outcomes.ok()) {
                 for (auto& one : *outcomes) result.chunks[one.index] = std::move(one.outcome);
               } else {
                 result.error = outcomes.status();
               }
               Finish(chunks, *counters, &result);
               std::move(done)(PutResultOf(std::move(result)));
             });
  return true;
}

void LocalTransport::Put(Ns ns, const NamespaceSpec& spec, std::vector<PutChunk> chunks,
                         const PutOptions& options, Callback<PutResult> done) {
  absl::StatusOr<Ready> ready = Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  LocalPut::What what{.session = ready->session,
                      .ns = ready->digest,
                      .spec = spec,
                      .chunks = std::move(chunks),
                      .options = options,
                      .deadline = DeadlineOf(options.deadline),
                      .counters = counters_,
                      .memory = put_memory_};
  if (LocalPut::TrySend(what, done)) return;
  RunOrPost([what = std::move(what), done = std::move(done)]() mutable {
    std::move(done)(LocalPut(std::move(what)).Run());
  });
}

// ---------------------------------------------------------------- memory for puts

absl::StatusOr<StagingBuffer> LocalTransport::AllocateStaging(uint64_t bytes) {
  KVKEEP_ASSIGN_OR_RETURN(const LocalSessionPtr session, CurrentSession());
  if (bytes == 0) return absl::InvalidArgumentError("bytes: must be above 0");
  std::shared_ptr<StagingArea> area;
  KVKEEP_ASSIGN_OR_RETURN(const std::span<std::byte> range,
                          put_memory_->Buffer(session, bytes, DeadlineOf(Deadline(0)), &area));
  return StagingBuffer(std::move(area), range);
}

absl::StatusOr<RegisteredMemory> LocalTransport::RegisterMemory(
    int fd, std::span<const std::byte> mapping, const RegisterOptions& options) {
  if (mapping.empty()) return absl::InvalidArgumentError("mapping: empty");
  KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<LocalRegion> region,
                          put_memory_->MakeRegion(fd, mapping, options));
  put_memory_->Keep(region);  // a session that opens from now on registers it
  const absl::StatusOr<LocalSessionPtr> session = CurrentSession();
  absl::Status known = session.status();
  if (known.ok()) known = put_memory_->Register(*session, region, DeadlineOf(Deadline(0)));
  if (!known.ok() && !absl::IsUnavailable(known)) return known;
  return RegisteredMemory(std::move(region));
}

}  // namespace kvkeep::client
