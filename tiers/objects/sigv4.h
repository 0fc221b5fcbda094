// SigV4: AWS Signature Version 4 in the Authorization header, as S3 wants it (the path is encoded
// once, and nothing in it is normalised).
//
// Signer keeps the signing key of its region for the day and the keys it was asked with last: four
// HMACs are saved a request. Thread-safe; no lock is held over more than that. All else is pure. A
// name or value that no server would take (with control characters) is our bug: KVKEEP_CHECK.
#pragma once

#include <absl/strings/string_view.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "tiers/base/mutex.h"
#include "tiers/objects/http_header.h"
#include "tiers/objects/s3_keys.h"

namespace kvkeep {

inline constexpr absl::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";
// SHA-256 of no bytes, in hexadecimal.
inline constexpr absl::string_view kEmptyPayloadHash =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string Sha256Hex(std::span<const std::byte> bytes);

// The parts of a request that a signature covers. Views of the caller's memory.
struct RequestToSign {
  absl::string_view method;
  absl::string_view path;   // as it is sent: EncodeUriPath
  absl::string_view query;  // as it is sent: EncodeUriQuery
  // All of these are signed. Must include Host, and no header that proxies may change.
  const HttpHeaders& headers;
  absl::string_view payload_hash;
};

// Steps of the calculation, for tests and for the report of `g4 check` on a refused signature.
std::string CanonicalRequest(const RequestToSign& request);
std::string StringToSign(UnixSeconds at, absl::string_view scope,
                         absl::string_view canonical_request);

class SigV4Signer {
 public:
  explicit SigV4Signer(std::string region, std::string service = "s3");
  ~SigV4Signer();

  // Returns the value of the Authorization header. `headers` already has x-amz-date, of `at`.
  std::string Authorization(const SharedS3Keys& keys, UnixSeconds at, const RequestToSign& request);

  // Adds x-amz-date, x-amz-content-sha256, x-amz-security-token where the keys have one, and
  // Authorization, which covers these and all that `headers` holds.
  void Sign(const SharedS3Keys& keys, UnixSeconds at, absl::string_view method,
            absl::string_view path, absl::string_view query, absl::string_view payload_hash,
            HttpHeaders* headers);

 private:
  using Key = std::array<std::byte, 32>;

  std::string Scope(absl::string_view day) const;
  Key SigningKey(const SharedS3Keys& keys, absl::string_view day);

  const std::string region_, service_;
  Mutex mu_;
  SharedS3Keys keys_ ABSL_GUARDED_BY(mu_);  // whose key is below
  std::string day_ ABSL_GUARDED_BY(mu_);
  Key key_ ABSL_GUARDED_BY(mu_){};
};

}  // namespace kvkeep
