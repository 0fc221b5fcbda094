#include "server/requests/get_frames.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

v1::ChunkStatus ToChunkStatus(ReadOutcome outcome) {
  switch (outcome) {
    case ReadOutcome::kHit:
      return v1::CHUNK_STATUS_HIT;
    case ReadOutcome::kMiss:
      return v1::CHUNK_STATUS_MISS;
    case ReadOutcome::kBusy:
      return v1::CHUNK_STATUS_BUSY;
  }
  return v1::CHUNK_STATUS_MISS;
}

}  // namespace

std::shared_ptr<GetFrames> GetFrames::Begin(const Deps& deps, GetPlan plan,
                                            absl::AnyInvocable<void() const> wake) {
  return std::shared_ptr<GetFrames>(new GetFrames(deps, std::move(plan), std::move(wake)));
}

GetFrames::GetFrames(const Deps& deps, GetPlan plan, absl::AnyInvocable<void() const> wake)
    : deps_(deps),
      wake_(std::move(wake)),
      plan_(std::move(plan)),
      looks_beyond_(plan_.beyond.asks() && plan_.lease == LeaseId(0)) {}

std::optional<GetFrames::Frame> GetFrames::Next() {
  if (ended_) return std::nullopt;
  do {
    TakeEvents();
    if (!FrontIsReady()) continue;
    Frame frame = TakeFrame();
    deps_.counters->get_frames.fetch_add(1, std::memory_order_relaxed);
    MutexLock lock(&mu_);
    in_call_ = false;  // what came meanwhile is for the next call, which follows the frame
    return frame;
  } while (!EndCall());
  return std::nullopt;
}

void GetFrames::Prepare() {
  if (ended_) return;
  do {
    TakeEvents();
    FrontIsReady();
  } while (!EndCall());
}

bool GetFrames::done() const {
  if (ended_) return true;
  return !looks_beyond_ && window_.empty() &&
         (!error_.ok() || next_index_ >= plan_.chunks.chunks());
}

void GetFrames::Drop() {
  {
    MutexLock lock(&mu_);
    dropped_ = true;
    events_ = Events{};
  }
  ended_ = true;
  if (awaits_room_ != 0) deps_.pins->Leave(holder(), std::exchange(awaits_room_, 0));
  window_.clear();
  ready_.reset();
}

// Runs on any thread, perhaps inside a call of the owner, which looks again before it returns.
void GetFrames::Tell(absl::AnyInvocable<void(Events&)> record) {
  bool wakes = false;
  {
    MutexLock lock(&mu_);
    if (!dropped_) {
      record(events_);
      wakes = !in_call_;
    }
  }
  if (wakes) wake_();
  deps_.pins->Poke();  // for a chunk that was unpinned meanwhile; no lock is held here
}

void GetFrames::TakeEvents() {
  Events events;
  {
    MutexLock lock(&mu_);
    in_call_ = true;
    events = std::exchange(events_, Events{});
  }
  if (events.may_pin) awaits_room_ = 0;
  if (events.looked_beyond) looks_beyond_ = false;
  if (events.ready.has_value()) {
    asked_ = false;
    ready_ = std::move(events.ready);
  }
}

bool GetFrames::EndCall() {
  MutexLock lock(&mu_);
  if (events_.any()) return false;
  in_call_ = false;
  return true;
}

bool GetFrames::FrontIsReady() {
  if (looks_beyond_) {
    if (!std::exchange(asked_beyond_, true)) LookBeyond();
    return false;
  }
  FillWindow();
  if (window_.empty()) return false;
  const Chunk& chunk = window_.front();
  if (chunk.pin == nullptr || ready_.has_value()) return true;
  if (!asked_) AskReady(chunk);  // may be answered at once
  return false;
}

// The store answers by the end of the wait, perhaps inside the call.
void GetFrames::LookBeyond() {
  deps_.store->AskBeyond(
      plan_.session,
      {.chunks = plan_.chunks.view(), .lease_mode = LeaseMode::kAllPresent, .beyond = plan_.beyond},
      [weak = weak_from_this()](bool) {
        const std::shared_ptr<GetFrames> self = weak.lock();
        if (self == nullptr) return;  // the call has ended
        self->Tell([](Events& events) { events.looked_beyond = true; });
      });
}

bool GetFrames::MayPinNext() {
  if (!window_.empty()) return deps_.pins->HasRoom(holder());
  if (awaits_room_ != 0) return false;
  const auto wake = [weak = weak_from_this()] {
    const std::shared_ptr<GetFrames> self = weak.lock();
    if (self != nullptr) self->Tell([](Events& events) { events.may_pin = true; });
    return self != nullptr;
  };
  if (deps_.pins->HasRoomOr(holder(), wake, &awaits_room_)) return true;
  deps_.counters->pin_waits.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void GetFrames::FillWindow() {
  while (window_.size() < kWindowChunks && next_index_ < plan_.chunks.chunks() && error_.ok() &&
         MayPinNext()) {
    absl::StatusOr<Chunk> chunk = Pinned(next_index_);
    if (!chunk.ok()) {
      error_ = chunk.status();
      return;
    }
    ++next_index_;
    window_.push_back(*std::move(chunk));
  }
}

absl::StatusOr<GetFrames::Chunk> GetFrames::Pinned(size_t index) {
  const size_t parts = plan_.chunks.parts.size();
  const ChunkId id{.ns = plan_.chunks.ns,
                   .key = plan_.chunks.keys[index / parts],
                   .part = plan_.chunks.parts[index % parts]};
  KVKEEP_ASSIGN_OR_RETURN(ReadResult read,
                          deps_.store->Read(plan_.session, id, plan_.lease, plan_.transient));
  Chunk chunk{.index = index, .outcome = read.outcome};
  if (read.outcome != ReadOutcome::kHit) return chunk;
  KVKEEP_CHECK(static_cast<bool>(read.reader));
  chunk.pin =
      std::make_shared<PinnedChunk>(std::move(read.reader), holder(), deps_.pins, deps_.counters);
  const size_t pieces = chunk.pin->reader.shape().pieces();
  chunk.next_piece = std::min<size_t>(plan_.first_piece, pieces);
  const size_t left = pieces - chunk.next_piece;
  chunk.end_piece =
      chunk.next_piece + (plan_.pieces == 0 ? left : std::min<size_t>(plan_.pieces, left));
  return chunk;
}

void GetFrames::AskReady(const Chunk& chunk) {
  asked_ = true;
  const size_t pieces = chunk.pin->reader.shape().pieces();
  size_t first = chunk.next_piece;
  size_t count = PiecesOfFrame(chunk);
  // The metadata tail lies behind the last piece; a range that is empty still says that it is a
  // hit.
  if (IsLastFrame(chunk) && (plan_.metadata || count == 0)) {
    first = std::min(first, pieces - 1);
    count = pieces - first;
  }
  // The answer may come after this get was dropped. Its pin keeps the chunk in place until then.
  chunk.pin->reader.WhenReady(
      first, count, [self = shared_from_this(), pin = chunk.pin](absl::Status status) mutable {
        pin.reset();
        self->Tell([&status](Events& events) { events.ready = std::move(status); });
      });
}

size_t GetFrames::PiecesOfFrame(const Chunk& chunk) const {
  return std::min(deps_.frame_pieces, chunk.end_piece - chunk.next_piece);
}

bool GetFrames::IsLastFrame(const Chunk& chunk) const {
  return chunk.next_piece + PiecesOfFrame(chunk) == chunk.end_piece;
}

GetFrames::Frame GetFrames::TakeFrame() {
  Chunk& chunk = window_.front();
  Frame frame;
  bool last = true;
  if (chunk.pin == nullptr) {
    frame = OutcomeOf(chunk, ToChunkStatus(chunk.outcome));
  } else {
    absl::Status ready = *std::exchange(ready_, std::nullopt);
    if (ready.ok() && chunk.checksums.empty()) {
      chunk.checksums = chunk.pin->reader.PieceChecksums();
      // Without checksums: its header was found damaged after this piece was read.
      if (chunk.checksums.size() < chunk.end_piece) ready = absl::DataLossError("header damaged");
    }
    if (ready.ok()) {
      frame = PiecesOf(&chunk);
      last = chunk.next_piece >= chunk.end_piece;
    } else {
      // A failed device makes a miss. Midway only CORRUPT tells the client to drop what it has.
      const bool corrupt = chunk.begun || ready.code() == absl::StatusCode::kDataLoss;
      frame = OutcomeOf(chunk, corrupt ? v1::CHUNK_STATUS_CORRUPT : v1::CHUNK_STATUS_MISS);
    }
  }
  if (last) window_.pop_front();
  return frame;
}

GetFrames::Frame GetFrames::OutcomeOf(const Chunk& chunk, v1::ChunkStatus status) const {
  const size_t parts = plan_.chunks.parts.size();
  Frame frame{.header = {.key_index = static_cast<uint32_t>(chunk.index / parts),
                         .part_index = static_cast<uint32_t>(chunk.index % parts),
                         .status = status,
                         .last = true}};
  if (chunk.pin != nullptr) {
    frame.header.chunk_payload_bytes = chunk.pin->reader.shape().payload_bytes;
  }
  return frame;
}

GetFrames::Frame GetFrames::PiecesOf(Chunk* chunk) {
  Frame frame = OutcomeOf(*chunk, v1::CHUNK_STATUS_HIT);
  GetFrameHeader& header = frame.header;
  const size_t count = PiecesOfFrame(*chunk);
  header.last = IsLastFrame(*chunk);
  header.offset = chunk->next_piece * uint64_t{kPieceBytes};
  header.piece_checksums.assign(chunk->checksums.begin() + chunk->next_piece,
                                chunk->checksums.begin() + chunk->next_piece + count);
  if (header.last && plan_.metadata) header.metadata = chunk->pin->reader.Metadata();
  const uint64_t end =
      std::min<uint64_t>(header.offset + count * kPieceBytes, header.chunk_payload_bytes);
  header.frame_payload_bytes = count == 0 ? 0 : end - header.offset;
  if (header.frame_payload_bytes > 0) frame.pin = chunk->pin;
  chunk->next_piece += count;
  chunk->begun = true;
  deps_.counters->get_bytes.fetch_add(header.frame_payload_bytes, std::memory_order_relaxed);
  return frame;
}

}  // namespace kvkeep
