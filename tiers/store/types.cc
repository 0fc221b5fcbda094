// Checks what clients say of their namespaces and of themselves, and makes digests of namespaces.
#include "tiers/store/types.h"

#include <absl/strings/str_cat.h>
#include <openssl/sha.h>

#include <cstring>

#include "tiers/base/status_macros.h"
#include "tiers/base/tenant_tag.h"
#include "tiers/base/utf8.h"
#include "tiers/store/beyond_limits.h"

namespace kvkeep {
namespace {

// These texts are shown in strings of protobuf and in JSON, so they must be UTF-8.
absl::Status CheckUtf8(const char* field, const std::string& value) {
  const size_t good = Utf8Bytes(value);
  if (good == value.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is not UTF-8: no character begins at byte ", good));
}

absl::Status CheckText(const char* field, const std::string& value, size_t limit) {
  if (value.size() <= limit) return CheckUtf8(field, value);
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value.size(), " bytes, allowed are at most ", limit));
}

}  // namespace

absl::Status NamespaceSpec::Validate() const {
  if (model.empty()) return absl::InvalidArgumentError("model is empty");
  for (const absl::Status& status :
       {CheckText("model", model, 256), CheckText("dtype", dtype, 64),
        CheckText("layout", layout, 256), CheckText("hash_algorithm", hash_algorithm, 64),
        CheckText("hash_seed", hash_seed, 64), CheckText("tenant", tenant, 32)}) {
    if (!status.ok()) return status;
  }
  if (tokens_per_chunk == 0) return absl::InvalidArgumentError("tokens_per_chunk is 0, at least 1");
  if (parts == 0 || parts > 65536) {
    return absl::InvalidArgumentError(absl::StrCat("parts is ", parts, ", allowed are 1 to 65536"));
  }
  if (bytes_per_part > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat("bytes_per_part is ", bytes_per_part,
                                                   ", allowed are at most ", kMaxPayloadBytes));
  }
  return absl::OkStatus();
}

uint32_t TenantOptions::Tag(const std::string& name) { return TenantTagOf(name); }

NamespaceDigest NamespaceSpec::Digest(const std::string& tenant) const {
  std::string flat = "kvkeep namespace 2";
  const auto add_number = [&flat](uint64_t value) {
    flat.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const std::string* text : {&model, &dtype, &layout, &hash_algorithm, &hash_seed}) {
    add_number(text->size());
    flat.append(*text);
  }
  for (const uint64_t number : {uint64_t{tokens_per_chunk}, bytes_per_part, uint64_t{parts}}) {
    add_number(number);
  }
  if (!tenant.empty()) {
    add_number(tenant.size());
    flat.append(tenant);
  }
  unsigned char sha[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(flat.data()), flat.size(), sha);
  NamespaceDigest digest;
  const uint32_t tag = TenantOptions::Tag(tenant);
  std::memcpy(digest.bytes.data(), &tag, sizeof(tag));
  std::memcpy(digest.bytes.data() + sizeof(tag), sha, digest.bytes.size() - sizeof(tag));
  return digest;
}

absl::Status SessionInfo::Validate(size_t tenants) const {
  if (tenant.value() >= tenants) {
    return absl::InvalidArgumentError(
        absl::StrCat("tenant is ", tenant.value(), ", there are ", tenants));
  }
  return CheckUtf8("client_name", client_name);
}

absl::Status BeyondOptions::Validate() const {
  const auto check = [](const char* field, std::chrono::nanoseconds value,
                        std::chrono::microseconds most) {
    if (value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", value / std::chrono::microseconds(1), ", allowed are at most ",
                     most.count()));
  };
  absl::Status wait_ok = check("remote_wait_us", wait, kLongestBeyondWait);
  return wait_ok.ok() ? check("recompute_us_per_key", recompute_per_key, kNotComputable) : wait_ok;
}

}  // namespace kvkeep
