#include "server/local/put_job.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "proto/local/message.h"
#include "server/local/gpu_source.h"
#include "server/local/memory_source.h"
#include "server/local/parts_source.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

// How many tasks of one put run at a time.
const size_t kParallelTasks = std::clamp<size_t>(std::thread::hardware_concurrency(), 4, 8);
// How many chunks and runs the loop copies itself. More would block it: it seals each chunk, and
// reads each run by a call.
constexpr size_t kLoopChunks = 4, kLoopRuns = 64;
constexpr size_t kMaxMessageBytes = 512;  // of the text in one answer

// The values are those of kvkeep.v1.RejectReason. The enumerations agree by design, and a test
// makes sure that they stay so.
static_assert(static_cast<int>(RejectReason::kNoSpace) == 1 &&
              static_cast<int>(RejectReason::kNotCopied) == 7);

std::unique_ptr<PutSource> MakePutSource(const std::shared_ptr<const LocalContext>& context,
                                         PutPlan* plan, PutSource::Put* put) {
  if (plan->gpu() != nullptr) return std::make_unique<GpuSource>(context, plan, put);
  if (plan->in_parts()) return std::make_unique<PartsSource>(context, plan, put);
  return std::make_unique<MemorySource>(context, plan, put);
}

}  // namespace

PutJob::PutJob(std::shared_ptr<const LocalContext> context, PutPlan plan, Callbacks callbacks)
    : context_(std::move(context)),
      plan_(std::move(plan)),
      callbacks_(std::move(callbacks)),
      chunks_(plan_.chunks().size()),
      source_(MakePutSource(context_, &plan_, this)),
      tasks_(kParallelTasks),
      copying_(std::in_place, &context_->counters->puts_copying) {}

absl::Status PutJob::Reserve(const SessionToken& session, bool may_wait) {
  const size_t first = next_chunk_;
  for (; waits(); ++next_chunk_) {
    KVKEEP_ASSIGN_OR_RETURN(const bool answered, ReserveChunk(session, next_chunk_, may_wait));
    if (!answered) break;
    may_wait = may_wait || chunks_[next_chunk_].put.reservation();
  }
  PlanRound(first);
  return absl::OkStatus();
}

absl::StatusOr<bool> PutJob::ReserveChunk(const SessionToken& session, size_t index,
                                          bool may_wait) {
  const local::PutChunk& wire = plan_.chunks()[index];
  if (const absl::Status late = plan_.CheckInTime(*context_->clock); !late.ok()) {
    context_->counters->late_put_chunks.fetch_add(1, std::memory_order_relaxed);
    chunks_[index].put.Reject(RejectReason::kNotCopied, std::string(late.message()));
    return true;
  }
  PutRequest request{
      .ns = plan_.ns(),
      .key = {.bytes = wire.key},
      .part = PartId(wire.part),
      .shape = {.payload_bytes = wire.payload_bytes, .tail_bytes = wire.tail_bytes},
      .transient = (wire.flags & local::kPutTransient) != 0,
      .no_g3 = (wire.flags & local::kPutNoG3) != 0,
      .durable = (wire.flags & local::kPutDurable) != 0,
      .asks_again = may_wait,
  };
  if ((wire.flags & local::kPutHasParent) != 0) request.parent = {.bytes = wire.parent_key};
  KVKEEP_ASSIGN_OR_RETURN(const ChunkPut::Reserved reserved,
                          chunks_[index].put.Reserve(*context_->store, session, request));
  if (reserved == ChunkPut::Reserved::kAskAgain) return false;
  if (reserved != ChunkPut::Reserved::kSpace) {
    context_->counters->put_discarded_bytes.fetch_add(wire.payload_bytes,
                                                      std::memory_order_relaxed);
  }
  return true;
}

void PutJob::PlanRound(size_t first_chunk) {
  std::vector<PutPiece> pieces;
  for (auto c = static_cast<uint32_t>(first_chunk); c < next_chunk_; ++c) {
    if (!chunks_[c].put.reservation()) continue;
    const auto count = static_cast<uint32_t>(chunks_[c].put.reservation().shape().pieces());
    chunks_[c].pieces_left.store(count, std::memory_order_relaxed);
    for (uint32_t p = 0; p < count; ++p) pieces.push_back({.chunk = c, .piece = p});
  }
  tasks_.Plan(std::move(pieces), [this](const PutPiece& piece) {
    return PieceSize(plan_.chunks()[piece.chunk].payload_bytes, piece.piece);
  });
}

bool PutJob::Copy(bool on_loop) {
  const bool small = on_loop && IsSmall();
  if (tasks_.pieces().empty()) {
    OnCopied();
  } else if (small) {
    tasks_.PostOnly();
    RunTasks(0, PutSource::Wait::kNever);  // the loop must not wait
  } else {
    source_->Fetch(tasks_.pieces());
    PostTasks();
  }
  return small;
}

void PutJob::Cancel() {
  cancelled_.store(true, std::memory_order_relaxed);
  source_->Cancel();
}

// ---------------------------------------------------------------- calls of the source

const ExtentList& PutJob::extents(size_t chunk) const {
  return chunks_[chunk].put.reservation().extents();
}

void PutJob::OnReady(size_t pieces) {
  tasks_.NoteReady(pieces);
  PostTasks();
}

void PutJob::Lose(size_t chunk, const absl::Status& why) {
  MutexLock lock(&mu_);
  failures_.emplace_back(chunk, why);
  chunks_[chunk].lost.store(true, std::memory_order_relaxed);
}

void PutJob::OnFetched() {
  if (!waits()) DropMemory();
}

void PutJob::DropMemory() {
  source_->Drop();  // before the client is told, as it may then unregister the memory
  if (!callbacks_.fetched || std::exchange(dropped_, true)) return;
  context_->loop->Post([self = shared_from_this()] { self->callbacks_.fetched(); });
}

// ---------------------------------------------------------------- copies

bool PutJob::IsSmall() {
  if (!source_->MayFillOnLoop() || tasks_.count() != 1) return false;
  uint64_t chunks = 0, runs = 0, image_bytes = 0;
  for (const PutPiece& piece : tasks_.pieces()) {
    if (piece.piece > 0) continue;
    ++chunks;
    runs += plan_.chunks()[piece.chunk].runs;
    image_bytes +=
        chunks_[piece.chunk].put.reservation().shape().blocks().value() * kBlockBytes;
  }
  return chunks <= kLoopChunks && runs <= kLoopRuns &&
         image_bytes <= context_->limits.loop_copy_bytes;
}

void PutJob::PostTasks() {
  const PutTasks::Range tasks = tasks_.Post();
  for (size_t task = tasks.first; task < tasks.end; ++task) {
    context_->copy_executor->PostNear(NodeOf(task), [self = shared_from_this(), task] {
      self->RunTasks(task, PutSource::Wait::kMay);
    });
  }
}

std::optional<int> PutJob::NodeOf(size_t task) {
  const PutPiece& piece = tasks_.PiecesOf(task).front();
  return context_->arena->NodeOf(extents(piece.chunk), kHeaderBytes + piece.piece * kPieceBytes);
}

void PutJob::RunTasks(size_t task, PutSource::Wait wait) {
  const size_t most = source_->tasks_a_run();
  std::optional<size_t> next = task;
  for (size_t run = 1; next.has_value(); ++run) {
    const std::span<const PutPiece> pieces = tasks_.PiecesOf(*next);
    for (const PutPiece& piece : pieces) CopyPiece(piece, wait);
    next = tasks_.End(run < most);
    if (!next.has_value()) PostTasks();
    if (tasks_.NoteDone(pieces.size())) OnCopied();
  }
}

void PutJob::CopyPiece(const PutPiece& piece, PutSource::Wait wait) {
  Chunk& chunk = chunks_[piece.chunk];
  absl::Status status;
  if (chunk.lost.load(std::memory_order_relaxed)) {
    // Another piece has failed already; failures_ has its status.
  } else if (cancelled_.load(std::memory_order_relaxed)) {
    status = absl::CancelledError("the session ended");
  } else {
    status = source_->Fill(piece, wait, &chunk.put.reservation());
  }
  if (!status.ok()) {
    MutexLock lock(&mu_);
    failures_.emplace_back(piece.chunk, std::move(status));
  }
  if (chunk.pieces_left.fetch_sub(1, std::memory_order_acq_rel) == 1) FinishChunk(piece.chunk);
}

// Ends a chunk whose pieces are all done.
void PutJob::FinishChunk(size_t index) {
  Chunk& chunk = chunks_[index];
  const local::PutChunk& wire = plan_.chunks()[index];
  absl::Status failure;
  {
    MutexLock lock(&mu_);
    for (const auto& [failed, why] : failures_) {
      if (failed == index) failure.Update(why);
    }
  }
  if (!failure.ok()) {
    const bool late = plan_.until() != MonotonicTime::max() && absl::IsDeadlineExceeded(failure);
    if (late) context_->counters->late_put_chunks.fetch_add(1, std::memory_order_relaxed);
    const bool not_copied = late || chunk.lost.load(std::memory_order_relaxed);
    chunk.put.Reject(not_copied ? RejectReason::kNotCopied : RejectReason::kWrongSize,
                     std::string(failure.message()));
    return;
  }
  context_->counters->put_bytes.fetch_add(wire.payload_bytes, std::memory_order_relaxed);
  const bool checked = (wire.flags & local::kPutHasChecksum) != 0;
  const bool right = !checked || chunk.put.CheckPayload(wire.checksum,
                                                        chunk.put.reservation().PayloadChecksum());
  if (!right) return;
  const absl::Status sealed = chunk.put.Seal(plan_.tail(index));
  if (sealed.ok()) return;
  MutexLock lock(&mu_);
  seal_failure_.Update(sealed);
}

void PutJob::OnCopied() {
  {
    MutexLock lock(&mu_);
    status_ = seal_failure_;
  }
  if (status_.ok() && cancelled_.load(std::memory_order_relaxed)) {
    status_ = absl::FailedPreconditionError("the session ended during the put");
  }
  if (status_.ok() && waits()) {
    context_->loop->Post([self = shared_from_this()] { self->callbacks_.more(); });
    return;
  }
  DropMemory();
  AwaitDurable();
  copying_.reset();  // after this the thread makes no more calls
}

void PutJob::AwaitDurable() {
  std::vector<size_t> durable;
  for (size_t i = 0; i < chunks_.size() && status_.ok(); ++i) {
    if (chunks_[i].put.awaits_durable()) durable.push_back(i);
  }
  if (durable.empty()) {
    PostDone();
    return;
  }
  context_->loop->Post([self = shared_from_this()] { self->callbacks_.copied(); });
  durable_left_.store(durable.size(), std::memory_order_relaxed);
  for (const size_t index : durable) {
    context_->store->WhenDurable(chunks_[index].put.id(),
                                 [self = shared_from_this(), index](absl::Status status) {
                                   self->OnDurable(index, status);
                                 });
  }
}

void PutJob::OnDurable(size_t index, const absl::Status& status) {
  chunks_[index].put.OnDurable(status);
  if (durable_left_.fetch_sub(1, std::memory_order_acq_rel) == 1) PostDone();
}

void PutJob::PostDone() {
  context_->loop->Post([self = shared_from_this()] { self->callbacks_.done(*self); });
}

void PutJob::AppendAnswers(local::MessageWriter* reply) const {
  const auto told = [](const Chunk& chunk) {
    return absl::string_view(chunk.put.message()).substr(0, kMaxMessageBytes);
  };
  reply->Append(local::PutReply{.chunks = static_cast<uint32_t>(chunks_.size())});
  for (const Chunk& chunk : chunks_) {
    reply->Append(
        local::PutAnswer{.status = static_cast<uint8_t>(chunk.put.answer()),
                         .reason = static_cast<uint8_t>(chunk.put.reason()),
                         .message_bytes = static_cast<uint16_t>(told(chunk).size())});
  }
  for (const Chunk& chunk : chunks_) reply->AppendText(told(chunk));
}

}  // namespace kvkeep
