// The blocking forms of the client's calls.
#include "client/client.h"
#include "client/router.h"

namespace kvkeep::client {

absl::StatusOr<LookupResult> Client::Lookup(const Namespace& ns, Keys keys,
                                            const LookupOptions& options) {
  return router_->Await<absl::StatusOr<LookupResult>>(
      [&](auto done) { Lookup(ns, keys, options, std::move(done)); });
}

absl::StatusOr<GetResult> Client::Get(const Namespace& ns, Keys keys, GetOptions options) {
  return router_->Await<absl::StatusOr<GetResult>>(
      [&](auto done) { Get(ns, keys, std::move(options), std::move(done)); });
}

absl::StatusOr<Acquired> Client::Acquire(const Namespace& ns, Keys keys,
                                         const AcquireOptions& options) {
  return router_->Await<absl::StatusOr<Acquired>>(
      [&](auto done) { Acquire(ns, keys, options, std::move(done)); });
}

absl::StatusOr<PutResult> Client::Put(const Namespace& ns, std::vector<PutChunk> chunks,
                                      const PutOptions& options) {
  return router_->Await<absl::StatusOr<PutResult>>(
      [&](auto done) { Put(ns, std::move(chunks), options, std::move(done)); });
}

absl::StatusOr<uint64_t> Client::Touch(const Namespace& ns, Keys keys, Parts parts) {
  return router_->Await<absl::StatusOr<uint64_t>>(
      [&](auto done) { Touch(ns, keys, parts, Deadline(0), std::move(done)); });
}

absl::StatusOr<PrefetchResult> Client::Prefetch(const Namespace& ns, Keys keys, Parts parts) {
  return router_->Await<absl::StatusOr<PrefetchResult>>(
      [&](auto done) { Prefetch(ns, keys, parts, Deadline(0), std::move(done)); });
}

absl::StatusOr<uint64_t> Client::Delete(const Namespace& ns, Keys keys, Parts parts) {
  return router_->Await<absl::StatusOr<uint64_t>>(
      [&](auto done) { Delete(ns, keys, parts, Deadline(0), std::move(done)); });
}

absl::Status Client::Release(Lease lease) {
  return router_->Await<absl::Status>(
      [&](auto done) { Release(std::move(lease), std::move(done)); });
}

absl::StatusOr<ServerInfo> Client::GetServerInfo() {
  return router_->Await<absl::StatusOr<ServerInfo>>(
      [&](auto done) { GetServerInfo(Deadline(0), std::move(done)); });
}

}  // namespace kvkeep::client
