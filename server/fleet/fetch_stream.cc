#include "server/fleet/fetch_stream.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "server/grpc/pinned_slices.h"
#include "server/grpc/to_grpc.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

// The pinned chunk, shared by the stream, by a question to the store that is not answered yet and
// by slices that gRPC has not sent yet. The last holder unpins it, on any thread.
struct FetchStream::Pin {
  Pin(ServeBudget::Share of_budget, ChunkReader chunk_reader, ServerState* state)
      : chunks(&state->counters.pinned_chunks),
        bytes(&state->counters.pinned_bytes, chunk_reader.shape().payload_bytes),
        share(std::move(of_budget)),
        reader(std::move(chunk_reader)) {}
  // Released after the reader, in this order: once the gauges are zero nothing is pinned, and the
  // budget may go.
  GaugeHold chunks, bytes;
  ServeBudget::Share share;
  ChunkReader reader;
};

FetchStream* FetchStream::Start(const Parts& parts, grpc::CallbackServerContext* context,
                                absl::StatusOr<WantedImage> wanted) {
  const std::shared_ptr<FetchStream> stream(new FetchStream(parts, context));
  stream->self_ = stream;
  stream->stall_ = parts.state->stalls.Add([weak = std::weak_ptr<FetchStream>(stream)] {
    const std::shared_ptr<FetchStream> self = weak.lock();
    if (self != nullptr) self->Wake([](Events& events) { events.stalled = true; });
  });
  stream->error_ = wanted.ok() ? stream->Begin(*wanted) : wanted.status();
  stream->Wake([](Events&) {});
  return stream.get();  // gRPC calls OnDone only after it was handed the reactor
}

FetchStream::FetchStream(const Parts& parts, grpc::CallbackServerContext* context)
    : parts_(parts), context_(context) {
  parts_.served->fetches.fetch_add(1, std::memory_order_relaxed);
}

absl::Status FetchStream::Begin(const WantedImage& wanted) {
  wanted_ = wanted;
  std::optional<ServeBudget::Share> share =
      parts_.budget->Take(wanted.shape.blocks().value() * kBlockBytes, parts_.state->times.Now());
  if (!share.has_value()) {
    parts_.served->busy.fetch_add(1, std::memory_order_relaxed);
    return absl::ResourceExhaustedError("this node serves as much as it may");
  }
  ReadResult read = parts_.store->ReadForPeer(wanted.id);
  if (read.outcome == ReadOutcome::kBusy) {
    parts_.served->busy.fetch_add(1, std::memory_order_relaxed);
    return absl::ResourceExhaustedError("this node's DRAM has no space for the chunk now");
  }
  if (read.outcome == ReadOutcome::kMiss || read.reader.shape() != wanted.shape) {
    parts_.served->absent.fetch_add(1, std::memory_order_relaxed);
    return absl::NotFoundError("this node does not have the chunk");
  }
  if (read.from_g3) parts_.served->from_g3.fetch_add(1, std::memory_order_relaxed);
  share->Charge(parts_.state->times.Now());
  pin_ = std::make_shared<Pin>(*std::move(share), std::move(read.reader), parts_.state);
  return absl::OkStatus();
}

void FetchStream::OnWriteDone(bool ok) {
  Wake([ok](Events& events) { events.write_done = true, events.write_ok = ok; });
}

void FetchStream::OnCancel() {
  Wake([](Events& events) { events.cancelled = true; });
}

void FetchStream::OnDone() { const std::shared_ptr<FetchStream> last = std::move(self_); }

void FetchStream::Wake(absl::AnyInvocable<void(Events&)> record) {
  const std::shared_ptr<FetchStream> hold = shared_from_this();  // OnDone may come during the step
  {
    MutexLock lock(&mu_);
    record(events_);
  }
  loop_.Run([this] { Step(); });
}

void FetchStream::Step() {
  {
    Events events;
    {
      MutexLock lock(&mu_);
      events = std::exchange(events_, Events{});
    }
    Apply(std::move(events));
  }
  if (finished_ || writing_) return;
  if (cancelled_) return FinishWith(absl::CancelledError("the node that asked left"));
  if (!error_.ok()) return FinishWith(error_);
  if (next_piece_ == wanted_.shape.pieces()) return FinishWith(absl::OkStatus());
  if (!ready_.has_value()) {
    if (!asked_) AskReady();  // may be answered at once: then the loop runs again
    return;
  }
  absl::Status ready = *std::exchange(ready_, std::nullopt);
  if (ready.ok()) ready = SendPieces();
  // Unavailable would say that the node is, and not the chunk alone.
  if (absl::IsUnavailable(ready)) ready = absl::AbortedError(ready.message());
  if (!ready.ok()) FinishWith(ready);
}

void FetchStream::Apply(Events events) {
  if (events.stalled && !events.write_done && writing_ && !cancelled_ && !finished_) {
    parts_.state->counters.stalled_streams.fetch_add(1, std::memory_order_relaxed);
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
    ready_ = std::move(events.ready);
  }
  if (events.cancelled && !finished_) {
    cancelled_ = true;
    pin_.reset();
  }
}

void FetchStream::AskReady() {
  asked_ = true;
  const size_t count = std::min(kFetchFramePieces, wanted_.shape.pieces() - next_piece_);
  pin_->reader.WhenReady(
      next_piece_, count, [self = shared_from_this(), pin = pin_](absl::Status status) mutable {
        pin.reset();
        self->Wake([&status](Events& events) { events.ready = std::move(status); });
      });
}

absl::StatusOr<std::string> FetchStream::MakeHeader() const {
  std::optional<ImageIdentity> identity = pin_->reader.Identity();
  if (!identity.has_value()) return absl::DataLossError("the chunk's header is damaged");
  ImageHeader header{.identity = *std::move(identity),
                     .placement = {.tier = Tier::kG2,
                                   .place = parts_.seal->place,
                                   .incarnation = Incarnation(0),
                                   .generation = Generation(0),
                                   .extents = {Extent{BlockNumber(0), wanted_.shape.blocks()}}}};
  std::string page(kHeaderBytes, '\0');
  EncodeHeader(header, parts_.seal->mac_key,
               HeaderPage(reinterpret_cast<std::byte*>(page.data()), kHeaderBytes));
  return page;
}

absl::Status FetchStream::SendPieces() {
  const ImageShape& shape = wanted_.shape;
  const size_t end_piece = std::min(next_piece_ + kFetchFramePieces, shape.pieces());
  FetchFrameHead head{.offset = next_piece_ == 0 ? 0 : shape.piece_begin(next_piece_)};
  const uint64_t begin = shape.piece_begin(next_piece_);
  const uint64_t end = std::min(shape.piece_end(end_piece - 1), shape.used_bytes());
  head.image_bytes = end - begin;
  if (next_piece_ == 0) {
    KVKEEP_ASSIGN_OR_RETURN(head.header, MakeHeader());
  }
  std::vector<grpc::Slice> slices = {grpc::Slice(EncodeFetchFrameHead(head))};
  AppendPinnedSlices(
      pin_, begin, end,
      [this](uint64_t offset, uint64_t most) { return pin_->reader.Image(offset, most); }, &slices);
  next_piece_ = end_piece;
  parts_.served->fetched_bytes.fetch_add(head.image_bytes, std::memory_order_relaxed);
  frame_ = grpc::ByteBuffer(slices.data(), slices.size());
  writing_ = true;
  stall_->Start();
  StartWrite(&frame_);
  return absl::OkStatus();
}

void FetchStream::FinishWith(const absl::Status& status) {
  finished_ = true;
  pin_.reset();
  Finish(ToGrpc(status, parts_.store->incarnation()));
}

}  // namespace kvkeep
