#include "client/grpc/grpc_transport.h"

#include <algorithm>

#include "client/grpc/bulk_calls.h"
#include "client/grpc/get_call.h"
#include "client/grpc/grpc_client.h"
#include "client/grpc/put_call.h"
#include "client/grpc/session_stream.h"
#include "client/grpc/unary_call.h"
#include "client/internal/await.h"
#include "client/transport/check_call.h"
#include "client/transport/split_lease.h"
#include "tiers/base/random.h"
#include "tiers/base/wire_time.h"

namespace kvkeep::client {
namespace {

using Async = v1::KvCache::StubInterface::async_interface;
std::string Pack(Keys keys) {
  static_assert(sizeof(ChunkKey) == ChunkKey::kSize);
  return {reinterpret_cast<const char*>(keys.data()), keys.size() * ChunkKey::kSize};
}

// Sets the fields that all calls about keys share.
template <typename Request>
Request KeysRequest(const GrpcClient::Ready& ready, Keys keys, Parts parts) {
  Request request;
  request.set_session_token(ready.session->id->token);
  request.set_namespace_digest(std::string(ready.digest.view()));
  request.set_keys(Pack(keys));
  request.mutable_parts()->Add(parts.begin(), parts.end());
  return request;
}

// Starts a new session if the daemon no longer knows this one (its half of the stream broke
// unseen), as every call would fail.
void CheckSession(GrpcClient& grpc_client, const SessionId& id, const absl::Status& status,
                  bool of_lease = false) {
  const bool refused = absl::IsFailedPrecondition(status) && !of_lease;  // the lease may be over
  if (refused || IsOfEndedSession(status)) grpc_client.TearDown(id);
}

uint64_t NewRequestId() {
  return RealRandom()->NextU64() | 1;  // not 0
}

v1::LeaseMode ToWire(LeaseMode mode) {
  switch (mode) {
    case LeaseMode::kLeadingRun:
      return v1::LEASE_MODE_LEADING_RUN;
    case LeaseMode::kAllPresent:
      return v1::LEASE_MODE_ALL_PRESENT;
    case LeaseMode::kNone:
      break;
  }
  return v1::LEASE_MODE_NONE;
}

// Releases the lease that a leased lookup without a reply may have left: repeating the lookup with
// the same id returns that lease.
void ReclaimLostLease(const std::shared_ptr<GrpcClient>& grpc_client,
                      const std::shared_ptr<SessionId>& id, const v1::LookupRequest& request) {
  SessionPtr session = grpc_client->FindSession(id);
  if (session == nullptr) return;
  UnaryCall<v1::LookupRequest, v1::LookupResponse>::Start(
      grpc_client, std::move(session), &Async::Lookup, request,
      grpc_client->options().default_deadline,
      [grpc_client, id](absl::Status status, auto&, auto& response) {
        if (!status.ok() || response.lease_id() == 0) return;
        grpc_client->counters.leases_reclaimed.fetch_add(1);
        grpc_client->ReleaseLease(id, response.lease_id(), 0);
      });
}

class GrpcLease final : public LeaseState {
 public:
  GrpcLease(std::shared_ptr<GrpcClient> grpc_client, std::shared_ptr<SessionId> session,
            uint64_t id)
      : grpc_client_(std::move(grpc_client)), session_(std::move(session)), id_(id) {}
  bool alive() const override { return !session_->over; }
  void Shrink(uint32_t keep_keys) override { grpc_client_->ReleaseLease(session_, id_, keep_keys); }
  Path path() const override { return Path::kGrpc; }

  const std::shared_ptr<SessionId>& session() const { return session_; }
  uint64_t id() const { return id_; }

 private:
  const std::shared_ptr<GrpcClient> grpc_client_;
  const std::shared_ptr<SessionId> session_;
  const uint64_t id_;
};

std::chrono::steady_clock::time_point DeadlineOf(const GrpcClient& grpc_client, Deadline deadline) {
  const bool given = deadline.count() > 0;
  return std::chrono::steady_clock::now() +
         (given ? deadline : grpc_client.options().default_deadline);
}

absl::Status OnlyLocal(absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": only on the local path, and this client is not on it"));
}

}  // namespace

GrpcTransport::GrpcTransport(const ClientOptions& options)
    : grpc_client_(std::make_shared<GrpcClient>(options)) {
  if (!options.bulk.empty()) bulk_ = std::make_unique<BulkCalls>(grpc_client_);
  grpc_client_->Start();
}

GrpcTransport::~GrpcTransport() {
  if (bulk_ != nullptr) bulk_->pool().Stop();
  grpc_client_->Shutdown();
}

void GrpcTransport::RunBlocking(absl::FunctionRef<void()> start, Waiting* waiting) {
  {
    const CallerWaits here;
    start();
  }
  waiting->Wait();
}

absl::Status GrpcTransport::WaitFirstAttempt(Deadline timeout) {
  return grpc_client_->keeper().WaitFirstAttempt(timeout);
}

bool GrpcTransport::WaitConnected(Deadline timeout) {
  return grpc_client_->keeper().WaitConnected(timeout);
}

absl::Status GrpcTransport::why_away() const { return grpc_client_->keeper().why_away(); }
ServerLimits GrpcTransport::limits() const { return grpc_client_->keeper().limits(); }
ClientStats GrpcTransport::stats() const { return grpc_client_->GetStats(); }

absl::StatusOr<std::shared_ptr<NamespaceBinding>> GrpcTransport::OpenNamespace(
    const NamespaceSpec& spec, Deadline deadline) {
  return grpc_client_->OpenNamespace(spec, deadline);
}

void GrpcTransport::Release(Lease lease, DoneCallback done) {
  if (lease.keys() == 0) return std::move(done)(absl::OkStatus());
  const bool split = IsSplit(&lease);
  const std::unique_ptr<LeaseState> state = std::move(lease).TakeState();
  if (split) {
    return ReleaseAll(this, std::move(static_cast<SplitLease&>(*state)).TakeLeases(),
                      std::move(done));
  }
  const auto* granted = static_cast<const GrpcLease*>(state.get());
  grpc_client_->ReleaseLease(granted->session(), granted->id(), 0, std::move(done));
}

void GrpcTransport::Acquire(Ns, const NamespaceSpec&, Keys, const AcquireOptions&,
                            Callback<Acquired> done) {
  std::move(done)(OnlyLocal("acquire"));
}

absl::StatusOr<std::shared_ptr<const ArenaMap>> GrpcTransport::Arena() {
  return OnlyLocal("the arena's memory");
}

absl::StatusOr<GpuRegion> GrpcTransport::RegisterGpuMemory(GpuMemory, Deadline) {
  return OnlyLocal("GPU memory");
}

void GrpcTransport::PutFromGpu(Ns, const NamespaceSpec&, std::vector<GpuPutChunk>,
                               const GpuPutOptions&, Callback<PutResult> done) {
  std::move(done)(OnlyLocal("a put from GPU memory"));
}

void GrpcTransport::GetToGpu(Ns, const NamespaceSpec&, std::vector<GpuGetChunk>,
                             const GpuGetOptions&, Callback<GetResult> done) {
  std::move(done)(OnlyLocal("a get to GPU memory"));
}

absl::StatusOr<StagingBuffer> GrpcTransport::AllocateStaging(uint64_t) {
  return OnlyLocal("staging memory");
}

absl::StatusOr<RegisteredMemory> GrpcTransport::RegisterMemory(int, std::span<const std::byte>,
                                                               const RegisterOptions&) {
  return OnlyLocal("registered memory");
}

// ---------------------------------------------------------------- calls

void GrpcTransport::Lookup(Ns ns, const NamespaceSpec& spec, Keys keys,
                           const LookupOptions& options, Callback<LookupResult> done) {
  absl::StatusOr<GrpcClient::Ready> ready = grpc_client_->keeper().Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  const size_t parts = PartCount(spec, options.parts);
  const ServerLimits& limits = ready->session->limits;
  if (NeedsSlices(keys, parts, limits)) {
    return LookupInSlices(LongCallOf(this, ns, spec, keys, parts, limits,
                                     DeadlineOf(*grpc_client_, options.deadline)),
                          options, /*whole=*/true, std::move(done));
  }
  if (absl::Status bad = CheckKeys(keys, parts, limits); !bad.ok()) return std::move(done)(bad);
  auto request = KeysRequest<v1::LookupRequest>(*ready, keys, options.parts);
  const bool leased = options.lease != LeaseMode::kNone;
  request.set_lease_mode(ToWire(options.lease));
  if (leased) request.set_client_request_id(NewRequestId());
  request.set_transient(options.transient);
  request.set_remote_wait_us(WholeMicroseconds(options.remote_wait));
  request.set_recompute_us_per_key(WholeMicroseconds(options.recompute_per_key));
  UnaryCall<v1::LookupRequest, v1::LookupResponse>::Start(
      grpc_client_, ready->session, &Async::Lookup, std::move(request), options.deadline,
      [grpc_client = grpc_client_, id = ready->session->id, count = keys.size(), parts, leased,
       done = std::move(done)](absl::Status status, auto& request, auto& response) mutable {
        if (!status.ok()) {
          CheckSession(*grpc_client, *id, status);
          if (leased && absl::IsDeadlineExceeded(status))
            ReclaimLostLease(grpc_client, id, request);
          return std::move(done)(std::move(status));
        }
        LookupResult result;
        if (response.lease_id() != 0) {  // first, so that a lease that we refuse is released, too
          result.lease =
              Lease(std::make_unique<GrpcLease>(std::move(grpc_client), id, response.lease_id()),
                    std::max(1u, response.leased_keys()), response.leased_bytes());
        }
        result.row_bytes = (parts + 7) / 8;
        result.leading_keys = response.leading_keys();
        result.promotion_us = response.promotion_us();
        result.leased_keys = response.lease_id() == 0 ? 0 : response.leased_keys();
        result.g2_bits = std::move(*response.mutable_g2_parts());
        result.g3_bits = std::move(*response.mutable_g3_parts());
        result.remote_bits = std::move(*response.mutable_remote_parts());
        result.remote_keys = response.remote_keys();
        result.remote_us = response.remote_us();
        result.remote_asked = response.remote_asked();
        if (result.leading_keys > count || result.leased_keys > count ||
            result.remote_keys > count - result.leading_keys) {
          return std::move(done)(
              absl::InternalError("lookup: the daemon answered for more keys "
                                  "than were asked"));
        }
        std::move(done)(std::move(result));
      });
}

void GrpcTransport::Get(Ns ns, const NamespaceSpec& spec, Keys keys, GetOptions options,
                        Callback<GetResult> done) {
  absl::StatusOr<GrpcClient::Ready> ready = grpc_client_->keeper().Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  const size_t parts = PartCount(spec, options.parts);
  const ServerLimits& limits = ready->session->limits;
  const absl::StatusOr<bool> is_long = GetNeedsSlices(keys, parts, options, limits);
  if (!is_long.ok()) return std::move(done)(is_long.status());
  const auto deadline = DeadlineOf(*grpc_client_, options.deadline);
  if (*is_long) {
    LongCall call = LongCallOf(this, ns, spec, keys, parts, limits, deadline);
    return GetInSlices(std::move(call), std::move(options), std::move(done));
  }
  auto request = KeysRequest<v1::GetRequest>(*ready, keys, options.parts);
  const bool leased = options.lease != nullptr;
  if (leased) {
    // A lease of an old session may have the number of another lease in the new session.
    const auto* lease = static_cast<const GrpcLease*>(options.lease->state());
    if (!options.lease->alive() || lease->session() != ready->session->id) {
      return std::move(done)(LeaseIsDead());
    }
    request.set_lease_id(lease->id());
    request.set_first_key(options.first_key);
  }
  request.set_first_piece(options.first_piece);
  request.set_pieces(options.pieces);
  request.set_metadata(options.metadata);
  request.set_transient(options.transient);
  request.set_remote_wait_us(WholeMicroseconds(RemoteWaitOf(options, deadline)));
  auto checked = [grpc_client = grpc_client_, id = ready->session->id, leased,
                  done = std::move(done)](absl::StatusOr<GetResult> result) mutable {
    CheckSession(*grpc_client, *id, result.status(), leased);
    std::move(done)(std::move(result));
  };
  if (bulk_ != nullptr) {
    return bulk_->Get(ready->session, std::move(request), parts, std::move(options), deadline,
                      std::move(checked));
  }
  GetCall::Start(grpc_client_, ready->session, request, parts, std::move(options),
                 std::move(checked));
}

void GrpcTransport::Put(Ns ns, const NamespaceSpec& spec, std::vector<PutChunk> chunks,
                        const PutOptions& options, Callback<PutResult> done) {
  absl::StatusOr<GrpcClient::Ready> ready = grpc_client_->keeper().Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  auto checked = [grpc_client = grpc_client_, id = ready->session->id,
                  done = std::move(done)](absl::StatusOr<PutResult> result) mutable {
    CheckSession(*grpc_client, *id, result.status());
    std::move(done)(std::move(result));
  };
  if (bulk_ != nullptr) {
    return bulk_->Put(*std::move(ready), spec, std::move(chunks), options,
                      DeadlineOf(*grpc_client_, options.deadline), std::move(checked));
  }
  PutCall::Start(grpc_client_, *std::move(ready), spec, std::move(chunks), options,
                 std::move(checked));
}

namespace {

// Touch, Prefetch and Delete: keys in, counts out.
template <typename Request, typename Response, typename T, typename Convert>
void KeysCall(const std::shared_ptr<GrpcClient>& grpc_client, Transport::Ns ns,
              typename UnaryCall<Request, Response>::Method method, Keys keys, Parts parts,
              Deadline deadline, Callback<T> done, Convert convert) {
  const absl::StatusOr<GrpcClient::Ready> ready = grpc_client->keeper().Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  const ServerLimits& limits = ready->session->limits;
  const size_t part_count = PartCount(static_cast<DeclaredNamespace&>(*ns).spec(), parts);
  if (NeedsSlices(keys, part_count, limits)) {
    return SumInSlices<T>(
        {.keys = keys,
         .parts = part_count,
         .slice = KeysInRequest(part_count, limits),
         .deadline = DeadlineOf(*grpc_client, deadline)},
        [=](Keys some, Deadline left, Callback<T> sum) {
          KeysCall<Request, Response>(grpc_client, ns, method, some, parts, left, std::move(sum),
                                      convert);
        },
        std::move(done));
  }
  if (absl::Status bad = CheckKeys(keys, part_count, limits); !bad.ok()) {
    return std::move(done)(bad);
  }
  UnaryCall<Request, Response>::Start(
      grpc_client, ready->session, method, KeysRequest<Request>(*ready, keys, parts), deadline,
      [grpc_client, id = ready->session->id, convert, done = std::move(done)](
          absl::Status status, auto&, auto& response) mutable {
        if (!status.ok()) {
          CheckSession(*grpc_client, *id, status);
          return std::move(done)(std::move(status));
        }
        std::move(done)(convert(response));
      });
}

}  // namespace

void GrpcTransport::Touch(Ns ns, Keys keys, Parts parts, Deadline deadline,
                          Callback<uint64_t> done) {
  KeysCall<v1::TouchRequest, v1::TouchResponse, uint64_t>(
      grpc_client_, ns, &Async::Touch, keys, parts, deadline, std::move(done),
      [](const v1::TouchResponse& response) { return response.touched_chunks(); });
}

void GrpcTransport::Prefetch(Ns ns, Keys keys, Parts parts, Deadline deadline,
                             Callback<PrefetchResult> done) {
  KeysCall<v1::PrefetchRequest, v1::PrefetchResponse, PrefetchResult>(
      grpc_client_, ns, &Async::Prefetch, keys, parts, deadline, std::move(done),
      [](const v1::PrefetchResponse& response) {
        return PrefetchResult{.started_chunks = response.started_chunks(),
                              .ready_chunks = response.ready_chunks()};
      });
}

void GrpcTransport::Delete(Ns ns, Keys keys, Parts parts, Deadline deadline,
                           Callback<uint64_t> done) {
  KeysCall<v1::DeleteRequest, v1::DeleteResponse, uint64_t>(
      grpc_client_, ns, &Async::Delete, keys, parts, deadline, std::move(done),
      [](const v1::DeleteResponse& response) { return response.deleted_chunks(); });
}

void GrpcTransport::GetServerInfo(Deadline deadline, Callback<ServerInfo> done) {
  absl::StatusOr<SessionPtr> session = grpc_client_->keeper().Current();
  if (!session.ok()) return std::move(done)(session.status());
  UnaryCall<v1::GetServerInfoRequest, v1::GetServerInfoResponse>::Start(
      grpc_client_, *session, &Async::GetServerInfo, {}, deadline,
      [done = std::move(done)](absl::Status status, auto&, auto& response) mutable {
        if (!status.ok()) return std::move(done)(std::move(status));
        std::move(done)(FromWire(response));
      });
}

}  // namespace kvkeep::client
