#include "client/grpc/get_call.h"

#include "client/grpc/wire.h"

namespace kvkeep::client {
namespace {

// On the wire a server-streaming method is a bidirectional one whose client writes once, which the
// generic stub can call.
constexpr char kGetMethod[] = "/kvkeep.v1.KvCache/Get";

}  // namespace

GetCall::GetCall(std::shared_ptr<GrpcClient> grpc_client, SessionPtr session, size_t keys,
                 size_t parts, GetOptions options, Callback<GetResult> done)
    : InFlightCall(std::move(grpc_client), std::move(session), options.deadline),
      assembler_(std::move(options), keys, parts),
      done_(std::move(done)) {}

void GetCall::Start(std::shared_ptr<GrpcClient> grpc_client, SessionPtr session,
                    const v1::GetRequest& request, size_t parts, GetOptions options,
                    Callback<GetResult> done) {
  const size_t keys = request.keys().size() / ChunkKey::kSize;
  auto call = std::make_shared<GetCall>(grpc_client, std::move(session), keys, parts,
                                        std::move(options), std::move(done));
  if (absl::Status begun = grpc_client->Begin(call); !begun.ok()) {
    std::move(call->done_)(begun);
    return;
  }
  call->out_ = wire::Serialize(request);
  grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* reactor = call.get();
  const SessionPtr connection = call->session_;  // the call may be over before StartCall returns
  call->context()->set_initial_metadata_corked(true);  // goes with the request
  connection->NextRaw().PrepareBidiStreamingCall(call->context(), kGetMethod, {}, reactor);
  reactor->StartWriteLast(&call->out_, {});
  reactor->StartRead(&call->in_);
  reactor->StartCall();
}

void GetCall::OnReadDone(bool ok) {
  if (!ok) return;  // OnDone follows
  if (broken_.ok()) {
    absl::StatusOr<wire::GetFrameView> frame = wire::ParseGetFrame(in_);
    broken_ =
        frame.ok() ? assembler_.Accept(*frame) : absl::InternalError(frame.status().message());
    if (!broken_.ok()) context()->TryCancel();
  }
  in_.Clear();  // early, so that gRPC reuses the memory for arriving data
  StartRead(&in_);
}

void GetCall::OnDone(const grpc::Status& grpc_status) {
  absl::Status status = broken_.ok() ? FromGrpc(grpc_status) : broken_;
  Disconnect();
  grpc_client_->counters.bytes_received.fetch_add(assembler_.delivered_bytes());
  grpc_client_->counters.corrupt_chunks.fetch_add(assembler_.corrupt_chunks());
  grpc_client_->End(this, [this, status = std::move(status)]() mutable {
    std::move(done_)(ResultOf(assembler_, std::move(status)));
  });
}

absl::StatusOr<GetResult> ResultOf(ChunkAssembler& assembler, absl::Status end) {
  const size_t finished = assembler.finished_chunks();
  GetResult result{.chunks = assembler.TakeOutcomes(), .error = std::move(end)};
  if (result.error.ok() && finished < result.chunks.size()) {
    result.error = absl::InternalError("get: the daemon ended the stream too early");
  }
  if (finished == 0 && !result.error.ok()) return result.error;
  return result;
}

}  // namespace kvkeep::client
