// The blocking forms of the client's calls.
#include "client/client.h"
#include "client/router.h"

namespace kvkeep::client {
namespace {

// Await, on a thread that the transport may use meanwhile.
template <typename T, typename Start>
T AwaitOn(Router& router, Start&& start) {
  Completion<T> completion;
  router.Pick()->RunBlocking([&] { start([&](T value) { completion.Set(std::move(value)); }); },
                             &completion);
  return completion.Take();
}

}  // namespace

absl::StatusOr<LookupResult> Client::Lookup(const Namespace& ns, Keys keys,
                                            const LookupOptions& options) {
  return AwaitOn<absl::StatusOr<LookupResult>>(
      *router_, [&](auto done) { Lookup(ns, keys, options, std::move(done)); });
}

absl::StatusOr<GetResult> Client::Get(const Namespace& ns, Keys keys, GetOptions options) {
  return AwaitOn<absl::StatusOr<GetResult>>(
      *router_, [&](auto done) { Get(ns, keys, std::move(options), std::move(done)); });
}

absl::StatusOr<Acquired> Client::Acquire(const Namespace& ns, Keys keys,
                                         const AcquireOptions& options) {
  return AwaitOn<absl::StatusOr<Acquired>>(
      *router_, [&](auto done) { Acquire(ns, keys, options, std::move(done)); });
}

absl::StatusOr<PutResult> Client::Put(const Namespace& ns, std::vector<PutChunk> chunks,
                                      const PutOptions& options) {
  return AwaitOn<absl::StatusOr<PutResult>>(
      *router_, [&](auto done) { Put(ns, std::move(chunks), options, std::move(done)); });
}

absl::StatusOr<uint64_t> Client::Touch(const Namespace& ns, Keys keys, Parts parts) {
  return AwaitOn<absl::StatusOr<uint64_t>>(
      *router_, [&](auto done) { Touch(ns, keys, parts, Deadline(0), std::move(done)); });
}

absl::StatusOr<PrefetchResult> Client::Prefetch(const Namespace& ns, Keys keys, Parts parts) {
  return AwaitOn<absl::StatusOr<PrefetchResult>>(
      *router_, [&](auto done) { Prefetch(ns, keys, parts, Deadline(0), std::move(done)); });
}

absl::StatusOr<uint64_t> Client::Delete(const Namespace& ns, Keys keys, Parts parts) {
  return AwaitOn<absl::StatusOr<uint64_t>>(
      *router_, [&](auto done) { Delete(ns, keys, parts, Deadline(0), std::move(done)); });
}

absl::Status Client::Release(Lease lease) {
  return AwaitOn<absl::Status>(*router_,
                               [&](auto done) { Release(std::move(lease), std::move(done)); });
}

absl::StatusOr<ServerInfo> Client::GetServerInfo() {
  return AwaitOn<absl::StatusOr<ServerInfo>>(
      *router_, [&](auto done) { GetServerInfo(Deadline(0), std::move(done)); });
}

}  // namespace kvkeep::client
