// Client: an engine's way to the kvkeep daemon of its node.
//
//   ClientOptions options{.endpoint = "unix:///run/kvkeep/kvkeep.sock", .client_name = "engine 0"};
//   auto client = Client::Connect(options).value();
//   Namespace ns = client->OpenNamespace({.model = "m", .tokens_per_chunk = 256}).value();
//   auto found = client->Lookup(ns, keys, {.lease = LeaseMode::kLeadingRun});
//   if (found.ok()) {
//     client->Get(ns, keys.subspan(0, found->leased_keys), {.lease = &found->lease, ...});
//   }
//
// Guarantees:
// * Never wrong bytes: a chunk is kHit only when its bytes arrived whole and, unless
//   GetOptions::verify is false, matched the daemon's checksums. Every other status is a kind of
//   miss.
// * Never a hang: every call ends by its deadline. While the daemon is known to be away, calls
//   fail at once with UNAVAILABLE; treat that as a miss.
// * No call has too many keys: a call with more keys than the daemon takes in a request
//   (limits.keys_per_call) becomes several requests, from the head on, one after the other. It
//   still has one answer, one lease and one deadline.
// * After the daemon comes back the client finds it (by default with a backoff from 50 ms to
//   2 s), opens a new session and declares its namespaces anew. Leases of the old session are dead:
//   a get under one is FAILED_PRECONDITION, never bytes of something else.
//
// Two paths lead to the daemon. The local path (kLocal) is shared memory; it exists on the daemon's
// host if the daemon allows it. On it a get needs no copy (Acquire), and a put needs one, from
// staging or registered memory (otherwise two); lookups, leases and the rest are small messages.
// The other path is gRPC. PathChoice::kAuto tries the local path first and starts gRPC only when
// that is absent or refused. Afterwards each call uses the local path if it is connected, otherwise
// gRPC. Client::path says which path, and why. GPU memory: GpuPath (gpu_path.h).
//
// Threads: all methods of Client are thread-safe; one thread at a time uses a Lease. A callback
// runs exactly once: on a thread of the client or of gRPC; on the local path also on a thread of
// yours that waits in a blocking call; or, when the call ends at once, inside the call. It must
// not block, not destroy the client, and not call a blocking form (one without callback).
//
// Ownership: memory in spans is the caller's and is used until the callback. Namespaces and leases
// may outlive the client; they are useless then. ~Client cancels what is in flight, waits for the
// callbacks, and ends the session, which gives back all leases.
//
// Errors of calls, as absl::Status: UNAVAILABLE (away, recovering, draining), DEADLINE_EXCEEDED,
// RESOURCE_EXHAUSTED (the message names the limit), UNAUTHENTICATED (over TCP: the daemon does not
// know the client), PERMISSION_DENIED (it knows the client, which may not do this),
// FAILED_PRECONDITION (dead lease), INVALID_ARGUMENT (names the field), CANCELLED (the client is
// being destroyed), INTERNAL.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "client/values/calls.h"
#include "client/values/lease.h"
#include "client/values/options.h"
#include "client/values/shared_memory.h"
#include "client/values/types.h"

namespace kvkeep::client {

class Router;
struct NamespaceState;

// A declared namespace. Cheap to copy. Invalid when default constructed.
class Namespace {
 public:
  Namespace() = default;
  bool valid() const { return state_ != nullptr; }
  const NamespaceSpec& spec() const;
  // Returns the digest that the daemon computed; zero while it has not been reached yet.
  NamespaceDigest digest() const;

 private:
  friend class Client;
  friend class GpuPath;
  explicit Namespace(std::shared_ptr<NamespaceState> state) : state_(std::move(state)) {}
  std::shared_ptr<NamespaceState> state_;
};

class Client {
 public:
  template <typename T>
  using Callback = client::Callback<T>;
  using DoneCallback = client::DoneCallback;
  using Stats = ClientStats;

  // Waits for the first session at most the default deadline, and less when the daemon is plainly
  // away. A daemon that is away is not an error. INVALID_ARGUMENT: an option is bad, or a file that
  // options.security names.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(ClientOptions options);
  ~Client();

  // Declares a namespace, now and after every reconnect. While the daemon is away this succeeds
  // too: the namespace is declared when the daemon is back. The same spec gives the same namespace.
  absl::StatusOr<Namespace> OpenNamespace(const NamespaceSpec& spec, Deadline deadline = {});

  // Returns whether a session is open. Only a hint: the next call may still find the daemon away.
  bool connected() const;
  // Waits until a session is open; false when `timeout` passed first.
  bool WaitConnected(Deadline timeout) const;
  ServerLimits limits() const;  // of the last session
  PathInfo path() const;
  Stats GetStats() const;

  // Says which chunks are there, and leases them if asked. Moves no payload but into DRAM.
  void Lookup(const Namespace& ns, Keys keys, const LookupOptions& options,
              Callback<LookupResult> done);
  // Fills the destinations. A chunk that is not there is kMiss, never an error.
  void Get(const Namespace& ns, Keys keys, GetOptions options, Callback<GetResult> done);
  // Leases chunks and makes them readable in the daemon's memory. Local path only, else
  // FAILED_PRECONDITION. See shared_memory.h.
  void Acquire(const Namespace& ns, Keys keys, const AcquireOptions& options,
               Callback<Acquired> done);
  // Calls may run in parallel. Two puts of one chunk are safe: one stores it, one is kPresent.
  // Over gRPC one call is one stream.
  void Put(const Namespace& ns, std::vector<PutChunk> chunks, const PutOptions& options,
           Callback<PutResult> done);
  // "Still hot in HBM": makes the chunks recently used. Returns how many were there.
  void Touch(const Namespace& ns, Keys keys, Parts parts, Deadline deadline,
             Callback<uint64_t> done);
  // Begins to bring chunks into DRAM, and waits for none of them.
  void Prefetch(const Namespace& ns, Keys keys, Parts parts, Deadline deadline,
                Callback<PrefetchResult> done);
  // Returns how many chunks were deleted.
  void Delete(const Namespace& ns, Keys keys, Parts parts, Deadline deadline,
              Callback<uint64_t> done);
  // Like ~Lease, but reports when the daemon has the lease back.
  void Release(Lease lease, DoneCallback done);
  void GetServerInfo(Deadline deadline, Callback<ServerInfo> done);

  // The blocking forms.
  absl::StatusOr<LookupResult> Lookup(const Namespace& ns, Keys keys,
                                      const LookupOptions& options = {});
  absl::StatusOr<GetResult> Get(const Namespace& ns, Keys keys, GetOptions options);
  absl::StatusOr<Acquired> Acquire(const Namespace& ns, Keys keys,
                                   const AcquireOptions& options = {});
  absl::StatusOr<PutResult> Put(const Namespace& ns, std::vector<PutChunk> chunks,
                                const PutOptions& options = {});
  absl::StatusOr<uint64_t> Touch(const Namespace& ns, Keys keys, Parts parts = {});
  absl::StatusOr<PrefetchResult> Prefetch(const Namespace& ns, Keys keys, Parts parts = {});
  absl::StatusOr<uint64_t> Delete(const Namespace& ns, Keys keys, Parts parts = {});
  absl::Status Release(Lease lease);
  absl::StatusOr<ServerInfo> GetServerInfo();

  // Returns memory that the daemon reads puts from, without a copy by this process. Local path
  // only, else FAILED_PRECONDITION. RESOURCE_EXHAUSTED: no room now, or over the daemon's limit.
  absl::StatusOr<StagingBuffer> AllocateStaging(uint64_t bytes);
  // `fd` is a memfd or a file of shared memory, mapped from its beginning at `mapping`, which stays
  // mapped while the registration lives. The descriptor stays the caller's. This succeeds while the
  // daemon is away, too: the memory is registered when the daemon is back, and puts from it are
  // copied until then.
  absl::StatusOr<RegisteredMemory> RegisterMemory(int fd, std::span<const std::byte> mapping,
                                                  const RegisterOptions& options = {});

 private:
  friend class GpuPath;
  explicit Client(std::unique_ptr<Router> router);
  const std::unique_ptr<Router> router_;
};

}  // namespace kvkeep::client
