#include "server/grpc/session_stream.h"

#include <grpcpp/server_context.h>

#include <utility>

#include "server/grpc/to_grpc.h"
#include "server/requests/convert.h"

namespace kvkeep {

void SessionStreams::Add(std::weak_ptr<SessionStream> stream) {
  MutexLock lock(&mu_);
  std::erase_if(streams_, [](const std::weak_ptr<SessionStream>& old) { return old.expired(); });
  streams_.push_back(std::move(stream));
}

std::vector<std::shared_ptr<SessionStream>> SessionStreams::Alive() {
  std::vector<std::shared_ptr<SessionStream>> alive;
  MutexLock lock(&mu_);
  for (const std::weak_ptr<SessionStream>& stream : streams_) {
    if (std::shared_ptr<SessionStream> held = stream.lock()) alive.push_back(std::move(held));
  }
  return alive;
}

void SessionStreams::NotifyDraining() {
  for (const std::shared_ptr<SessionStream>& stream : Alive()) stream->NotifyDraining();
}

void SessionStreams::EndAll() {
  for (const std::shared_ptr<SessionStream>& stream : Alive()) stream->EndBecauseStopping();
}

SessionStream* SessionStream::Start(Store* store, ServerState* state, SessionStreams* streams,
                                    absl::StatusOr<Caller> caller,
                                    const v1::OpenSessionRequest& request) {
  const std::shared_ptr<SessionStream> stream(new SessionStream(store, state));
  stream->self_ = stream;
  stream->Open(std::move(caller), request);
  streams->Add(stream);
  stream->Wake([](Events&) {});
  return stream.get();  // gRPC calls OnDone only after it was handed the reactor
}

SessionStream::SessionStream(Store* store, ServerState* state) : store_(store), state_(state) {
  state_->counters.open_session_streams.fetch_add(1, std::memory_order_relaxed);
}

void SessionStream::Open(absl::StatusOr<Caller> caller, const v1::OpenSessionRequest& request) {
  if (!caller.ok()) {
    end_ = caller.status();
    return;
  }
  absl::StatusOr<std::string> name = ParseClientName(request.client_name());
  if (!name.ok()) {
    end_ = name.status();
    return;
  }
  // From here on the session's token stands for the caller.
  const absl::StatusOr<SessionToken> token = store_->OpenSession({.client_name = *std::move(name),
                                                                  .peer = std::move(caller->who),
                                                                  .tenant = caller->tenant,
                                                                  .grants = caller->grants});
  if (!token.ok()) {
    end_ = token.status();
    return;
  }
  session_ = *token;
  event_.set_session_token(std::string(token->view()));
  event_.set_incarnation(store_->incarnation().value());
  *event_.mutable_limits() = ToLimits(store_->options(), caller->tenant);
  writing_ = true;
  StartWrite(&event_);
}

void SessionStream::NotifyDraining() {
  Wake([](Events& events) { events.draining = true; });
}

void SessionStream::EndBecauseStopping() {
  Wake([](Events& events) {
    events.end = absl::UnavailableError("the daemon is stopping; open a new session later");
  });
}

void SessionStream::OnWriteDone(bool ok) {
  Wake([ok](Events& events) {
    events.write_done = true;
    if (!ok) events.end = absl::CancelledError("the client left");
  });
}

void SessionStream::OnCancel() {
  Wake([](Events& events) { events.end = absl::CancelledError("the client left"); });
}

void SessionStream::OnDone() {
  state_->counters.open_session_streams.fetch_sub(1, std::memory_order_release);
  const std::shared_ptr<SessionStream> last = std::move(self_);
}

void SessionStream::Wake(absl::AnyInvocable<void(Events&)> record) {
  const std::shared_ptr<SessionStream> hold = shared_from_this();  // OnDone may come in the step
  {
    MutexLock lock(&mu_);
    record(events_);
  }
  loop_.Run([this] { Step(); });
}

void SessionStream::Step() {
  Events events;
  {
    MutexLock lock(&mu_);
    events = std::exchange(events_, Events{});
  }
  if (events.write_done) writing_ = false;
  if (events.draining) draining_due_ = true;
  if (events.end.has_value() && !end_.has_value()) end_ = std::move(events.end);
  if (finished_) return;
  if (end_.has_value()) {
    CloseSession();  // at once, not only when gRPC has let go of the call
    if (writing_) return;
    finished_ = true;
    if (end_->code() == absl::StatusCode::kInvalidArgument) {
      state_->counters.invalid_requests.fetch_add(1, std::memory_order_relaxed);
    }
    Finish(ToGrpc(*end_, store_->incarnation()));
    return;
  }
  if (draining_due_ && !writing_) {
    draining_due_ = false;
    event_.Clear();
    event_.set_draining(true);
    writing_ = true;
    StartWrite(&event_);
  }
}

void SessionStream::CloseSession() {
  if (session_.has_value()) store_->CloseSession(*session_);
  session_.reset();
}

}  // namespace kvkeep
