// GetCall: one get, from request to callback. Internal to the library.
#pragma once

#include "client/grpc/grpc_client.h"
#include "client/transport/chunk_assembler.h"

namespace kvkeep::client {

// Returns a get's result, or its error if no chunk has an outcome. `end`: of the call.
absl::StatusOr<GetResult> ResultOf(ChunkAssembler& assembler, absl::Status end);

class GetCall final : public InFlightCall,
                      private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  static void Start(std::shared_ptr<GrpcClient> grpc_client, SessionPtr session,
                    const v1::GetRequest& request, size_t parts, GetOptions options,
                    Callback<GetResult> done);

  GetCall(std::shared_ptr<GrpcClient> grpc_client, SessionPtr session, size_t keys, size_t parts,
          GetOptions options, Callback<GetResult> done);

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  ChunkAssembler assembler_;
  Callback<GetResult> done_;
  grpc::ByteBuffer out_;
  grpc::ByteBuffer in_;
  absl::Status broken_;  // the daemon broke the protocol
};

}  // namespace kvkeep::client
