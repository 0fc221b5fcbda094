// Transport: one way to the daemon. There are two: gRPC (grpc_transport.h), and shared memory with
// a SEQPACKET socket (local/local_transport.h). Client picks one for every call.
//
// Methods have the contracts of Client's methods with the same name. Thread-safe.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

#include <memory>
#include <vector>

#include "client/gpu/gpu_memory.h"
#include "client/gpu/gpu_region.h"
#include "client/gpu/gpu_values.h"
#include "client/internal/await.h"
#include "client/values/calls.h"
#include "client/values/shared_memory.h"
#include "client/values/types.h"

namespace kvkeep::client {

struct ArenaMap;

// A namespace as one transport knows it: declared in its current session, or about to be.
class NamespaceBinding {
 public:
  virtual ~NamespaceBinding() = default;
  virtual NamespaceDigest digest() const = 0;  // zero while it was not declared yet
};

// Returns the error of calls while there is no session at `where`, for `why`: UNAVAILABLE, or
// PERMISSION_DENIED if the daemon refuses the client.
inline absl::Status AwayError(absl::string_view where, const absl::Status& why) {
  if (absl::IsPermissionDenied(why)) {
    return absl::PermissionDeniedError(
        absl::StrCat("kvkeep daemon at ", where, ": ", why.message()));
  }
  return absl::UnavailableError(
      absl::StrCat("kvkeep daemon at ", where, " is away: ", why.ToString()));
}

class Transport {
 public:
  virtual ~Transport() = default;  // as ~Client

  // Waits for the outcome of the first attempt to open a session, at most `timeout`. Not OK: why
  // there is no session yet. PERMISSION_DENIED is final.
  virtual absl::Status WaitFirstAttempt(Deadline timeout) = 0;
  virtual bool WaitConnected(Deadline timeout) = 0;
  virtual absl::Status why_away() const = 0;  // OK when connected
  virtual ServerLimits limits() const = 0;
  virtual ClientStats stats() const = 0;

  // Runs `start`, which makes one call whose callback completes `waiting`, on a thread that is
  // going to wait for it. A transport may let that thread do the work of its own, until it is done.
  virtual void RunBlocking(absl::FunctionRef<void()> start, Waiting* waiting) {
    start();
    waiting->Wait();
  }

  virtual absl::StatusOr<std::shared_ptr<NamespaceBinding>> OpenNamespace(const NamespaceSpec& spec,
                                                                          Deadline deadline) = 0;

  using Ns = const std::shared_ptr<NamespaceBinding>&;
  virtual void Lookup(Ns ns, const NamespaceSpec& spec, Keys keys, const LookupOptions& options,
                      Callback<LookupResult> done) = 0;
  virtual void Get(Ns ns, const NamespaceSpec& spec, Keys keys, GetOptions options,
                   Callback<GetResult> done) = 0;
  virtual void Put(Ns ns, const NamespaceSpec& spec, std::vector<PutChunk> chunks,
                   const PutOptions& options, Callback<PutResult> done) = 0;
  virtual void Touch(Ns ns, Keys keys, Parts parts, Deadline deadline, Callback<uint64_t> done) = 0;
  virtual void Prefetch(Ns ns, Keys keys, Parts parts, Deadline deadline,
                        Callback<PrefetchResult> done) = 0;
  virtual void Delete(Ns ns, Keys keys, Parts parts, Deadline deadline,
                      Callback<uint64_t> done) = 0;
  virtual void Release(Lease lease, DoneCallback done) = 0;
  virtual void GetServerInfo(Deadline deadline, Callback<ServerInfo> done) = 0;

  // Local path only; FAILED_PRECONDITION elsewhere.
  virtual absl::StatusOr<std::shared_ptr<const ArenaMap>> Arena() = 0;  // the open session's
  virtual void Acquire(Ns ns, const NamespaceSpec& spec, Keys keys, const AcquireOptions& options,
                       Callback<Acquired> done) = 0;
  virtual absl::StatusOr<GpuRegion> RegisterGpuMemory(GpuMemory memory, Deadline deadline) = 0;
  virtual void PutFromGpu(Ns ns, const NamespaceSpec& spec, std::vector<GpuPutChunk> chunks,
                          const GpuPutOptions& options, Callback<PutResult> done) = 0;
  virtual void GetToGpu(Ns ns, const NamespaceSpec& spec, std::vector<GpuGetChunk> chunks,
                        const GpuGetOptions& options, Callback<GetResult> done) = 0;
  virtual GpuStats gpu_stats() const = 0;
  virtual absl::StatusOr<StagingBuffer> AllocateStaging(uint64_t bytes) = 0;
  virtual absl::StatusOr<RegisteredMemory> RegisterMemory(int fd,
                                                          std::span<const std::byte> mapping,
                                                          const RegisterOptions& options) = 0;
};

}  // namespace kvkeep::client
