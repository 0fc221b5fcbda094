#include "client/grpc/put_call.h"

#include "client/grpc/wire.h"

namespace kvkeep::client {
namespace {

constexpr char kPutMethod[] = "/kvkeep.v1.KvCache/Put";

}  // namespace

PutCall::PutCall(std::shared_ptr<GrpcClient> grpc_client, GrpcClient::Ready ready,
                 const NamespaceSpec& spec, std::vector<PutChunk> chunks, const PutOptions& options,
                 Callback<PutResult> done)
    : InFlightCall(std::move(grpc_client), ready.session, options.deadline),
      chunks_(std::move(chunks)),
      answers_(&chunks_, spec),
      frames_({.session_token = ready.session->id->token,
               .namespace_digest = std::string(ready.digest.view()),
               .max_frame_bytes = ready.session->limits.max_frame_bytes},
              options, &chunks_, answers_.sent(), this),
      done_(std::move(done)) {}

void PutCall::Start(std::shared_ptr<GrpcClient> grpc_client, GrpcClient::Ready ready,
                    const NamespaceSpec& spec, std::vector<PutChunk> chunks,
                    const PutOptions& options, Callback<PutResult> done) {
  auto call = std::make_shared<PutCall>(grpc_client, std::move(ready), spec, std::move(chunks),
                                        options, std::move(done));
  if (call->frames_.done()) {  // there is nothing to send
    std::move(call->done_)(call->answers_.Finish(absl::OkStatus()));
    return;
  }
  if (absl::Status begun = grpc_client->Begin(call); !begun.ok()) {
    std::move(call->done_)(begun);
    return;
  }
  grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* reactor = call.get();
  const SessionPtr connection = call->session_;  // the call may be over before StartCall returns
  call->context()->set_initial_metadata_corked(true);  // goes with the first frame
  connection->NextRaw().PrepareBidiStreamingCall(call->context(), kPutMethod, {}, reactor);
  call->WriteNext();
  reactor->StartRead(&call->in_);
  reactor->StartCall();
}

void PutCall::WriteNext() {
  out_ = frames_.Next();
  if (frames_.done()) {
    StartWriteLast(&out_, {});
  } else {
    StartWrite(&out_);
  }
}

void PutCall::OnWriteDone(bool ok) {
  out_.Clear();
  if (ok && !frames_.done()) WriteNext();
}

void PutCall::OnReadDone(bool ok) {
  if (!ok) return;  // OnDone follows
  v1::PutResult answer;
  const bool readable = wire::Parse(in_, &answer);
  const absl::StatusOr<uint64_t> kept =
      readable ? answers_.Take(answer)
               : absl::InternalError("put: the daemon's answer is no result");
  if (kept.ok()) {
    grpc_client_->counters.bytes_sent.fetch_add(*kept);
  } else {
    broken_ = kept.status();
    context()->TryCancel();
  }
  in_.Clear();
  StartRead(&in_);
}

void PutCall::OnDone(const grpc::Status& grpc_status) {
  status_ = broken_.ok() ? FromGrpc(grpc_status) : broken_;
  out_.Clear();
  Disconnect();
  // From here on Gone may complete the call on another thread unless the call holds its own
  // reference, so SlicesAreLate comes before that is given up.
  if (references_.load() > 1) {
    late_ = true;
    grpc_client_->SlicesAreLate(*session_id_);
  }
  if (references_.fetch_sub(1) == 1) {
    if (late_) session_id_->late_puts.fetch_sub(1);
    grpc_client_->End(this, [this] { Complete(); });
  }
}

void PutCall::Gone() {
  if (references_.fetch_sub(1) != 1) return;
  if (late_) session_id_->late_puts.fetch_sub(1);
  grpc_client_->EndLater(this, [this] { Complete(); });
}

void PutCall::Complete() { std::move(done_)(answers_.Finish(std::move(status_))); }

}  // namespace kvkeep::client
