// BulkCalls: gets and puts of a GrpcClient's sessions by the daemon's bulk door. Internal.
//
// While nobody answers at the door, calls go by gRPC, which is counted. A call that began at the
// door ends there.
//
// Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "client/bulk/pool.h"
#include "client/grpc/grpc_client.h"

namespace kvkeep::client {

class BulkCalls {
 public:
  explicit BulkCalls(std::shared_ptr<GrpcClient> grpc_client);

  // As GetCall::Start and PutCall::Start, with the call's deadline.
  void Get(SessionPtr session, v1::GetRequest request, size_t parts, GetOptions options,
           BulkStream::Time deadline, Callback<GetResult> done);
  void Put(GrpcClient::Ready ready, const NamespaceSpec& spec, std::vector<PutChunk> chunks,
           const PutOptions& options, BulkStream::Time deadline, Callback<PutResult> done);

  BulkPool& pool() { return pool_; }

 private:
  const std::shared_ptr<GrpcClient> grpc_client_;
  BulkPool pool_;
};

}  // namespace kvkeep::client
