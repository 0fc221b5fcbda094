#include "server/requests/convert.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tiers/base/wire_time.h"

namespace kvkeep {
namespace {

template <typename T>
absl::StatusOr<T> ParseExactly(absl::string_view field, absl::string_view raw) {
  if (raw.size() != T::kSize) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", raw.size(), " bytes; must be ", T::kSize));
  }
  T value;
  std::memcpy(value.bytes.data(), raw.data(), raw.size());
  return value;
}

absl::StatusOr<std::vector<ChunkKey>> ParseKeys(absl::string_view raw) {
  if (raw.empty() || raw.size() % ChunkKey::kSize != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "keys: ", raw.size(), " bytes; must be a positive multiple of ", ChunkKey::kSize));
  }
  std::vector<ChunkKey> keys(raw.size() / ChunkKey::kSize);
  static_assert(sizeof(ChunkKey) == ChunkKey::kSize);
  std::memcpy(keys.data(), raw.data(), raw.size());
  return keys;
}

absl::StatusOr<std::vector<PartId>> ParseParts(const PartNumbers& numbers,
                                               const NamespaceSpec& spec) {
  std::vector<PartId> parts;
  if (numbers.empty()) {
    if (spec.parts > kMaxPartsPerCall) {
      return absl::InvalidArgumentError(
          absl::StrCat("parts: empty means all ", spec.parts, " of the namespace; at most ",
                       kMaxPartsPerCall, " in one call (max_parts_per_call)"));
    }
    for (uint32_t part = 0; part < spec.parts; ++part) parts.emplace_back(part);
    return parts;
  }
  if (static_cast<size_t>(numbers.size()) > kMaxPartsPerCall) {
    return absl::InvalidArgumentError(absl::StrCat("parts: ", numbers.size(), "; at most ",
                                                   kMaxPartsPerCall,
                                                   " in one call (max_parts_per_call)"));
  }
  for (const uint32_t part : numbers) {
    if (part >= spec.parts) {
      return absl::InvalidArgumentError(
          absl::StrCat("parts: ", part, "; the namespace has parts 0 to ", spec.parts - 1));
    }
    if (std::find(parts.begin(), parts.end(), PartId(part)) != parts.end()) {
      return absl::InvalidArgumentError(absl::StrCat("parts: ", part, " is named twice"));
    }
    parts.emplace_back(part);
  }
  return parts;
}

}  // namespace

absl::StatusOr<SessionToken> ParseSessionToken(absl::string_view raw) {
  return ParseExactly<SessionToken>("session_token", raw);
}

absl::StatusOr<NamespaceDigest> ParseNamespaceDigest(absl::string_view raw) {
  return ParseExactly<NamespaceDigest>("namespace_digest", raw);
}

absl::StatusOr<ChunkKey> ParseKey(absl::string_view field, absl::string_view raw) {
  return ParseExactly<ChunkKey>(field, raw);
}

absl::StatusOr<std::string> ParseClientName(const std::string& name) {
  if (name.size() > kMaxClientNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("client_name: ", name.size(), " bytes; at most ", kMaxClientNameBytes));
  }
  return name;
}

absl::StatusOr<LeaseMode> ParseLeaseMode(v1::LeaseMode mode) {
  switch (mode) {
    case v1::LEASE_MODE_NONE:
      return LeaseMode::kNone;
    case v1::LEASE_MODE_LEADING_RUN:
      return LeaseMode::kLeadingRun;
    case v1::LEASE_MODE_ALL_PRESENT:
      return LeaseMode::kAllPresent;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("lease_mode: ", static_cast<int>(mode), " is not known to this version"));
  }
}

absl::StatusOr<NamespaceSpec> ParseNamespaceSpec(const v1::OpenNamespaceRequest& request) {
  NamespaceSpec spec{
      .model = request.model(),
      .dtype = request.dtype(),
      .layout = request.layout(),
      .tokens_per_chunk = request.tokens_per_chunk(),
      .bytes_per_part = request.bytes_per_part(),
      .parts = request.parts(),
      .hash_algorithm = request.hash_algorithm(),
      .hash_seed = request.hash_seed(),
      .tenant = request.tenant(),
  };
  KVKEEP_RETURN_IF_ERROR(spec.Validate());
  return spec;
}

absl::StatusOr<OwnedChunkSet> ParseChunkSet(const NamespaceDigest& ns, absl::string_view keys,
                                            const PartNumbers& parts, const NamespaceSpec& spec,
                                            uint32_t max_keys_per_call) {
  OwnedChunkSet set;
  set.ns = ns;
  KVKEEP_ASSIGN_OR_RETURN(set.keys, ParseKeys(keys));
  KVKEEP_ASSIGN_OR_RETURN(set.parts, ParseParts(parts, spec));
  if (set.chunks() > max_keys_per_call) {
    return absl::InvalidArgumentError(absl::StrCat(
        "keys: ", set.keys.size(), " keys x ", set.parts.size(), " parts = ", set.chunks(),
        "; at most ", max_keys_per_call, " in one call (max_keys_per_call)"));
  }
  return set;
}

v1::Limits ToLimits(const StoreOptions& options, TenantId tenant) {
  v1::Limits limits;
  limits.set_max_keys_per_call(options.max_keys_per_call);
  limits.set_max_parts_per_call(kMaxPartsPerCall);
  limits.set_max_payload_bytes(options.MaxPayloadBytes(tenant));
  limits.set_max_metadata_bytes(kMaxTailBytes);
  limits.set_max_frame_bytes(kMaxFramePayloadBytes);
  limits.set_max_leases_per_session(options.max_leases_per_session);
  limits.set_max_leased_bytes(options.max_leased_bytes);
  limits.set_max_sessions(options.max_sessions);
  return limits;
}

std::string ToBitmap(const std::vector<uint64_t>& rows, size_t parts) {
  const size_t row_bytes = (parts + 7) / 8;
  std::string bitmap(rows.size() * row_bytes, '\0');
  char* to = bitmap.data();
  for (const uint64_t row : rows) {
    std::memcpy(to, &row, row_bytes);  // little-endian: bit p of the word is bit p of the row
    to += row_bytes;
  }
  return bitmap;
}

void ToResponse(const LookupResult& result, size_t parts, v1::LookupResponse* response) {
  response->set_g2_parts(ToBitmap(result.g2_parts, parts));
  response->set_g3_parts(ToBitmap(result.g3_parts, parts));
  response->set_leading_keys(result.leading_keys);
  response->set_lease_id(result.lease.value());
  response->set_leased_keys(result.leased_keys);
  response->set_leased_bytes(result.leased_bytes);
  response->set_promotion_us(WholeMicroseconds(result.promotion_time));
  if (result.coming_parts.empty()) return;
  response->set_remote_parts(ToBitmap(result.coming_parts, parts));
  response->set_remote_keys(result.beyond_keys);
  response->set_remote_us(WholeMicroseconds(result.beyond_time));
}

v1::RejectReason ToRejectReason(RejectReason reason) {
  switch (reason) {
    case RejectReason::kNone:
      return v1::REJECT_REASON_UNSPECIFIED;
    case RejectReason::kNoSpace:
      return v1::REJECT_REASON_NO_SPACE;
    case RejectReason::kLimit:
      return v1::REJECT_REASON_LIMIT;
    case RejectReason::kWrongSize:
      return v1::REJECT_REASON_WRONG_SIZE;
    case RejectReason::kWrongChecksum:
      return v1::REJECT_REASON_WRONG_CHECKSUM;
    case RejectReason::kDraining:
      return v1::REJECT_REASON_DRAINING;
    case RejectReason::kNotDurable:
      return v1::REJECT_REASON_NOT_DURABLE;
    case RejectReason::kNotCopied:
      return v1::REJECT_REASON_NOT_COPIED;
  }
  return v1::REJECT_REASON_UNSPECIFIED;
}

uint64_t ToMillis(std::chrono::nanoseconds time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

}  // namespace kvkeep
