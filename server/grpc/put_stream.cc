#include "server/grpc/put_stream.h"

#include <absl/strings/str_cat.h>
#include <grpcpp/server_context.h>

#include <utility>

#include "server/grpc/byte_buffer.h"
#include "server/grpc/to_grpc.h"
#include "tiers/base/check.h"

namespace kvkeep {

PutStream* PutStream::Start(Store* store, ServerState* state, grpc::CallbackServerContext* context,
                            const absl::StatusOr<TenantId>& caller) {
  const std::shared_ptr<PutStream> stream(new PutStream(store, state, context));
  stream->self_ = stream;
  stream->stall_ = state->stalls.Add([weak = std::weak_ptr<PutStream>(stream)] {
    const std::shared_ptr<PutStream> self = weak.lock();
    if (self != nullptr) self->Wake([](Events& events) { events.stalled = true; });
  });
  if (caller.ok()) {
    stream->receiver_.emplace(store, &state->counters, *caller);
  } else {
    stream->End(caller.status());
  }
  stream->Wake([](Events&) {});
  return stream.get();  // gRPC calls OnDone only after it was handed the reactor
}

PutStream::PutStream(Store* store, ServerState* state, grpc::CallbackServerContext* context)
    : store_(store), state_(state), began_(state->times.Now()), context_(context) {
  state_->counters.put_streams.fetch_add(1, std::memory_order_relaxed);
  state_->counters.open_put_streams.fetch_add(1, std::memory_order_relaxed);
}

void PutStream::OnReadDone(bool ok) {
  Wake([ok](Events& events) { events.read_done = true, events.read_ok = ok; });
}

void PutStream::OnWriteDone(bool ok) {
  Wake([ok](Events& events) { events.write_done = true, events.write_ok = ok; });
}

void PutStream::OnCancel() {
  Wake([](Events& events) { events.cancelled = true; });
}

void PutStream::OnDone() {
  state_->counters.open_put_streams.fetch_sub(1, std::memory_order_release);
  const std::shared_ptr<PutStream> last = std::move(self_);
}

void PutStream::Wake(absl::AnyInvocable<void(Events&)> record) {
  const std::shared_ptr<PutStream> hold = shared_from_this();  // OnDone may come during the step
  {
    MutexLock lock(&mu_);
    record(events_);
  }
  loop_.Run([this] {
    Step();
    WatchClient();
  });
}

// Starts or stops the clock of the client. Each step starts it anew: something came, or was taken.
void PutStream::WatchClient() {
  const bool client_is_due = writing_ || (reading_ && results_.empty());
  if (client_is_due && !finished_) {
    stall_->Start();
  } else {
    stall_->Stop();
  }
}

void PutStream::Step() {
  {
    Events events;
    {
      MutexLock lock(&mu_);
      events = std::exchange(events_, Events{});
    }
    Apply(std::move(events));
  }
  while (!finished_) {
    if (!writing_ && !cancelled_ && !results_.empty() && results_.front().ready) {
      SendFrontResult();
    } else if (end_.has_value()) {
      FinishWhenIdle();
      return;
    } else if (!reading_ && !client_done_ && frames_.size() < kMaxFramesRead &&
               results_.size() < kMaxResults) {
      reading_ = true;
      StartRead(&incoming_);  // the next frame comes in while this one is copied
    } else if (!frames_.empty() && results_.size() < kMaxResults) {
      TakeFrame();
    } else if (client_done_ && frames_.empty() && results_.empty() && !writing_) {
      End(absl::OkStatus());
    } else {
      return;  // something is under way and will wake us
    }
  }
}

void PutStream::Apply(Events events) {
  if (events.write_done) {
    writing_ = false;
    outgoing_.Clear();
    if (!events.write_ok) events.cancelled = true;
  }
  if (events.read_done) {
    reading_ = false;
    if (events.read_ok) {
      frames_.push_back(std::exchange(incoming_, grpc::ByteBuffer()));
    } else {
      client_done_ = true;
      if (!finished_ && context_->IsCancelled())
        events.cancelled = true;  // the client left without an end
    }
  }
  for (v1::PutResult& result : events.durable) {
    if (results_.empty()) break;  // the stream ended meanwhile
    // Ordinals grow along the queue.
    for (Slot& slot : results_) {
      if (slot.result.ordinal() != result.ordinal()) continue;
      slot.result = std::move(result);
      slot.ready = true;
      break;
    }
  }
  if (events.stalled && !events.read_done && !events.write_done && !end_.has_value()) {
    state_->counters.stalled_streams.fetch_add(1, std::memory_order_relaxed);
    if (writing_) context_->TryCancel();  // no status can be sent before the result is taken
    End(absl::DeadlineExceededError(
        absl::StrCat("limits.stall_timeout: the client sent or took nothing for ",
                     state_->stalls.limit().count(), " ms; a chunk in progress was not stored")));
  }
  if (events.cancelled && !cancelled_ && !finished_) {
    cancelled_ = true;
    results_.clear();
    state_->counters.cancelled_streams.fetch_add(1, std::memory_order_relaxed);
    const bool late = context_->deadline() <= std::chrono::system_clock::now();
    End(late ? absl::DeadlineExceededError(
                   "the deadline passed; the chunk in progress was not stored")
             : absl::CancelledError("the client left; the chunk in progress was not stored"));
  }
}

void PutStream::SendFrontResult() {
  outgoing_ = ToByteBuffer(results_.front().result.SerializeAsString());
  results_.pop_front();
  writing_ = true;
  StartWrite(&outgoing_);
}

void PutStream::TakeFrame() {
  const grpc::ByteBuffer frame = std::exchange(frames_.front(), grpc::ByteBuffer());
  frames_.pop_front();
  const BufferRuns runs(frame);
  absl::StatusOr<std::optional<PutReceiver::FinishedChunk>> finished =
      receiver_->OnFrame(runs.runs());
  if (!finished.ok()) {
    End(finished.status());
    return;
  }
  if (!finished->has_value()) return;
  PutReceiver::FinishedChunk& chunk = **finished;
  const bool waits = chunk.put.awaits_durable();
  results_.push_back({.result = chunk.Result(), .ready = !waits});
  if (!waits) return;
  const ChunkId id = chunk.put.id();
  store_->WhenDurable(id, [self = shared_from_this(),
                           chunk = std::move(chunk)](const absl::Status& status) mutable {
    chunk.put.OnDurable(status);
    self->Wake([&chunk](Events& events) { events.durable.push_back(chunk.Result()); });
  });
}

void PutStream::End(const absl::Status& status) {
  absl::Status end = status;
  if (receiver_.has_value() && end.ok()) end = receiver_->OnEnd();
  receiver_.reset();  // aborts the chunk in progress
  frames_.clear();
  if (end.code() == absl::StatusCode::kInvalidArgument) {
    state_->counters.invalid_requests.fetch_add(1, std::memory_order_relaxed);
  }
  if (!end_.has_value() || cancelled_) end_ = std::move(end);
}

void PutStream::FinishWhenIdle() {
  // Results that were ready are sent; the call does not wait for others, such as for stable
  // storage.
  if (writing_ || finished_) return;
  finished_ = true;
  results_.clear();
  state_->times.Note({Listener::kGrpc, Operation::kPut, end_->code()}, began_,
                     [this] { return Requester{.peer = context_->peer()}; });
  Finish(ToGrpc(*end_, store_->incarnation()));
}

}  // namespace kvkeep
