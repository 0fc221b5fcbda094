// The blocking forms of the client's calls, and the names of its enums.
#include "client/client.h"
#include "client/unary_call.h"

namespace kvkeep::client {

absl::StatusOr<LookupResult> Client::Lookup(const Namespace& ns, Keys keys,
                                            const LookupOptions& options) {
  return Await<absl::StatusOr<LookupResult>>(
      [&](auto done) { Lookup(ns, keys, options, std::move(done)); });
}

absl::StatusOr<GetResult> Client::Get(const Namespace& ns, Keys keys, GetOptions options) {
  return Await<absl::StatusOr<GetResult>>(
      [&](auto done) { Get(ns, keys, std::move(options), std::move(done)); });
}

absl::StatusOr<PutResult> Client::Put(const Namespace& ns, std::vector<PutChunk> chunks,
                                      const PutOptions& options) {
  return Await<absl::StatusOr<PutResult>>(
      [&](auto done) { Put(ns, std::move(chunks), options, std::move(done)); });
}

absl::StatusOr<uint64_t> Client::Touch(const Namespace& ns, Keys keys, Parts parts) {
  return Await<absl::StatusOr<uint64_t>>(
      [&](auto done) { Touch(ns, keys, parts, Deadline(0), std::move(done)); });
}

absl::StatusOr<PrefetchResult> Client::Prefetch(const Namespace& ns, Keys keys, Parts parts) {
  return Await<absl::StatusOr<PrefetchResult>>(
      [&](auto done) { Prefetch(ns, keys, parts, Deadline(0), std::move(done)); });
}

absl::StatusOr<uint64_t> Client::Delete(const Namespace& ns, Keys keys, Parts parts) {
  return Await<absl::StatusOr<uint64_t>>(
      [&](auto done) { Delete(ns, keys, parts, Deadline(0), std::move(done)); });
}

absl::Status Client::Release(Lease lease) {
  return Await<absl::Status>([&](auto done) { Release(std::move(lease), std::move(done)); });
}

absl::StatusOr<ServerInfo> Client::GetServerInfo() {
  return Await<absl::StatusOr<ServerInfo>>(
      [&](auto done) { GetServerInfo(Deadline(0), std::move(done)); });
}

absl::string_view GetStatusName(GetStatus status) {
  switch (status) {
    case GetStatus::kHit:
      return "hit";
    case GetStatus::kMiss:
      return "miss";
    case GetStatus::kCorrupt:
      return "corrupt";
    case GetStatus::kBusy:
      return "busy";
    case GetStatus::kTooSmall:
      return "too_small";
    case GetStatus::kUnfinished:
      return "unfinished";
  }
  return "unknown";
}

absl::string_view PutStatusName(PutStatus status) {
  switch (status) {
    case PutStatus::kStored:
      return "stored";
    case PutStatus::kPresent:
      return "present";
    case PutStatus::kRejected:
      return "rejected";
    case PutStatus::kUnfinished:
      return "unfinished";
  }
  return "unknown";
}

}  // namespace kvkeep::client
