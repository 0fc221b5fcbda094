#include "client/values/security.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <openssl/pem.h>

#include <algorithm>
#include <fstream>

#include "client/internal/openssl_owned.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

constexpr size_t kMaxFileBytes = 1024 * 1024;
constexpr size_t kMaxTokenBytes = 1024;

absl::Status Wrong(const char* field, const std::string& file, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", file, ": ", what));
}

absl::StatusOr<std::string> ReadFile(const char* field, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) return Wrong(field, path, "cannot be read");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) return Wrong(field, path, "is too long: at most 1 MiB");
  return text;
}

int NoPassword(char*, int, int, void*) { return 0; }

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

bool GoodToken(const std::string& token) {
  return !token.empty() && token.size() <= kMaxTokenBytes &&
         std::all_of(token.begin(), token.end(),
                     [](unsigned char c) { return absl::ascii_isgraph(c); });
}

}  // namespace

std::string HostOf(absl::string_view endpoint) {
  if (absl::StartsWith(endpoint, "unix:")) return "";
  std::string host(endpoint.substr(0, endpoint.rfind(':')));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

absl::Status SecurityOptions::Validate(absl::string_view endpoint) const {
  if (cert_file.empty() != key_file.empty()) {
    return absl::InvalidArgumentError(cert_file.empty()
                                          ? "key_file: is of no use without cert_file"
                                          : "cert_file: is of no use without key_file");
  }
  if (!tls() && (!cert_file.empty() || !server_name.empty())) {
    return absl::InvalidArgumentError(
        "cert_file, server_name: are for TLS, which ca_file turns on; set it");
  }
  const bool has_token = !token.empty() || !token_file.empty();
  if (!token.empty() && !token_file.empty()) {
    return absl::InvalidArgumentError("token: and token_file: set one of them");
  }
  if (!token.empty() && !GoodToken(token)) {
    return absl::InvalidArgumentError(
        absl::StrCat("token: must be 1 to ", kMaxTokenBytes, " visible ASCII characters"));
  }
  const std::string host = HostOf(endpoint);
  if (has_token && !tls() && !host.empty() && !IsLoopback(host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token: would go to ", host, " in clear; set ca_file, and have the daemon use TLS"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SecurityMaterial> LoadSecurity(const SecurityOptions& options) {
  SecurityMaterial material{.ca = "", .cert = "", .key = "", .token = options.token};
  if (!options.token_file.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(material.token, ReadFile("token_file", options.token_file));
    absl::StripAsciiWhitespace(&material.token);
    if (!GoodToken(material.token)) {
      return Wrong("token_file", options.token_file,
                   "must hold one token: visible ASCII characters, at most 1024");
    }
  }
  if (!options.tls()) return material;
  KVKEEP_ASSIGN_OR_RETURN(material.ca, ReadFile("ca_file", options.ca_file));
  if (FirstCertificate(material.ca) == nullptr) {
    return Wrong("ca_file", options.ca_file, "has no certificate in PEM in it");
  }
  if (options.cert_file.empty()) return material;
  KVKEEP_ASSIGN_OR_RETURN(material.cert, ReadFile("cert_file", options.cert_file));
  KVKEEP_ASSIGN_OR_RETURN(material.key, ReadFile("key_file", options.key_file));
  const Owned<X509> certificate = FirstCertificate(material.cert);
  if (certificate == nullptr) {
    return Wrong("cert_file", options.cert_file, "has no certificate in PEM in it");
  }
  const Owned<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(Over(material.key).get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return Wrong("key_file", options.key_file, "has no private key in PEM without a password");
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Wrong("key_file", options.key_file,
                 absl::StrCat("is not the key of the certificate in ", options.cert_file));
  }
  return material;
}

}  // namespace kvkeep::client
