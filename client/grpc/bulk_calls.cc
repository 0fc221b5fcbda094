#include "client/grpc/bulk_calls.h"

#include <utility>

#include "client/bulk/frames.h"
#include "client/grpc/get_call.h"
#include "client/grpc/put_call.h"
#include "client/transport/check_call.h"

namespace kvkeep::client {
namespace {

// Returns an error of a call as callers know it: as one by gRPC (FromGrpc).
absl::Status FromBulk(absl::Status status) {
  return absl::IsFailedPrecondition(status) && IsOfEndedSession(status)
             ? absl::UnavailableError(status.message())
             : std::move(status);
}

// Makes a call that got no connection by gRPC, unless the client is going. Returns what BulkPool
// wants to know: there is no connection to use again.
template <typename Done, typename ByGrpc>
bool FallBack(const absl::Status& no_stream, GrpcClient& grpc_client, Done& done, ByGrpc by_grpc) {
  if (absl::IsCancelled(no_stream)) {
    std::move(done)(no_stream);
  } else {
    grpc_client.counters.bulk_fallbacks.fetch_add(1);
    by_grpc();
  }
  return false;
}

// A put by the bulk door.
struct BulkPutCall {
  BulkPutCall(std::vector<PutChunk> all, const NamespaceSpec& spec)
      : chunks(std::move(all)), answers(&chunks, spec) {}

  // Returns the frames to send.
  std::vector<BulkChunk> Frames(const GrpcClient::Ready& ready, const PutOptions& options) const {
    std::vector<BulkChunk> frames;
    for (const uint32_t i : answers.sent()) {
      v1::PutFrame frame;
      if (frames.empty()) {
        frame.mutable_stream()->set_session_token(ready.session->id->token);
        frame.mutable_stream()->set_namespace_digest(std::string(ready.digest.view()));
      }
      *frame.mutable_chunk() = ChunkHeaderOf(chunks[i], options);
      frames.push_back({.message = frame.SerializeAsString(),
                        .runs = chunks[i].runs,
                        .payload_bytes = PayloadBytes(chunks[i])});
    }
    return frames;
  }

  std::vector<PutChunk> chunks;
  PutAnswers answers;
};

}  // namespace

BulkCalls::BulkCalls(std::shared_ptr<GrpcClient> grpc_client)
    : grpc_client_(std::move(grpc_client)),
      pool_({.endpoint = grpc_client_->options().bulk,
             .security = grpc_client_->options().security,
             .connections = grpc_client_->options().channels,
             .backoff_min = grpc_client_->options().backoff_min,
             .backoff_max = grpc_client_->options().backoff_max}) {}

void BulkCalls::Get(SessionPtr session, v1::GetRequest request, size_t parts, GetOptions options,
                    BulkStream::Time deadline, Callback<GetResult> done) {
  pool_.Make(deadline, [grpc_client = grpc_client_, session = std::move(session),
                        request = std::move(request), parts, options = std::move(options), deadline,
                        done = std::move(done)](absl::StatusOr<BulkStream*> stream) mutable {
    if (!stream.ok()) {
      return FallBack(stream.status(), *grpc_client, done, [&] {
        GetCall::Start(std::move(grpc_client), std::move(session), request, parts,
                       std::move(options), std::move(done));
      });
    }
    ChunkAssembler assembler(std::move(options), request.keys().size() / ChunkKey::kSize, parts);
    BulkEnding ending = BulkGet(**stream, request.SerializeAsString(), assembler, deadline);
    grpc_client->counters.bytes_received.fetch_add(assembler.delivered_bytes());
    grpc_client->counters.corrupt_chunks.fetch_add(assembler.corrupt_chunks());
    std::move(done)(ResultOf(assembler, FromBulk(std::move(ending.status))));
    return ending.reusable;
  });
}

void BulkCalls::Put(GrpcClient::Ready ready, const NamespaceSpec& spec,
                    std::vector<PutChunk> chunks, const PutOptions& options,
                    BulkStream::Time deadline, Callback<PutResult> done) {
  pool_.Make(deadline, [grpc_client = grpc_client_, ready = std::move(ready), spec,
                        chunks = std::move(chunks), options, deadline,
                        done = std::move(done)](absl::StatusOr<BulkStream*> stream) mutable {
    if (!stream.ok()) {
      return FallBack(stream.status(), *grpc_client, done, [&] {
        PutCall::Start(std::move(grpc_client), std::move(ready), spec, std::move(chunks), options,
                       std::move(done));
      });
    }
    BulkPutCall call(std::move(chunks), spec);
    const std::vector<BulkChunk> frames = call.Frames(ready, options);
    BulkEnding ending{.status = absl::OkStatus(), .reusable = true};
    if (!frames.empty()) {
      ending = BulkPut(
          **stream, frames,
          [&](const std::string& result) -> absl::Status {
            v1::PutResult answer;
            if (!answer.ParseFromString(result)) {
              return absl::InternalError("put: the daemon's answer is no result");
            }
            const absl::StatusOr<uint64_t> kept = call.answers.Take(answer);
            if (kept.ok()) grpc_client->counters.bytes_sent.fetch_add(*kept);
            return kept.status();
          },
          deadline);
    }
    std::move(done)(call.answers.Finish(FromBulk(std::move(ending.status))));
    return ending.reusable;
  });
}

}  // namespace kvkeep::client
