#include "client/grpc/put_call.h"

#include <algorithm>

#include "client/grpc/wire.h"
#include "client/transport/check_call.h"

namespace kvkeep::client {
namespace {

constexpr char kPutMethod[] = "/kvkeep.v1.KvCache/Put";

PutStatus FromWire(v1::PutStatus status) {
  switch (status) {
    case v1::PUT_STATUS_STORED:
      return PutStatus::kStored;
    case v1::PUT_STATUS_PRESENT:
      return PutStatus::kPresent;
    default:
      return PutStatus::kRejected;
  }
}

}  // namespace

PutCall::PutCall(std::shared_ptr<GrpcClient> grpc_client, GrpcClient::Ready ready,
                 const NamespaceSpec& spec, std::vector<PutChunk> chunks, const PutOptions& options,
                 Callback<PutResult> done)
    : InFlightCall(std::move(grpc_client), ready.session, options.deadline),
      chunks_(std::move(chunks)),
      result_{.chunks = std::vector<PutOutcome>(chunks_.size())},
      sent_(ChooseChunks(spec)),
      frames_({.session_token = ready.session->id->token,
               .namespace_digest = std::string(ready.digest.view()),
               .max_frame_bytes = ready.session->limits.max_frame_bytes},
              options, &chunks_, sent_, this),
      done_(std::move(done)) {}

std::vector<uint32_t> PutCall::ChooseChunks(const NamespaceSpec& spec) {
  std::vector<uint32_t> send;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    std::string reason = WhyRejected(chunks_[i], spec);
    if (reason.empty()) {
      send.push_back(i);
    } else {
      result_.chunks[i] = {.status = PutStatus::kRejected, .message = std::move(reason)};
    }
  }
  return send;
}

void PutCall::Start(std::shared_ptr<GrpcClient> grpc_client, GrpcClient::Ready ready,
                    const NamespaceSpec& spec, std::vector<PutChunk> chunks,
                    const PutOptions& options, Callback<PutResult> done) {
  auto call = std::make_shared<PutCall>(grpc_client, std::move(ready), spec, std::move(chunks),
                                        options, std::move(done));
  if (call->frames_.done()) {  // there is nothing to send
    std::move(call->done_)(std::move(call->result_));
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
  if (!wire::Parse(in_, &answer) || answer.ordinal() >= sent_.size()) {
    broken_ = absl::InternalError(
        absl::StrCat("put: the daemon answered chunk ", answer.ordinal(), " of ", sent_.size()));
    context()->TryCancel();
  } else {
    const uint32_t chunk = sent_[answer.ordinal()];
    PutOutcome& outcome = result_.chunks[chunk];
    outcome.status = FromWire(answer.status());
    if (outcome.status == PutStatus::kRejected) {
      outcome.message =
          absl::StrCat(v1::RejectReason_Name(answer.reason()), ": ", answer.message());
    } else {
      grpc_client_->counters.bytes_sent.fetch_add(PayloadBytes(chunks_[chunk]));
    }
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

void PutCall::Complete() {
  const size_t unfinished =
      std::count_if(result_.chunks.begin(), result_.chunks.end(),
                    [](const PutOutcome& o) { return o.status == PutStatus::kUnfinished; });
  result_.error = std::move(status_);
  if (result_.error.ok() && unfinished > 0) {
    result_.error = absl::InternalError("put: the daemon ended the stream without all results");
  }
  if (unfinished == result_.chunks.size() && !result_.error.ok()) {
    std::move(done_)(std::move(result_.error));
  } else {
    std::move(done_)(std::move(result_));
  }
}

}  // namespace kvkeep::client
