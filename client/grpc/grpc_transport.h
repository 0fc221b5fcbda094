// GrpcTransport: the way to the daemon over gRPC, on its Unix socket or TCP. Internal.
//
// A thin layer: GrpcClient has the session, the namespaces and the calls in flight; each payload
// call has its own file (get_call.h, put_call.h). Making one starts gRPC in the process.
#pragma once

#include <memory>
#include <vector>

#include "client/transport/split_calls.h"
#include "client/transport/transport.h"
#include "client/values/options.h"

namespace kvkeep::client {

class BulkCalls;
class GrpcClient;

class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(const ClientOptions& options);
  ~GrpcTransport() override;

  absl::Status WaitFirstAttempt(Deadline timeout) override;
  bool WaitConnected(Deadline timeout) override;
  absl::Status why_away() const override;
  ServerLimits limits() const override;
  ClientStats stats() const override;
  void RunBlocking(absl::FunctionRef<void()> start, Waiting* waiting) override;

  absl::StatusOr<std::shared_ptr<NamespaceBinding>> OpenNamespace(const NamespaceSpec& spec,
                                                                  Deadline deadline) override;
  void Lookup(Ns ns, const NamespaceSpec& spec, Keys keys, const LookupOptions& options,
              Callback<LookupResult> done) override;
  void Get(Ns ns, const NamespaceSpec& spec, Keys keys, GetOptions options,
           Callback<GetResult> done) override;
  void Put(Ns ns, const NamespaceSpec& spec, std::vector<PutChunk> chunks,
           const PutOptions& options, Callback<PutResult> done) override;
  void Touch(Ns ns, Keys keys, Parts parts, Deadline deadline, Callback<uint64_t> done) override;
  void Prefetch(Ns ns, Keys keys, Parts parts, Deadline deadline,
                Callback<PrefetchResult> done) override;
  void Delete(Ns ns, Keys keys, Parts parts, Deadline deadline, Callback<uint64_t> done) override;
  void Release(Lease lease, DoneCallback done) override;
  void GetServerInfo(Deadline deadline, Callback<ServerInfo> done) override;

  void Acquire(Ns ns, const NamespaceSpec& spec, Keys keys, const AcquireOptions& options,
               Callback<Acquired> done) override;
  absl::StatusOr<std::shared_ptr<const ArenaMap>> Arena() override;
  absl::StatusOr<GpuRegion> RegisterGpuMemory(GpuMemory memory, Deadline deadline) override;
  void PutFromGpu(Ns ns, const NamespaceSpec& spec, std::vector<GpuPutChunk> chunks,
                  const GpuPutOptions& options, Callback<PutResult> done) override;
  void GetToGpu(Ns ns, const NamespaceSpec& spec, std::vector<GpuGetChunk> chunks,
                const GpuGetOptions& options, Callback<GetResult> done) override;
  GpuStats gpu_stats() const override { return {}; }
  absl::StatusOr<StagingBuffer> AllocateStaging(uint64_t bytes) override;
  absl::StatusOr<RegisteredMemory> RegisterMemory(int fd, std::span<const std::byte> mapping,
                                                  const RegisterOptions& options) override;

 private:
  const std::shared_ptr<GrpcClient> grpc_client_;
  std::unique_ptr<BulkCalls> bulk_;  // null: gets and puts go by gRPC
};

}  // namespace kvkeep::client
