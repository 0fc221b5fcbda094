#include "server/local/gpu_get.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr size_t kMaxAnswerBytes = 512;  // of one answer
// Limits of one copy, which the last piece may exceed.
constexpr size_t kMaxCopyRuns = 4096;
constexpr uint64_t kMaxCopyBytes = 16 * kMiB;

template <typename... Args>
absl::Status InvalidGet(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

}  // namespace

absl::StatusOr<GpuGetPlan> GpuGetPlan::Parse(std::span<const std::byte> body,
                                             const LocalLimits& limits, const SessionGpu& memory,
                                             GpuRuns::Skips skips) {
  local::BodyReader reader(body);
  local::GpuGetRequest request;
  if (!reader.Read(&request)) {
    return InvalidGet("GpuGetRequest: ", body.size(), " bytes are too few");
  }
  if (request.chunks == 0 || request.chunks > limits.max_put_chunks) {
    return InvalidGet("chunks is ", request.chunks, ", allowed are 1 to ", limits.max_put_chunks);
  }
  if (request.runs > limits.max_put_runs) {
    return InvalidGet("runs is ", request.runs, ", allowed are at most ", limits.max_put_runs);
  }
  if (request.transient > 1) return InvalidGet("transient is ", request.transient, ", not 0 or 1");
  GpuGetPlan plan;
  std::vector<local::GpuMemoryRun> runs;
  if (!reader.ReadAll(request.chunks, &plan.chunks) || !reader.ReadAll(request.runs, &runs) ||
      !reader.done()) {
    return InvalidGet("GpuGetRequest: chunks and runs are not the ", body.size(),
                      " bytes that came");
  }
  KVKEEP_ASSIGN_OR_RETURN(plan.runs, GpuRuns::Check(runs, memory, skips));
  uint64_t of_chunks = 0;
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const local::GpuGetChunk& chunk = plan.chunks[i];
    of_chunks += chunk.runs;
    if (chunk.payload_bytes == 0) return InvalidGet("chunks[", i, "].payload_bytes is 0");
    KVKEEP_RETURN_IF_ERROR(
        plan.runs->table().CheckChunk(i, chunk.first_run, chunk.runs, chunk.payload_bytes));
  }
  KVKEEP_RETURN_IF_ERROR(plan.runs->CheckCount(of_chunks));
  plan.ns.bytes = request.ns;
  plan.lease = LeaseId(request.lease);
  plan.transient = request.transient == 1;
  plan.timeout = limits.GpuTimeout(request.timeout_ms);
  return plan;
}

GpuGet::GpuGet(std::shared_ptr<const LocalContext> context, GpuGetPlan plan,
               std::function<void()> done)
    : context_(std::move(context)),
      plan_(std::move(plan)),
      done_(std::move(done)),
      deadline_(context_->clock->Now() + plan_.timeout),
      chunks_(plan_.chunks.size()) {}

absl::Status GpuGet::Start(const SessionToken& session) {
  copying_.emplace(&context_->counters->gpu_gets_copying);
  absl::Status status;
  // For a get that will be refused, no more is pinned, or brought from G3, than may be held.
  const uint64_t room = plan_.runs->account()->get_room();
  const uint64_t most = context_->limits.max_gpu_get_bytes;
  const uint64_t before = context_->counters->gpu_pinned_bytes.load(std::memory_order_relaxed);
  uint64_t wanted = 0;
  for (size_t i = 0; i < chunks_.size() && status.ok(); ++i) {
    if (before + wanted > most || wanted > room) break;
    status = Pin(session, i);
    if (chunks_[i].reader) wanted += plan_.chunks[i].payload_bytes;
  }
  if (status.ok()) status = CheckSizes();
  if (!status.ok()) {
    chunks_.clear();
    return status;
  }
  Follow();
  return absl::OkStatus();
}

absl::Status GpuGet::Pin(const SessionToken& session, size_t index) {
  const local::GpuGetChunk& wire = plan_.chunks[index];
  const ChunkId id{.ns = plan_.ns, .key = {.bytes = wire.key}, .part = PartId(wire.part)};
  KVKEEP_ASSIGN_OR_RETURN(ReadResult read,
                          context_->store->Read(session, id, plan_.lease, plan_.transient));
  Chunk& chunk = chunks_[index];
  if (read.outcome == ReadOutcome::kBusy) {
    chunk.failure = absl::ResourceExhaustedError("all of G2 is leased or in flight");
  }
  if (read.outcome != ReadOutcome::kHit) return absl::OkStatus();
  if (read.reader.shape().payload_bytes != wire.payload_bytes) {
    chunk.failure = InvalidGet("payload_bytes is ", wire.payload_bytes, ", the chunk has ",
                               read.reader.shape().payload_bytes);
    return absl::OkStatus();
  }
  chunk.reader = std::move(read.reader);
  return absl::OkStatus();
}

// Checks the size of the reply, and the bytes that gets may hold: all gets, and those of the
// tenant.
absl::Status GpuGet::CheckSizes() {
  uint64_t reply = sizeof(local::MessageHeader) + sizeof(local::ReplyHead) +
                   sizeof(local::GpuGetReply) +
                   chunks_.size() * (sizeof(local::GpuGetAnswer) + kMaxAnswerBytes);
  uint64_t pinned = 0;
  for (const Chunk& chunk : chunks_) {
    if (!chunk.reader) continue;
    reply += chunk.reader.shape().tail_bytes;
    pinned += chunk.reader.shape().payload_bytes;
  }
  if (reply > local::kMaxMessageBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the reply may have ", reply,
                                                     " bytes, allowed are at most ",
                                                     local::kMaxMessageBytes, "; ask for less"));
  }
  std::atomic<uint64_t>& held = context_->counters->gpu_pinned_bytes;
  const uint64_t now = held.load(std::memory_order_relaxed);  // only this thread adds
  absl::Status within;
  if (now + pinned > context_->limits.max_gpu_get_bytes) {
    within = absl::ResourceExhaustedError(absl::StrCat("gets to GPUs hold ", now, " bytes, ",
                                                       pinned, " more are wanted, allowed are ",
                                                       context_->limits.max_gpu_get_bytes));
  } else {
    within = plan_.runs->account()->TakeGet(pinned);
  }
  if (!within.ok()) {
    context_->counters->gpu_over_limit.fetch_add(1, std::memory_order_relaxed);
    return within;
  }
  account_ = plan_.runs->account();
  pinned_bytes_.emplace(&held, pinned);
  taken_bytes_ = pinned;
  return absl::OkStatus();
}

void GpuGet::Follow() {
  for (uint32_t c = 0; c < chunks_.size(); ++c) {
    if (!chunks_[c].reader) continue;
    const auto pieces = static_cast<uint32_t>(chunks_[c].reader.shape().pieces());
    awaited_.fetch_add(pieces, std::memory_order_relaxed);
    for (uint32_t p = 0; p < pieces; ++p) {
      chunks_[c].reader.WhenReady(
          p, 1,
          [self = shared_from_this(), piece = Piece{.chunk = c, .piece = p}](
              const absl::Status& status) { self->OnPiece(piece, status); });
    }
  }
  CopyCollected();
  Release();
}

void GpuGet::OnPiece(const Piece& piece, const absl::Status& status) {
  bool copy = false;
  {
    MutexLock lock(&mu_);
    if (!status.ok()) {
      chunks_[piece.chunk].lost = true;
    } else if (collecting_) {
      collected_.push_back(piece);
    } else {
      copy = true;
    }
  }
  if (copy) Copy({piece});
  Release();
}

void GpuGet::CopyCollected() {
  std::vector<Piece> pieces;
  {
    MutexLock lock(&mu_);
    collecting_ = false;
    pieces.swap(collected_);
  }
  std::vector<Piece> group;
  uint64_t bytes = 0, runs = 0;
  for (const Piece& piece : pieces) {
    const local::GpuGetChunk& wire = plan_.chunks[piece.chunk];
    if (!group.empty() && (bytes >= kMaxCopyBytes || runs >= kMaxCopyRuns)) {
      Copy(std::exchange(group, {}));
      bytes = runs = 0;
    }
    if (group.empty() || group.back().chunk != piece.chunk) runs += wire.runs;
    bytes += PieceSize(wire.payload_bytes, piece.piece);
    group.push_back(piece);
  }
  if (!group.empty()) Copy(std::move(group));
}

void GpuGet::Copy(std::vector<Piece> pieces) {
  CopyEnd cancelled{.status = absl::CancelledError("the session ended")};
  awaited_.fetch_add(1, std::memory_order_relaxed);
  if (cancelled_.load(std::memory_order_relaxed)) return OnCopied(pieces, cancelled);
  GpuCopy copy{.direction = CopyDirection::kToGpu, .runs = {}, .deadline = deadline_};
  for (const Piece& piece : pieces) {
    const local::GpuGetChunk& wire = plan_.chunks[piece.chunk];
    plan_.runs->Append(wire.first_run, uint64_t{piece.piece} * kPieceBytes,
                       PieceSize(wire.payload_bytes, piece.piece),
                       chunks_[piece.chunk].reader.extents(), &copy.runs);
  }
  if (copy.runs.empty()) return OnCopied(pieces, {});  // all runs are skipped
  plan_.runs->Copy(std::move(copy), context_->counters,
                   [self = shared_from_this(), pieces = std::move(pieces)](const CopyEnd& end) {
                     self->OnCopied(pieces, end);
                   });
}

void GpuGet::OnCopied(const std::vector<Piece>& pieces, const CopyEnd& end) {
  if (!end.status.ok()) {
    MutexLock lock(&mu_);
    for (const Piece& piece : pieces) chunks_[piece.chunk].failure.Update(end.status);
  }
  if (!end.fenced) unfenced_.store(true, std::memory_order_relaxed);
  Release();
}

void GpuGet::Release() {
  if (awaited_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (unfenced_.load(std::memory_order_relaxed)) {
    context_->counters->gpu_kept_requests.fetch_add(1, std::memory_order_relaxed);
    context_->gpu->KeepForEver(shared_from_this());
    return;
  }
  plan_.runs->Drop();
  context_->loop->Post([self = shared_from_this()] {
    self->done_();
    for (Chunk& chunk : self->chunks_) chunk.reader = ChunkReader();
    self->pinned_bytes_.reset();
    self->account_->GiveGet(self->taken_bytes_);
    self->copying_.reset();
  });
}

void GpuGet::AppendAnswers(local::MessageWriter* reply) const {
  std::string messages, tails;
  reply->Append(local::GpuGetReply{.chunks = static_cast<uint32_t>(chunks_.size())});
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i];
    local::GpuGetAnswer answer{.status = local::kGpuGetMiss};
    if (!chunk.failure.ok()) {
      const std::string why(chunk.failure.message().substr(0, kMaxAnswerBytes));
      answer.status = local::kGpuGetFailed;
      answer.message_bytes = static_cast<uint16_t>(why.size());
      messages += why;
    } else if (chunk.reader && !chunk.lost && !chunk.reader.PieceChecksums().empty()) {
      const std::string tail = chunk.reader.Metadata();
      answer.status = local::kGpuGetCopied;
      answer.tail_bytes = static_cast<uint32_t>(tail.size());
      tails += tail;
      context_->counters->gpu_get_bytes.fetch_add(chunk.reader.shape().payload_bytes,
                                                  std::memory_order_relaxed);
    }
    reply->Append(answer);
  }
  reply->AppendText(messages);
  reply->AppendText(tails);
}

}  // namespace kvkeep
