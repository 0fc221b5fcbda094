#include "server/local/put_job.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "proto/local/message.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

// Tasks of one put at a time; and how many a thread does before others get their turn. A piece that
// is only checksummed, as a GPU brings it faster than a few threads do, takes a third of a copy.
const size_t kParallelTasks = std::clamp<size_t>(std::thread::hardware_concurrency(), 4, 8);
constexpr size_t kTasksARun = 1, kGpuTasksARun = 4;
constexpr size_t kMaxPiecesPerTask = 64;
// Each chunk is sealed, each run read by a call: what the loop does of them.
constexpr size_t kLoopChunks = 4, kLoopRuns = 64;
constexpr size_t kMaxMessageBytes = 512;  // of one answer
// Limits of one copy of a GPU, which the last piece may exceed: enough to keep it busy, few
// enough that several are under way and that the last one's checksums take no long time.
constexpr size_t kMaxFetchRuns = 4096;
constexpr uint64_t kMaxFetchBytes = 8 * kMiB;

// The values are kvkeep.v1.RejectReason's: the enumerations agree by design, and a test keeps it
// so.
static_assert(static_cast<int>(RejectReason::kNoSpace) == 1 &&
              static_cast<int>(RejectReason::kNotCopied) == 7);

}  // namespace

PutJob::PutJob(std::shared_ptr<const LocalContext> context, PutPlan plan, Callbacks callbacks)
    : context_(std::move(context)),
      plan_(std::move(plan)),
      callbacks_(std::move(callbacks)),
      chunks_(plan_.chunks().size()),
      copying_(std::in_place, &context_->counters->puts_copying),
      deadline_(plan_.gpu() == nullptr ? MonotonicTime(0)
                                       : std::min(context_->clock->Now() + plan_.timeout(),
                                                  plan_.until())) {}

absl::Status PutJob::Reserve(const SessionToken& session, bool may_wait) {
  const size_t first = next_chunk_;
  for (; waits(); ++next_chunk_) {
    KVKEEP_ASSIGN_OR_RETURN(const bool answered, ReserveChunk(session, next_chunk_, may_wait));
    if (!answered) break;
    may_wait = may_wait || chunks_[next_chunk_].put.reservation();
  }
  PlanTasks(first);
  return absl::OkStatus();
}

absl::StatusOr<bool> PutJob::ReserveChunk(const SessionToken& session, size_t index,
                                          bool may_wait) {
  const local::PutChunk& wire = plan_.chunks()[index];
  if (const absl::Status late = CheckInTime(); !late.ok()) {
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

void PutJob::PlanTasks(size_t first_chunk) {
  pieces_.clear();
  task_starts_.clear();
  uint64_t task_bytes = 0;
  for (auto c = static_cast<uint32_t>(first_chunk); c < next_chunk_; ++c) {
    if (!chunks_[c].put.reservation()) continue;
    const ImageShape& shape = chunks_[c].put.reservation().shape();
    chunks_[c].pieces_left.store(static_cast<uint32_t>(shape.pieces()), std::memory_order_relaxed);
    for (uint32_t p = 0; p < shape.pieces(); ++p) {
      const uint64_t bytes = PieceSize(shape.payload_bytes, p);
      const bool full = task_starts_.empty() || task_bytes + bytes > kPieceBytes ||
                        pieces_.size() - task_starts_.back() >= kMaxPiecesPerTask;
      if (full) {
        task_starts_.push_back(pieces_.size());
        task_bytes = 0;
      }
      task_bytes += bytes;
      pieces_.push_back({.chunk = c, .piece = p});
    }
  }
  pieces_left_.store(pieces_.size(), std::memory_order_relaxed);
  task_starts_.push_back(pieces_.size());
  groups_.clear();
  MutexLock lock(&mu_);
  next_task_ = posted_tasks_ = running_ = ready_tasks_ = fenced_groups_ = 0;
  NoteReadyTasks();
}

bool PutJob::Copy(bool on_loop) {
  const bool small = on_loop && IsSmall();
  read_ = small ? &ClientMemory::ReadByCall : &ClientMemory::Read;  // the loop waits for nobody
  if (pieces_.empty()) {
    OnCopied();
  } else if (plan_.gpu() != nullptr) {
    Fetch();
  } else if (small) {
    {
      MutexLock lock(&mu_);
      posted_tasks_ = running_ = 1;
    }
    RunTasks();
  } else {
    Look();
    PostTasks();
  }
  return small;
}

// ---------------------------------------------------------------- in parts

bool PutJob::filling() const {
  return plan_.in_parts() && !stopped_ && filled_bytes_ < plan_.chunks().front().payload_bytes;
}

void PutJob::NoteReadyTasks() {
  const size_t tasks = task_starts_.empty() ? 0 : task_starts_.size() - 1;
  if (plan_.gpu() != nullptr) {  // those whose pieces are all there
    const size_t pieces = fenced_groups_ == 0 ? 0 : groups_[fenced_groups_ - 1].end_piece;
    while (ready_tasks_ < tasks && task_starts_[ready_tasks_ + 1] <= pieces) ++ready_tasks_;
    return;
  }
  // Each task has one piece of the one chunk: all pieces but the last have kPieceBytes.
  ready_tasks_ = filling() ? std::min(tasks, filled_bytes_ / kPieceBytes) : tasks;
}

void PutJob::Look() {
  std::shared_ptr<const StagingMemory> staging;
  {
    MutexLock lock(&mu_);
    if (!filling()) return;
    look_again_ = looking_;
    if (std::exchange(looking_, true)) return;
    staging = plan_.staging();
  }
  context_->copy_executor->Post(
      [self = shared_from_this(), staging = std::move(staging)]() mutable {
        while (self->LookOnce(*staging)) self->PostTasks();
        staging = nullptr;  // before the answer, after which the client may want another one
        self->PostTasks();
      });
}

bool PutJob::LookOnce(const StagingMemory& staging) {
  const std::optional<uint64_t> filled = staging.ReadWord(plan_.filled_word());
  const uint64_t payload_bytes = plan_.chunks().front().payload_bytes;
  MutexLock lock(&mu_);
  if (filling() && filled.has_value() && (*filled < filled_bytes_ || *filled > payload_bytes)) {
    StopBecause(absl::InvalidArgumentError(absl::StrCat(
        "a put in parts: ", *filled, " bytes after ", filled_bytes_, ", of ", payload_bytes)));
  } else if (filling() && filled.has_value()) {  // else the next tick or message looks
    filled_bytes_ = *filled;
    NoteReadyTasks();
  }
  looking_ = std::exchange(look_again_, false) && filling();
  return looking_;
}

std::optional<uint64_t> PutJob::awaited_piece() {
  MutexLock lock(&mu_);
  if (!filling()) return std::nullopt;
  return filled_bytes_ / kPieceBytes;
}

bool PutJob::Stop() {
  if (!filling()) return false;
  stopped_ = true;
  NoteReadyTasks();
  return true;
}

bool PutJob::StopBecause(const absl::Status& why) {
  if (!Stop()) return false;
  failures_.emplace_back(0, why);
  given_up_.store(true, std::memory_order_relaxed);
  return true;
}

bool PutJob::GiveUp(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    if (!StopBecause(why)) return false;
  }
  PostTasks();
  return true;
}

void PutJob::Cancel() {
  cancelled_.store(true, std::memory_order_relaxed);
  {
    MutexLock lock(&mu_);
    if (!Stop()) return;
  }
  PostTasks();
}

// ---------------------------------------------------------------- from a GPU

void PutJob::Fetch() {
  std::vector<std::vector<GpuRun>> runs;  // by group
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const auto [chunk, piece] = pieces_[i];
    if (groups_.empty() || runs.back().size() >= kMaxFetchRuns ||
        groups_.back().bytes >= kMaxFetchBytes) {
      groups_.push_back({.first_piece = i});
      runs.emplace_back();
    }
    const local::PutChunk& wire = plan_.chunks()[chunk];
    const uint64_t bytes = PieceSize(wire.payload_bytes, piece);
    plan_.gpu()->Append(wire.first_run, uint64_t{piece} * kPieceBytes, bytes,
                        chunks_[chunk].put.reservation().extents(), &runs.back());
    groups_.back().end_piece = i + 1;
    groups_.back().bytes += bytes;
  }
  {
    MutexLock lock(&mu_);
    fetches_left_ = groups_.size();
  }
  for (size_t g = 0; g < runs.size(); ++g) FetchGroup(g, std::move(runs[g]));
}

void PutJob::FetchGroup(size_t group, std::vector<GpuRun> runs) {
  if (cancelled_.load(std::memory_order_relaxed)) {  // its registrations are given back
    return OnFetched(group, {.status = absl::CancelledError("the session ended")});
  }
  GpuCopy copy{
      .direction = CopyDirection::kToArena, .runs = std::move(runs), .deadline = deadline_};
  plan_.gpu()->Copy(
      std::move(copy), context_->counters,
      [self = shared_from_this(), group](const CopyEnd& end) { self->OnFetched(group, end); });
}

// On the device's executor. The space of what is not fenced is nobody else's, ever: nothing behind
// it is sealed, so the round never ends.
void PutJob::OnFetched(size_t group, const CopyEnd& end) {
  const absl::Status status = end.status.ok() ? CheckInTime() : end.status;
  bool last = false, unfenced = false;
  {
    MutexLock lock(&mu_);
    const Group& fetched = groups_[group];
    for (size_t i = fetched.first_piece; i < fetched.end_piece && !status.ok(); ++i) {
      const bool told = i > fetched.first_piece && pieces_[i - 1].chunk == pieces_[i].chunk;
      if (told) continue;
      failures_.emplace_back(pieces_[i].chunk, status);
      chunks_[pieces_[i].chunk].lost.store(true, std::memory_order_relaxed);
    }
    unfenced_ = unfenced_ || !end.fenced;
    last = --fetches_left_ == 0;
    unfenced = unfenced_;
  }
  // As long as this group is not noted the round goes on, and nobody else touches the plan.
  if (last && !OnAllFetched(unfenced)) return;
  {
    MutexLock lock(&mu_);
    groups_[group].fenced = end.fenced;
    while (fenced_groups_ < groups_.size() && groups_[fenced_groups_].fenced) ++fenced_groups_;
    NoteReadyTasks();
  }
  PostTasks();
}

bool PutJob::OnAllFetched(bool unfenced) {
  if (unfenced) {
    context_->counters->gpu_kept_requests.fetch_add(1, std::memory_order_relaxed);
    context_->gpu->KeepForEver(shared_from_this());
    return false;
  }
  if (!waits()) DropMemory();
  return true;
}

void PutJob::DropMemory() {
  plan_.DropMemory();  // first: who hears of it may unregister it
  if (!callbacks_.fetched || std::exchange(dropped_, true)) return;
  context_->loop->Post([self = shared_from_this()] { self->callbacks_.fetched(); });
}

// ---------------------------------------------------------------- copies

bool PutJob::IsSmall() const {
  const bool one_task = task_starts_.size() == 2;
  if (!one_task || !plan_.in_staging() || plan_.in_parts()) return false;
  uint64_t chunks = 0, runs = 0, image_bytes = 0;
  for (const Piece& piece : pieces_) {
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
  size_t more = 0;
  {
    MutexLock lock(&mu_);
    more = std::min(ready_tasks_ - posted_tasks_, kParallelTasks - running_);
    posted_tasks_ += more;
    running_ += more;
  }
  for (; more > 0; --more) {
    context_->copy_executor->Post([self = shared_from_this()] { self->RunTasks(); });
  }
}

void PutJob::RunTasks() {
  const size_t most = plan_.gpu() != nullptr ? kGpuTasksARun : kTasksARun;
  bool again = true;
  for (size_t run = 1; again; ++run) {
    size_t task = 0;
    {
      MutexLock lock(&mu_);
      task = next_task_++;
    }
    const size_t begin = task_starts_[task], end = task_starts_[task + 1];
    for (size_t i = begin; i < end; ++i) CopyPiece(pieces_[i]);
    {
      MutexLock lock(&mu_);
      again = run < most && posted_tasks_ < ready_tasks_;
      (again ? ++posted_tasks_ : --running_);
    }
    if (!again) PostTasks();
    if (pieces_left_.fetch_sub(end - begin, std::memory_order_acq_rel) == end - begin) OnCopied();
  }
}

absl::Status PutJob::CheckInTime() const {
  if (plan_.until() == MonotonicTime::max() || context_->clock->Now() <= plan_.until()) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError("not read by the put's deadline");
}

absl::Status PutJob::Fill(const Piece& piece) {
  Reservation& reservation = chunks_[piece.chunk].put.reservation();
  if (plan_.gpu() != nullptr) {  // it is in its place
    reservation.ChecksumPiece(piece.piece);
    return absl::OkStatus();
  }
  return reservation.FillPiece(piece.piece,
                               [&](uint64_t offset, uint64_t bytes, Reservation::GivePayload give) {
                                 return plan_.ReadPayload(piece.chunk, offset, bytes, read_, give);
                               });
}

void PutJob::CopyPiece(const Piece& piece) {
  Chunk& chunk = chunks_[piece.chunk];
  absl::Status status = absl::CancelledError("the session ended");
  if (chunk.lost.load(std::memory_order_relaxed)) {
    status = absl::OkStatus();  // it is known why
  } else if (given_up_.load(std::memory_order_relaxed)) {
    status = absl::CancelledError("given up");
  } else if (!cancelled_.load(std::memory_order_relaxed)) {
    status = Fill(piece);
    if (status.ok() && plan_.gpu() == nullptr) status = CheckInTime();
  }
  if (!status.ok()) {
    MutexLock lock(&mu_);
    failures_.emplace_back(piece.chunk, std::move(status));
  }
  if (chunk.pieces_left.fetch_sub(1, std::memory_order_acq_rel) == 1) FinishChunk(piece.chunk);
}

// Every piece of it is done, by whichever threads.
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
    const bool not_copied = plan_.gpu() != nullptr || late ||
                            given_up_.load(std::memory_order_relaxed);
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
  {
    MutexLock lock(&mu_);
    stopped_ = true;
  }
  DropMemory();
  AwaitDurable();
  copying_.reset();  // from here on this thread calls nothing
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
