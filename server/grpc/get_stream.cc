#include "server/grpc/get_stream.h"

#include <grpcpp/server_context.h>

#include <utility>

#include "server/grpc/byte_buffer.h"
#include "server/grpc/pinned_slices.h"
#include "server/grpc/to_grpc.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

// A pinned chunk, shared by the stream, by questions to the store that are not answered yet and by
// slices that gRPC has not sent yet. The last holder unpins it, on any thread.
struct GetStream::Pin {
  Pin(ChunkReader chunk_reader, const PinBudget::Holder& holder, ServerState* state)
      : share(state->pins.Take(holder, chunk_reader.shape().payload_bytes)),
        chunks(&state->counters.pinned_chunks),
        bytes(&state->counters.pinned_bytes, chunk_reader.shape().payload_bytes),
        reader(std::move(chunk_reader)) {}
  // Released after the reader: zero means that nothing is pinned.
  PinBudget::Hold share;
  GaugeHold chunks, bytes;
  ChunkReader reader;
};

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

GetStream* GetStream::Start(Store* store, ServerState* state, grpc::CallbackServerContext* context,
                            absl::StatusOr<GetPlan> plan) {
  const std::shared_ptr<GetStream> stream(new GetStream(store, state, context));
  stream->self_ = stream;
  stream->stall_ = state->stalls.Add([weak = std::weak_ptr<GetStream>(stream)] {
    const std::shared_ptr<GetStream> self = weak.lock();
    if (self != nullptr) self->Wake([](Events& events) { events.stalled = true; });
  });
  if (plan.ok()) {
    stream->plan_ = *std::move(plan);
    stream->looks_beyond_ = stream->plan_.beyond.asks() && stream->plan_.lease == LeaseId(0);
  } else {
    stream->error_ = plan.status();
  }
  if (stream->looks_beyond_) {
    stream->LookBeyond();
  } else {
    stream->Wake([](Events&) {});
  }
  return stream.get();  // gRPC calls OnDone only after it was handed the reactor
}

GetStream::GetStream(Store* store, ServerState* state, grpc::CallbackServerContext* context)
    : store_(store), state_(state), began_(state->times.Now()), context_(context) {
  state_->counters.get_streams.fetch_add(1, std::memory_order_relaxed);
  state_->counters.open_get_streams.fetch_add(1, std::memory_order_relaxed);
}

// The store answers by the end of the wait, perhaps inside the call.
void GetStream::LookBeyond() {
  store_->AskBeyond(plan_.session,
                    {.chunks = plan_.chunks.view(),
                     .lease_mode = LeaseMode::kAllPresent,
                     .beyond = plan_.beyond},
                    [weak = weak_from_this()](bool) {
                      const std::shared_ptr<GetStream> self = weak.lock();
                      if (self == nullptr) return;  // the call has ended
                      self->Wake([](Events& events) { events.looked_beyond = true; });
                    });
}

void GetStream::OnWriteDone(bool ok) {
  Wake([ok](Events& events) { events.write_done = true, events.write_ok = ok; });
}

void GetStream::OnCancel() {
  Wake([](Events& events) { events.cancelled = true; });
}

void GetStream::OnDone() {
  state_->counters.open_get_streams.fetch_sub(1, std::memory_order_release);
  const std::shared_ptr<GetStream> last = std::move(self_);
  state_->pins.Poke();
}

void GetStream::Wake(absl::AnyInvocable<void(Events&)> record) {
  const std::shared_ptr<GetStream> hold = shared_from_this();  // OnDone may come during the step
  {
    MutexLock lock(&mu_);
    record(events_);
  }
  loop_.Run([this] { Step(); });
  state_->pins.Poke();  // for chunks that were unpinned meanwhile; no lock is held here
}

void GetStream::Step() {
  {
    Events events;
    {
      MutexLock lock(&mu_);
      events = std::exchange(events_, Events{});
    }
    Apply(std::move(events));
  }
  while (!finished_) {
    if (cancelled_) {
      if (writing_) return;
      const bool late = context_->deadline() <= std::chrono::system_clock::now();
      FinishWith(
          late ? absl::DeadlineExceededError("the deadline passed before all chunks were sent")
               : absl::CancelledError("the client left"));
      return;
    }
    if (looks_beyond_) return;
    FillWindow();
    if (window_.empty()) {
      if (!writing_ && awaits_room_ == 0) FinishWith(error_);
      return;
    }
    Chunk& chunk = window_.front();
    if (chunk.pin != nullptr && !ready_.has_value()) {
      if (!asked_) AskReady(chunk);  // may be answered at once: then the loop runs again
      return;
    }
    if (writing_) return;
    if (chunk.pin == nullptr) {
      SendOutcome(chunk, ToChunkStatus(chunk.outcome));
      window_.pop_front();
      continue;
    }
    absl::Status ready = *std::exchange(ready_, std::nullopt);
    if (ready.ok() && chunk.checksums.empty()) {
      chunk.checksums = chunk.pin->reader.PieceChecksums();
      // Without checksums: its header was found damaged after this piece was read.
      if (chunk.checksums.size() < chunk.end_piece) ready = absl::DataLossError("header damaged");
    }
    if (ready.ok()) {
      SendPieces(&chunk);
      if (chunk.next_piece >= chunk.end_piece) window_.pop_front();
    } else {
      // A failed device makes a miss. Midway only CORRUPT tells the client to drop what it has.
      const bool corrupt = chunk.begun || ready.code() == absl::StatusCode::kDataLoss;
      SendOutcome(chunk, corrupt ? v1::CHUNK_STATUS_CORRUPT : v1::CHUNK_STATUS_MISS);
      window_.pop_front();
    }
  }
}

void GetStream::Apply(Events events) {
  if (events.may_pin) awaits_room_ = 0;
  if (events.looked_beyond) looks_beyond_ = false;
  if (events.stalled && !events.write_done && writing_ && !cancelled_ && !finished_) {
    state_->counters.stalled_streams.fetch_add(1, std::memory_order_relaxed);
    context_->TryCancel();  // OnWriteDone and OnCancel come
  }
  if (events.write_done) {
    stall_->Stop();
    writing_ = false;
    frame_.Clear();
    if (!events.write_ok) events.cancelled = true;
  }
  if (events.ready.has_value()) {
    asked_ = false;
    if (!cancelled_) ready_ = std::move(events.ready);
  }
  if (events.cancelled && !cancelled_ && !finished_) {
    cancelled_ = true;
    state_->counters.cancelled_streams.fetch_add(1, std::memory_order_relaxed);
    Drop();
  }
}

bool GetStream::MayPinNext() {
  if (!window_.empty()) return state_->pins.HasRoom(holder());
  if (awaits_room_ != 0) return false;
  const auto wake = [weak = weak_from_this()] {
    const std::shared_ptr<GetStream> self = weak.lock();
    if (self != nullptr) self->Wake([](Events& events) { events.may_pin = true; });
    return self != nullptr;
  };
  if (state_->pins.HasRoomOr(holder(), wake, &awaits_room_)) return true;
  state_->counters.pin_waits.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void GetStream::FillWindow() {
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

absl::StatusOr<GetStream::Chunk> GetStream::Pinned(size_t index) {
  const size_t parts = plan_.chunks.parts.size();
  const ChunkId id{.ns = plan_.chunks.ns,
                   .key = plan_.chunks.keys[index / parts],
                   .part = plan_.chunks.parts[index % parts]};
  KVKEEP_ASSIGN_OR_RETURN(ReadResult read,
                          store_->Read(plan_.session, id, plan_.lease, plan_.transient));
  Chunk chunk{.index = index, .outcome = read.outcome};
  if (read.outcome != ReadOutcome::kHit) return chunk;
  KVKEEP_CHECK(static_cast<bool>(read.reader));
  chunk.pin = std::make_shared<Pin>(std::move(read.reader), holder(), state_);
  const size_t pieces = chunk.pin->reader.shape().pieces();
  chunk.next_piece = std::min<size_t>(plan_.first_piece, pieces);
  const size_t left = pieces - chunk.next_piece;
  chunk.end_piece =
      chunk.next_piece + (plan_.pieces == 0 ? left : std::min<size_t>(plan_.pieces, left));
  return chunk;
}

void GetStream::AskReady(const Chunk& chunk) {
  asked_ = true;
  const size_t pieces = chunk.pin->reader.shape().pieces();
  size_t first = chunk.next_piece;
  size_t count = FramePieces(chunk);
  // The metadata tail lies behind the last piece; a range that is empty still says that it is a
  // hit.
  if (LastFrame(chunk) && (plan_.metadata || count == 0)) {
    first = std::min(first, pieces - 1);
    count = pieces - first;
  }
  // The answer may come after this call has ended: it then finds a finished stream, and its pin
  // keeps the chunk in place until then.
  chunk.pin->reader.WhenReady(
      first, count, [self = shared_from_this(), pin = chunk.pin](absl::Status status) mutable {
        pin.reset();
        self->Wake([&status](Events& events) { events.ready = std::move(status); });
      });
}

size_t GetStream::FramePieces(const Chunk& chunk) const {
  return std::min(kFramePieces, chunk.end_piece - chunk.next_piece);
}

bool GetStream::LastFrame(const Chunk& chunk) const {
  return chunk.next_piece + FramePieces(chunk) == chunk.end_piece;
}

GetFrameHeader GetStream::HeaderOf(const Chunk& chunk, v1::ChunkStatus status) const {
  const size_t parts = plan_.chunks.parts.size();
  GetFrameHeader header{.key_index = static_cast<uint32_t>(chunk.index / parts),
                        .part_index = static_cast<uint32_t>(chunk.index % parts),
                        .status = status,
                        .last = true};
  if (chunk.pin != nullptr) header.chunk_payload_bytes = chunk.pin->reader.shape().payload_bytes;
  return header;
}

void GetStream::SendOutcome(const Chunk& chunk, v1::ChunkStatus status) {
  Send(HeaderOf(chunk, status), {});
}

void GetStream::SendPieces(Chunk* chunk) {
  const ChunkReader& reader = chunk->pin->reader;
  GetFrameHeader header = HeaderOf(*chunk, v1::CHUNK_STATUS_HIT);
  const size_t count = FramePieces(*chunk);
  header.last = LastFrame(*chunk);
  header.offset = chunk->next_piece * uint64_t{kPieceBytes};
  header.piece_checksums.assign(chunk->checksums.begin() + chunk->next_piece,
                                chunk->checksums.begin() + chunk->next_piece + count);
  if (header.last && plan_.metadata) header.metadata = reader.Metadata();
  const uint64_t end =
      std::min<uint64_t>(header.offset + count * kPieceBytes, header.chunk_payload_bytes);
  header.frame_payload_bytes = count == 0 ? 0 : end - header.offset;

  std::vector<grpc::Slice> payload;
  AppendPinnedSlices(
      chunk->pin, header.offset, header.offset + header.frame_payload_bytes,
      [&reader](uint64_t offset, uint64_t most) { return reader.Payload(offset, most); }, &payload);
  chunk->next_piece += count;
  chunk->begun = true;
  state_->counters.get_bytes.fetch_add(header.frame_payload_bytes, std::memory_order_relaxed);
  Send(header, std::move(payload));
}

void GetStream::Send(const GetFrameHeader& header, std::vector<grpc::Slice> payload) {
  payload.insert(payload.begin(), grpc::Slice(EncodeGetFrameHeader(header)));
  frame_ = grpc::ByteBuffer(payload.data(), payload.size());
  state_->counters.get_frames.fetch_add(1, std::memory_order_relaxed);
  writing_ = true;
  stall_->Start();
  StartWrite(&frame_);
}

void GetStream::Drop() {
  if (awaits_room_ != 0) state_->pins.Leave(holder(), std::exchange(awaits_room_, 0));
  window_.clear();
  ready_.reset();
}

void GetStream::FinishWith(const absl::Status& status) {
  finished_ = true;
  Drop();
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    state_->counters.invalid_requests.fetch_add(1, std::memory_order_relaxed);
  }
  state_->times.Note({Listener::kGrpc, Operation::kGet, status.code()}, began_, [this] {
    return Requester{.peer = context_->peer(), .keys = plan_.chunks.keys.size()};
  });
  Finish(ToGrpc(status, store_->incarnation()));
}

}  // namespace kvkeep
