// PutCall: one stream of puts, from the first frame to the callback. Internal to the library.
//
// The callback runs only after gRPC has released the last slice of the caller's memory, which is
// nearly always before the call ends; otherwise SlicesAreLate has the connection closed.
#pragma once

#include "client/grpc/grpc_client.h"
#include "client/grpc/put_answers.h"
#include "client/grpc/put_frames.h"

namespace kvkeep::client {

class PutCall final : public InFlightCall,
                      private SliceGuard,
                      private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  static void Start(std::shared_ptr<GrpcClient> grpc_client, GrpcClient::Ready ready,
                    const NamespaceSpec& spec, std::vector<PutChunk> chunks,
                    const PutOptions& options, Callback<PutResult> done);

  PutCall(std::shared_ptr<GrpcClient> grpc_client, GrpcClient::Ready ready,
          const NamespaceSpec& spec, std::vector<PutChunk> chunks, const PutOptions& options,
          Callback<PutResult> done);

 private:
  void WriteNext();
  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void Made() override { references_.fetch_add(1, std::memory_order_relaxed); }
  void Gone() override;
  void Complete();

  const std::vector<PutChunk> chunks_;
  PutAnswers answers_;          // reading side
  PutFrames frames_;            // writing side
  grpc::ByteBuffer out_;
  grpc::ByteBuffer in_;
  Callback<PutResult> done_;
  absl::Status broken_;  // the daemon broke the protocol
  absl::Status status_;  // of the call, from OnDone on
  // Slices of the caller's memory that gRPC holds, and one for the call itself until OnDone.
  std::atomic<uint64_t> references_{1};
  std::atomic<bool> late_{false};
};

}  // namespace kvkeep::client
