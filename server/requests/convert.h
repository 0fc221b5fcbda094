// Between kvkeep.v1 messages and the store's types. Everything a client wrote is checked here, and
// the checked copy is what the rest uses. Errors are InvalidArgument and name the field and its
// limit.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <string>
#include <vector>

#include "kvkeep/v1/kvkeep.pb.h"
#include "tiers/store/snapshot.h"

namespace kvkeep {

inline constexpr uint64_t kMaxFramePayloadBytes = 4 * kMiB;  // of a Put or a Get frame
inline constexpr size_t kMaxClientNameBytes = 128;

absl::StatusOr<SessionToken> ParseSessionToken(absl::string_view raw);
absl::StatusOr<NamespaceDigest> ParseNamespaceDigest(absl::string_view raw);
// Parses exactly 32 bytes; `field` names them in the error.
absl::StatusOr<ChunkKey> ParseKey(absl::string_view field, absl::string_view raw);
absl::StatusOr<std::string> ParseClientName(const std::string& name);
absl::StatusOr<LeaseMode> ParseLeaseMode(v1::LeaseMode mode);
absl::StatusOr<NamespaceSpec> ParseNamespaceSpec(const v1::OpenNamespaceRequest& request);

// A ChunkSet with its memory.
struct OwnedChunkSet {
  NamespaceDigest ns;
  std::vector<ChunkKey> keys;
  std::vector<PartId> parts;

  ChunkSet view() const { return {.ns = ns, .keys = keys, .parts = parts}; }
  size_t chunks() const { return keys.size() * parts.size(); }
};

using PartNumbers = google::protobuf::RepeatedField<uint32_t>;
// Parses a set of 1 to max_keys_per_call chunks. No parts: all parts of the namespace.
absl::StatusOr<OwnedChunkSet> ParseChunkSet(const NamespaceDigest& ns, absl::string_view keys,
                                            const PartNumbers& parts, const NamespaceSpec& spec,
                                            uint32_t max_keys_per_call);

v1::Limits ToLimits(const StoreOptions& options, TenantId tenant);
// Returns rows of ceil(parts / 8) bytes, made from words of one bit per part.
std::string ToBitmap(const std::vector<uint64_t>& rows, size_t parts);
void ToResponse(const LookupResult& result, size_t parts, v1::LookupResponse* response);
v1::RejectReason ToRejectReason(RejectReason reason);
uint64_t ToMillis(std::chrono::nanoseconds time);

}  // namespace kvkeep
