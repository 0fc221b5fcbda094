#include "client/client.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "client/router.h"
#include "client/values/security.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/utf8.h"

namespace kvkeep::client {
absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ClientOptions options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  if (!HostOf(options.endpoint).empty()) {
    KVKEEP_RETURN_IF_ERROR(LoadSecurity(options.security).status());
  }
  return std::unique_ptr<Client>(new Client(std::make_unique<Router>(std::move(options))));
}

Client::Client(std::unique_ptr<Router> router) : router_(std::move(router)) {}
Client::~Client() = default;

const NamespaceSpec& Namespace::spec() const { return state_->spec; }

NamespaceDigest Namespace::digest() const {
  MutexLock lock(&state_->mu);
  for (const auto& binding : state_->bindings) {
    if (binding != nullptr && !binding->digest().is_zero()) return binding->digest();
  }
  return {};
}

absl::StatusOr<Namespace> Client::OpenNamespace(const NamespaceSpec& spec, Deadline deadline) {
  if (spec.model.empty()) return absl::InvalidArgumentError("model: empty");
  if (spec.parts == 0) return absl::InvalidArgumentError("parts: must be at least 1");
  if (spec.tokens_per_chunk == 0) {
    return absl::InvalidArgumentError("tokens_per_chunk: must be at least 1");
  }
  const std::pair<const char*, const std::string*> texts[] = {
      {"model", &spec.model},   {"dtype", &spec.dtype},
      {"layout", &spec.layout}, {"hash_algorithm", &spec.hash_algorithm},
      {"tenant", &spec.tenant}, {"hash_seed", &spec.hash_seed}};
  for (const auto& [field, text] : texts) {
    if (!IsUtf8(*text)) return absl::InvalidArgumentError(absl::StrCat(field, ": is not UTF-8"));
  }
  KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<NamespaceState> state,
                          router_->OpenNamespace(spec, deadline));
  return Namespace(std::move(state));
}

bool Client::connected() const { return router_->WaitConnected(Deadline(0)); }
bool Client::WaitConnected(Deadline timeout) const { return router_->WaitConnected(timeout); }
ServerLimits Client::limits() const { return router_->Pick()->limits(); }
PathInfo Client::path() const { return router_->path(); }
Client::Stats Client::GetStats() const { return router_->stats(); }

// ---------------------------------------------------------------- calls

void Client::Lookup(const Namespace& ns, Keys keys, const LookupOptions& options,
                    Callback<LookupResult> done) {
  Transport* const transport = router_->Pick();
  auto binding = router_->Bind(ns.state_, transport);
  if (!binding.ok()) return std::move(done)(binding.status());
  transport->Lookup(*binding, ns.spec(), keys, options, std::move(done));
}

void Client::Get(const Namespace& ns, Keys keys, GetOptions options, Callback<GetResult> done) {
  Transport* transport = router_->Pick();
  if (options.lease != nullptr && options.lease->alive()) {
    transport = router_->Of(options.lease->state()->path());
    if (transport == nullptr) {
      return std::move(done)(absl::InvalidArgumentError("lease: of another client"));
    }
  }
  auto binding = router_->Bind(ns.state_, transport);
  if (!binding.ok()) return std::move(done)(binding.status());
  transport->Get(*binding, ns.spec(), keys, std::move(options), std::move(done));
}

void Client::Put(const Namespace& ns, std::vector<PutChunk> chunks, const PutOptions& options,
                 Callback<PutResult> done) {
  Transport* const transport = router_->Pick();
  auto binding = router_->Bind(ns.state_, transport);
  if (!binding.ok()) return std::move(done)(binding.status());
  transport->Put(*binding, ns.spec(), std::move(chunks), options, std::move(done));
}

void Client::Acquire(const Namespace& ns, Keys keys, const AcquireOptions& options,
                     Callback<Acquired> done) {
  Transport* const transport = router_->PickForLocal();
  auto binding = router_->Bind(ns.state_, transport);
  if (!binding.ok()) return std::move(done)(binding.status());
  transport->Acquire(*binding, ns.spec(), keys, options, std::move(done));
}

void Client::Touch(const Namespace& ns, Keys keys, Parts parts, Deadline deadline,
                   Callback<uint64_t> done) {
  Transport* const transport = router_->Pick();
  auto binding = router_->Bind(ns.state_, transport);
  if (!binding.ok()) return std::move(done)(binding.status());
  transport->Touch(*binding, keys, parts, deadline, std::move(done));
}

void Client::Prefetch(const Namespace& ns, Keys keys, Parts parts, Deadline deadline,
                      Callback<PrefetchResult> done) {
  Transport* const transport = router_->Pick();
  auto binding = router_->Bind(ns.state_, transport);
  if (!binding.ok()) return std::move(done)(binding.status());
  transport->Prefetch(*binding, keys, parts, deadline, std::move(done));
}

void Client::Delete(const Namespace& ns, Keys keys, Parts parts, Deadline deadline,
                    Callback<uint64_t> done) {
  Transport* const transport = router_->Pick();
  auto binding = router_->Bind(ns.state_, transport);
  if (!binding.ok()) return std::move(done)(binding.status());
  transport->Delete(*binding, keys, parts, deadline, std::move(done));
}

void Client::Release(Lease lease, DoneCallback done) {
  Transport* const transport = lease.alive() ? router_->Of(lease.state()->path()) : nullptr;
  if (transport == nullptr) return std::move(done)(absl::OkStatus());  // gone with its session
  transport->Release(std::move(lease), std::move(done));
}

void Client::GetServerInfo(Deadline deadline, Callback<ServerInfo> done) {
  router_->Pick()->GetServerInfo(deadline, std::move(done));
}

absl::StatusOr<StagingBuffer> Client::AllocateStaging(uint64_t bytes) {
  return router_->Pick()->AllocateStaging(bytes);
}

absl::StatusOr<RegisteredMemory> Client::RegisterMemory(int fd, std::span<const std::byte> mapping,
                                                        const RegisterOptions& options) {
  return router_->PickForLocal()->RegisterMemory(fd, mapping, options);
}

}  // namespace kvkeep::client
