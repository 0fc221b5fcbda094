#include "server/grpc/get_stream.h"

#include <grpcpp/server_context.h>

#include <utility>

#include "server/grpc/byte_buffer.h"
#include "server/grpc/get_frame.h"
#include "server/grpc/pinned_slices.h"
#include "server/grpc/to_grpc.h"

namespace kvkeep {

GetStream* GetStream::Start(Store* store, ServerState* state, grpc::CallbackServerContext* context,
                            absl::StatusOr<GetPlan> plan) {
  const std::shared_ptr<GetStream> stream(new GetStream(store, state, context));
  const std::weak_ptr<GetStream> weak = stream;
  stream->self_ = stream;
  stream->stall_ = state->stalls.Add([weak] {
    const std::shared_ptr<GetStream> self = weak.lock();
    if (self != nullptr) self->Wake([](Events& events) { events.stalled = true; });
  });
  if (plan.ok()) {
    const GetFrames::Deps deps{.store = store, .pins = &state->pins, .counters = &state->counters};
    stream->frames_ = GetFrames::Begin(deps, *std::move(plan), [weak] {
      const std::shared_ptr<GetStream> self = weak.lock();
      if (self != nullptr) self->Wake([](Events&) {});
    });
  } else {
    stream->refused_ = plan.status();
  }
  stream->Wake([](Events&) {});
  return stream.get();  // gRPC calls OnDone only after it was handed the reactor
}

GetStream::GetStream(Store* store, ServerState* state, grpc::CallbackServerContext* context)
    : store_(store), state_(state), began_(state->times.Now()), context_(context) {
  state_->counters.get_streams.fetch_add(1, std::memory_order_relaxed);
  state_->counters.open_get_streams.fetch_add(1, std::memory_order_relaxed);
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
    Apply(events);
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
    if (frames_ == nullptr) {
      FinishWith(refused_);
      return;
    }
    if (writing_) {
      frames_->Prepare();
      return;
    }
    const std::optional<GetFrames::Frame> frame = frames_->Next();
    if (!frame.has_value()) {
      if (frames_->done()) FinishWith(frames_->error());
      return;
    }
    Send(*frame);
  }
}

void GetStream::Apply(Events events) {
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
  if (events.cancelled && !cancelled_ && !finished_) {
    cancelled_ = true;
    state_->counters.cancelled_streams.fetch_add(1, std::memory_order_relaxed);
    if (frames_ != nullptr) frames_->Drop();
  }
}

void GetStream::Send(const GetFrames::Frame& frame) {
  const GetFrameHeader& header = frame.header;
  std::vector<grpc::Slice> slices = {grpc::Slice(EncodeGetFrameHeader(header))};
  if (frame.pin != nullptr) {
    const ChunkReader& reader = frame.pin->reader;
    AppendPinnedSlices(
        frame.pin, header.offset, header.offset + header.frame_payload_bytes,
        [&reader](uint64_t offset, uint64_t most) { return reader.Payload(offset, most); },
        &slices);
  }
  frame_ = grpc::ByteBuffer(slices.data(), slices.size());
  writing_ = true;
  stall_->Start();
  StartWrite(&frame_);
}

void GetStream::FinishWith(const absl::Status& status) {
  finished_ = true;
  if (frames_ != nullptr) frames_->Drop();
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    state_->counters.invalid_requests.fetch_add(1, std::memory_order_relaxed);
  }
  state_->times.Note({Listener::kGrpc, Operation::kGet, status.code()}, began_, [this] {
    return Requester{.peer = context_->peer(),
                     .keys = frames_ == nullptr ? 0 : frames_->plan().chunks.keys.size()};
  });
  Finish(ToGrpc(status, store_->incarnation()));
}

}  // namespace kvkeep
