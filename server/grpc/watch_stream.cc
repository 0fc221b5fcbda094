#include "server/grpc/watch_stream.h"

#include <utility>

#include "server/grpc/to_grpc.h"

namespace kvkeep {
namespace {

v1::ChunkChange ChangeOf(const ChunkEvent& event) {
  if (event.tier == Tier::kG2) {
    return event.stored ? v1::CHUNK_CHANGE_G2_STORED : v1::CHUNK_CHANGE_G2_REMOVED;
  }
  return event.stored ? v1::CHUNK_CHANGE_G3_STORED : v1::CHUNK_CHANGE_G3_REMOVED;
}

void Fill(const EventBatch& batch, v1::WatchEvents& message) {
  message.set_gap(batch.begins_anew);
  message.set_snapshot_end(batch.whole);
  std::string& keys = *message.mutable_keys();
  keys.reserve(batch.events.size() * ChunkKey::kSize);
  for (const ChunkEvent& event : batch.events) {
    keys.append(event.id.key.view().data(), ChunkKey::kSize);
    message.add_parts(event.id.part.value());
    message.add_changes(ChangeOf(event));
  }
}

}  // namespace

WatchStream* WatchStream::Start(ServerState* state, Incarnation epoch,
                                absl::StatusOr<EventReader> reader) {
  const std::shared_ptr<WatchStream> stream(new WatchStream(state, epoch));
  stream->self_ = stream;
  if (reader.ok()) {
    stream->reader_ = *std::move(reader);
  } else {
    stream->end_ = reader.status();
  }
  stream->Wake([](News&) {});
  return stream.get();  // gRPC calls OnDone only after it was handed the reactor
}

WatchStream::WatchStream(ServerState* state, Incarnation epoch) : state_(state), epoch_(epoch) {
  state_->counters.open_watch_streams.fetch_add(1, std::memory_order_relaxed);
}

void WatchStream::OnWriteDone(bool ok) {
  Wake([ok](News& news) {
    news.write_done = true;
    if (!ok) news.end = absl::CancelledError("the client left");
  });
}

void WatchStream::OnCancel() {
  Wake([](News& news) { news.end = absl::CancelledError("the client left"); });
}

void WatchStream::OnDone() {
  state_->counters.open_watch_streams.fetch_sub(1, std::memory_order_release);
  const std::shared_ptr<WatchStream> last = std::move(self_);
}

void WatchStream::Wake(absl::AnyInvocable<void(News&)> record) {
  const std::shared_ptr<WatchStream> hold = shared_from_this();  // OnDone may come in the step
  {
    MutexLock lock(&mu_);
    record(news_);
  }
  loop_.Run([this] { Step(); });
}

void WatchStream::Step() {
  News news;
  {
    MutexLock lock(&mu_);
    news = std::exchange(news_, News{});
  }
  if (news.write_done) writing_ = false;
  if (news.more) waiting_ = false;
  if (news.end.has_value() && !end_.has_value()) end_ = std::move(news.end);
  if (finished_) return;
  if (!end_.has_value() && !writing_ && !waiting_) SendNext();
  if (end_.has_value() && !writing_) FinishWith(*end_);
}

void WatchStream::SendNext() {
  while (true) {
    const absl::StatusOr<EventBatch> batch = reader_.Next();
    if (!batch.ok()) {
      end_ = batch.status();
      return;
    }
    if (batch->tells()) {
      message_.Clear();
      message_.set_epoch(epoch_.value());
      message_.set_sequence(sequence_);
      Fill(*batch, message_);
      sequence_ += batch->events.size();
      writing_ = true;
      StartWrite(&message_);
      return;
    }
    if (batch->more) continue;  // the events read were of other namespaces
    waiting_ = true;
    reader_.WhenMore(
        [stream = shared_from_this()] { stream->Wake([](News& news) { news.more = true; }); });
    return;
  }
}

void WatchStream::FinishWith(const absl::Status& status) {
  finished_ = true;
  reader_ = EventReader();  // ends a wait
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    state_->counters.invalid_requests.fetch_add(1, std::memory_order_relaxed);
  }
  Finish(ToGrpc(status, epoch_));
}

}  // namespace kvkeep
