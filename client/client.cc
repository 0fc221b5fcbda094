#include "client/client.h"

#include "client/core.h"
#include "client/get_call.h"
#include "client/put_call.h"
#include "client/session_stream.h"
#include "client/unary_call.h"
#include "tiers/base/random.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using Async = v1::KvCache::StubInterface::async_interface;
constexpr size_t kMaxUnixPathBytes = 107;  // sockaddr_un::sun_path without its end
constexpr size_t kMaxClientNameBytes = 128;

std::string Pack(Keys keys) {
  static_assert(sizeof(ChunkKey) == ChunkKey::kSize);
  return {reinterpret_cast<const char*>(keys.data()), keys.size() * ChunkKey::kSize};
}

// The fields that all calls about keys share.
template <typename Request>
Request KeysRequest(const Core::Ready& ready, Keys keys, Parts parts) {
  Request request;
  request.set_session_token(ready.session->id->token);
  request.set_namespace_digest(ready.digest);
  request.set_keys(Pack(keys));
  request.mutable_parts()->Add(parts.begin(), parts.end());
  return request;
}

absl::Status CheckKeys(Keys keys, size_t parts, const ServerLimits& limits) {
  if (keys.empty()) return absl::InvalidArgumentError("keys: none given");
  if (limits.max_keys_per_call != 0 && keys.size() * parts > limits.max_keys_per_call) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys: ", keys.size(), " keys x ", parts, " parts, the daemon's limit is ",
                     limits.max_keys_per_call, " a call; split the call"));
  }
  return absl::OkStatus();
}

size_t PartCount(const NamespaceSpec& spec, Parts parts) {
  return parts.empty() ? spec.parts : parts.size();
}

// A session that the daemon does not know any more (its half of the stream broke unseen) would
// fail every call: start a new one.
void CheckSession(Core& core, const SessionId& id, const absl::Status& status) {
  if (absl::IsFailedPrecondition(status)) core.TearDown(id);
}

uint64_t NewRequestId() {
  return RealRandom()->NextU64() | 1;  // not 0
}

absl::Status LeaseIsDead() {
  return absl::FailedPreconditionError(
      "lease: released already, or its session with the daemon is over; look up again");
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

// A leased lookup whose reply was lost may have left a lease behind: repeating it with the same id
// answers with that lease, which is then released.
void ReclaimLostLease(const std::shared_ptr<Core>& core, const std::shared_ptr<SessionId>& id,
                      const v1::LookupRequest& request) {
  SessionPtr session = core->FindSession(id);
  if (session == nullptr) return;
  UnaryCall<v1::LookupRequest, v1::LookupResponse>::Start(
      core, std::move(session), &Async::Lookup, request, core->options().default_deadline,
      [core, id](absl::Status status, auto&, auto& response) {
        if (!status.ok() || response.lease_id() == 0) return;
        core->counters.leases_reclaimed.fetch_add(1);
        core->ReleaseLease(id, response.lease_id(), 0);
      });
}

}  // namespace

absl::Status ClientOptions::Validate() const {
  constexpr absl::string_view kUnix = "unix:";
  if (endpoint.empty()) return absl::InvalidArgumentError("endpoint: empty");
  absl::string_view rest = endpoint;
  if (rest.substr(0, kUnix.size()) == kUnix) {
    rest.remove_prefix(kUnix.size());
    if (rest.substr(0, 2) == "//") rest.remove_prefix(2);
    if (rest.empty() || rest.size() > kMaxUnixPathBytes) {
      return absl::InvalidArgumentError(absl::StrCat("endpoint: the socket's path has ",
                                                     rest.size(), " bytes; 1 to ",
                                                     kMaxUnixPathBytes, " are possible"));
    }
  }
  if (client_name.size() > kMaxClientNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("client_name: ", client_name.size(), " bytes; at most ", kMaxClientNameBytes));
  }
  if (default_deadline.count() <= 0 || backoff_min.count() <= 0 || backoff_max < backoff_min) {
    return absl::InvalidArgumentError(
        "default_deadline and backoff_min must be above 0, backoff_max not below backoff_min");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ClientOptions options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  auto core = std::make_shared<Core>(std::move(options));
  core->Start();
  core->WaitFirstAttempt(core->options().default_deadline);
  return std::unique_ptr<Client>(new Client(std::move(core)));
}

Client::~Client() { core_->Shutdown(); }

const NamespaceSpec& Namespace::spec() const { return state_->spec; }

NamespaceDigest Namespace::digest() const {
  MutexLock lock(&state_->mu);
  return state_->digest;
}

absl::StatusOr<Namespace> Client::OpenNamespace(const NamespaceSpec& spec, Deadline deadline) {
  if (spec.model.empty()) return absl::InvalidArgumentError("model: empty");
  if (spec.parts == 0) return absl::InvalidArgumentError("parts: must be at least 1");
  if (spec.tokens_per_chunk == 0) {
    return absl::InvalidArgumentError("tokens_per_chunk: must be at least 1");
  }
  return core_->OpenNamespace(spec, deadline);
}

bool Client::connected() const { return core_->WaitConnected(Deadline(0)); }
bool Client::WaitConnected(Deadline timeout) const { return core_->WaitConnected(timeout); }
ServerLimits Client::limits() const { return core_->limits(); }
Client::Stats Client::GetStats() const { return core_->GetStats(); }

// ---------------------------------------------------------------- leases

Lease::~Lease() { Release(); }

Lease::Lease(Lease&& other) noexcept { *this = std::move(other); }

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  core_ = std::move(other.core_);
  session_ = std::move(other.session_);
  id_ = std::exchange(other.id_, 0);
  keys_ = std::exchange(other.keys_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

bool Lease::alive() const { return id_ != 0 && !session_->over; }

void Lease::Shrink(uint32_t keep_keys) {
  if (id_ == 0 || keep_keys >= keys_) return;
  core_->ReleaseLease(session_, id_, keep_keys);
  keys_ = keep_keys;
  if (keep_keys > 0) return;
  id_ = 0;
  bytes_ = 0;
  session_.reset();
  core_.reset();
}

void Client::Release(Lease lease, DoneCallback done) {
  if (lease.id_ == 0) return std::move(done)(absl::OkStatus());
  core_->ReleaseLease(lease.session_, std::exchange(lease.id_, 0), 0, std::move(done));
}

// ---------------------------------------------------------------- calls

void Client::Lookup(const Namespace& ns, Keys keys, const LookupOptions& options,
                    Callback<LookupResult> done) {
  absl::StatusOr<Core::Ready> ready = core_->Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  const size_t parts = PartCount(ns.spec(), options.parts);
  if (absl::Status bad = CheckKeys(keys, parts, ready->session->limits); !bad.ok()) {
    return std::move(done)(bad);
  }
  auto request = KeysRequest<v1::LookupRequest>(*ready, keys, options.parts);
  const bool leased = options.lease != LeaseMode::kNone;
  request.set_lease_mode(ToWire(options.lease));
  if (leased) request.set_client_request_id(NewRequestId());
  request.set_transient(options.transient);
  UnaryCall<v1::LookupRequest, v1::LookupResponse>::Start(
      core_, ready->session, &Async::Lookup, std::move(request), options.deadline,
      [core = core_, id = ready->session->id, count = keys.size(), parts, leased,
       done = std::move(done)](absl::Status status, auto& request, auto& response) mutable {
        if (!status.ok()) {
          CheckSession(*core, *id, status);
          if (leased && absl::IsDeadlineExceeded(status)) ReclaimLostLease(core, id, request);
          return std::move(done)(std::move(status));
        }
        LookupResult result;
        result.lease.core_ = std::move(core);  // first: a lease that we refuse is released, too
        result.lease.session_ = id;
        result.lease.id_ = response.lease_id();
        result.lease.keys_ = response.lease_id() == 0 ? 0 : std::max(1u, response.leased_keys());
        result.lease.bytes_ = response.leased_bytes();
        result.row_bytes = (parts + 7) / 8;
        result.leading_keys = response.leading_keys();
        result.leased_keys = response.lease_id() == 0 ? 0 : response.leased_keys();
        result.g2_bits = std::move(*response.mutable_g2_parts());
        result.g3_bits = std::move(*response.mutable_g3_parts());
        if (result.leading_keys > count || result.leased_keys > count) {
          return std::move(done)(
              absl::InternalError("lookup: the daemon answered for more keys "
                                  "than were asked"));
        }
        std::move(done)(std::move(result));
      });
}

void Client::Get(const Namespace& ns, Keys keys, GetOptions options, Callback<GetResult> done) {
  absl::StatusOr<Core::Ready> ready = core_->Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  const size_t parts = PartCount(ns.spec(), options.parts);
  if (absl::Status bad = CheckKeys(keys, parts, ready->session->limits); !bad.ok()) {
    return std::move(done)(bad);
  }
  if (!options.allocate && options.destinations.size() != keys.size() * parts) {
    return std::move(done)(absl::InvalidArgumentError(
        absl::StrCat("destinations: ", options.destinations.size(), " for ", keys.size(),
                     " keys x ", parts, " parts")));
  }
  auto request = KeysRequest<v1::GetRequest>(*ready, keys, options.parts);
  const bool leased = options.lease != nullptr;
  if (leased) {
    // The lease of an old session may have the number of another one's lease in the new session.
    if (!options.lease->alive() || options.lease->session_ != ready->session->id) {
      return std::move(done)(LeaseIsDead());
    }
    request.set_lease_id(options.lease->id_);
    request.set_first_key(options.first_key);
  }
  request.set_first_piece(options.first_piece);
  request.set_pieces(options.pieces);
  request.set_metadata(options.metadata);
  request.set_transient(options.transient);
  GetCall::Start(core_, ready->session, request, parts, std::move(options),
                 [core = core_, id = ready->session->id, leased,
                  done = std::move(done)](absl::StatusOr<GetResult> result) mutable {
                   if (!leased) CheckSession(*core, *id, result.status());
                   std::move(done)(std::move(result));
                 });
}

void Client::Put(const Namespace& ns, std::vector<PutChunk> chunks, const PutOptions& options,
                 Callback<PutResult> done) {
  absl::StatusOr<Core::Ready> ready = core_->Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  auto id = ready->session->id;
  PutCall::Start(core_, *std::move(ready), ns.spec(), std::move(chunks), options,
                 [core = core_, id = std::move(id),
                  done = std::move(done)](absl::StatusOr<PutResult> result) mutable {
                   CheckSession(*core, *id, result.status());
                   std::move(done)(std::move(result));
                 });
}

namespace {

// Touch, Prefetch and Delete: keys in, counts out.
template <typename Request, typename Response, typename T, typename Convert>
void KeysCall(const std::shared_ptr<Core>& core, absl::StatusOr<Core::Ready> ready,
              typename UnaryCall<Request, Response>::Method method, Keys keys, Parts parts,
              Deadline deadline, Client::Callback<T> done, Convert convert) {
  if (!ready.ok()) return std::move(done)(ready.status());
  if (absl::Status bad = CheckKeys(keys, std::max<size_t>(1, parts.size()), ready->session->limits);
      !bad.ok()) {
    return std::move(done)(bad);
  }
  UnaryCall<Request, Response>::Start(
      core, ready->session, method, KeysRequest<Request>(*ready, keys, parts), deadline,
      [core, id = ready->session->id, convert, done = std::move(done)](absl::Status status, auto&,
                                                                       auto& response) mutable {
        if (!status.ok()) {
          CheckSession(*core, *id, status);
          return std::move(done)(std::move(status));
        }
        std::move(done)(convert(response));
      });
}

}  // namespace

void Client::Touch(const Namespace& ns, Keys keys, Parts parts, Deadline deadline,
                   Callback<uint64_t> done) {
  KeysCall<v1::TouchRequest, v1::TouchResponse, uint64_t>(
      core_, core_->Prepare(ns), &Async::Touch, keys, parts, deadline, std::move(done),
      [](const v1::TouchResponse& response) { return response.touched_chunks(); });
}

void Client::Prefetch(const Namespace& ns, Keys keys, Parts parts, Deadline deadline,
                      Callback<PrefetchResult> done) {
  KeysCall<v1::PrefetchRequest, v1::PrefetchResponse, PrefetchResult>(
      core_, core_->Prepare(ns), &Async::Prefetch, keys, parts, deadline, std::move(done),
      [](const v1::PrefetchResponse& response) {
        return PrefetchResult{.started_chunks = response.started_chunks(),
                              .ready_chunks = response.ready_chunks()};
      });
}

void Client::Delete(const Namespace& ns, Keys keys, Parts parts, Deadline deadline,
                    Callback<uint64_t> done) {
  KeysCall<v1::DeleteRequest, v1::DeleteResponse, uint64_t>(
      core_, core_->Prepare(ns), &Async::Delete, keys, parts, deadline, std::move(done),
      [](const v1::DeleteResponse& response) { return response.deleted_chunks(); });
}

void Client::GetServerInfo(Deadline deadline, Callback<ServerInfo> done) {
  absl::StatusOr<SessionPtr> session = core_->CurrentSession();
  if (!session.ok()) return std::move(done)(session.status());
  UnaryCall<v1::GetServerInfoRequest, v1::GetServerInfoResponse>::Start(
      core_, *session, &Async::GetServerInfo, {}, deadline,
      [done = std::move(done)](absl::Status status, auto&, auto& response) mutable {
        if (!status.ok()) return std::move(done)(std::move(status));
        std::move(done)(FromWire(response));
      });
}

}  // namespace kvkeep::client
