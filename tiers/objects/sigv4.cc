#include "tiers/objects/sigv4.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <map>
#include <vector>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/hmac.h"

namespace kvkeep {
namespace {

using Digest256 = std::array<std::byte, kHmacSha256Bytes>;

constexpr absl::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr absl::string_view kTerminator = "aws4_request";
constexpr size_t kDayDigits = 8;

std::string Hex(const Digest256& digest) { return absl::BytesToHexString(AsText(digest)); }

Digest256 Hmac(std::span<const std::byte> key, absl::string_view text) {
  Digest256 digest;
  HmacSha256(key, AsBytes(text), digest);
  return digest;
}

// Returns `value` without blanks around it, and with one blank for each run of them inside.
std::string Trimmed(absl::string_view value) {
  return absl::StrJoin(absl::StrSplit(value, ' ', absl::SkipEmpty()), " ");
}

// Returns the headers by name in lower case; values of one name form a list, in their order.
std::map<std::string, std::string> CanonicalHeaders(const HttpHeaders& headers) {
  std::map<std::string, std::string> canonical;
  for (const auto& [name, value] : headers) {
    for (const char c : absl::StrCat(name, value)) {
      KVKEEP_CHECK(!absl::ascii_iscntrl(static_cast<unsigned char>(c)));
    }
    const auto [at, first] = canonical.emplace(absl::AsciiStrToLower(name), Trimmed(value));
    if (!first) absl::StrAppend(&at->second, ",", Trimmed(value));
  }
  KVKEEP_CHECK(canonical.contains("host"));
  return canonical;
}

std::string SignedNames(const std::map<std::string, std::string>& headers) {
  return absl::StrJoin(headers, ";", [](std::string* out, const auto& header) {
    absl::StrAppend(out, header.first);
  });
}

}  // namespace

std::string Sha256Hex(std::span<const std::byte> bytes) {
  Digest256 digest;
  unsigned int size = 0;
  KVKEEP_CHECK(EVP_Digest(bytes.data(), bytes.size(),
                          reinterpret_cast<unsigned char*>(digest.data()), &size, EVP_sha256(),
                          nullptr) == 1);
  return Hex(digest);
}

std::string CanonicalRequest(const RequestToSign& request) {
  KVKEEP_CHECK(!request.method.empty() && !request.payload_hash.empty());
  KVKEEP_CHECK(absl::StartsWith(request.path, "/"));
  const std::map<std::string, std::string> headers = CanonicalHeaders(request.headers);
  std::string text =
      absl::StrCat(request.method, "\n", request.path, "\n", request.query, "\n");
  for (const auto& [name, value] : headers) absl::StrAppend(&text, name, ":", value, "\n");
  absl::StrAppend(&text, "\n", SignedNames(headers), "\n", request.payload_hash);
  return text;
}

std::string StringToSign(UnixSeconds at, absl::string_view scope,
                         absl::string_view canonical_request) {
  return absl::StrCat(kAlgorithm, "\n", FormatAmzTime(at), "\n", scope, "\n",
                      Sha256Hex(AsBytes(canonical_request)));
}

SigV4Signer::SigV4Signer(std::string region, std::string service)
    : region_(std::move(region)), service_(std::move(service)) {
  KVKEEP_CHECK(!region_.empty() && !absl::StrContains(region_, '/'));
  KVKEEP_CHECK(!service_.empty() && !absl::StrContains(service_, '/'));
}

SigV4Signer::~SigV4Signer() { OPENSSL_cleanse(key_.data(), key_.size()); }

std::string SigV4Signer::Scope(absl::string_view day) const {
  return absl::StrCat(day, "/", region_, "/", service_, "/", kTerminator);
}

SigV4Signer::Key SigV4Signer::SigningKey(const SharedS3Keys& keys, absl::string_view day) {
  MutexLock lock(&mu_);
  if (keys_ == keys && day_ == day) return key_;
  std::string first = absl::StrCat("AWS4", keys->secret_access_key.reveal());
  key_ = Hmac(AsBytes(first), day);
  OPENSSL_cleanse(first.data(), first.size());
  for (const absl::string_view step : {absl::string_view(region_), absl::string_view(service_),
                                       kTerminator}) {
    key_ = Hmac(key_, step);
  }
  keys_ = keys;
  day_ = std::string(day);
  return key_;
}

std::string SigV4Signer::Authorization(const SharedS3Keys& keys, UnixSeconds at,
                                       const RequestToSign& request) {
  KVKEEP_CHECK(FindHeader(request.headers, "x-amz-date") == FormatAmzTime(at));
  const std::string day = FormatAmzTime(at).substr(0, kDayDigits);
  Key key = SigningKey(keys, day);
  const Digest256 signature =
      Hmac(key, StringToSign(at, Scope(day), CanonicalRequest(request)));
  OPENSSL_cleanse(key.data(), key.size());
  return absl::StrCat(kAlgorithm, " Credential=", keys->access_key_id, "/", Scope(day),
                      ", SignedHeaders=", SignedNames(CanonicalHeaders(request.headers)),
                      ", Signature=", Hex(signature));
}

void SigV4Signer::Sign(const SharedS3Keys& keys, UnixSeconds at, absl::string_view method,
                       absl::string_view path, absl::string_view query,
                       absl::string_view payload_hash, HttpHeaders* headers) {
  KVKEEP_CHECK(FindHeader(*headers, "x-amz-date").empty());
  KVKEEP_CHECK(FindHeader(*headers, "authorization").empty());
  headers->push_back({"x-amz-date", FormatAmzTime(at)});
  headers->push_back({"x-amz-content-sha256", std::string(payload_hash)});
  if (!keys->session_token.empty()) {
    headers->push_back({"x-amz-security-token", keys->session_token});
  }
  headers->push_back({"Authorization",
                      Authorization(keys, at, {method, path, query, *headers, payload_hash})});
}

}  // namespace kvkeep
