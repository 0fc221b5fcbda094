#include "tiers/objects/trusted_cas.h"

#include <filesystem>
#include <system_error>

namespace kvkeep {
namespace {

constexpr const char* kFiles[] = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",                   // RHEL, Fedora
    "/etc/ssl/ca-bundle.pem",                             // SUSE
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // RHEL, Fedora: what the link above is to
    "/etc/ssl/cert.pem",                                  // Alpine
};
constexpr const char* kFolders[] = {
    "/etc/ssl/certs",      // Debian, SUSE, Alpine; in RHEL a link to the next one
    "/etc/pki/tls/certs",  // RHEL
};

std::string NamedBy(const char* value) { return value == nullptr ? "" : value; }

}  // namespace

TrustedCas FindTrustedCas(absl::FunctionRef<const char*(const char*)> environment,
                          const std::string& root) {
  TrustedCas found{NamedBy(environment("SSL_CERT_FILE")), NamedBy(environment("SSL_CERT_DIR"))};
  if (!found.file.empty() || !found.folder.empty()) return found;
  std::error_code unreachable;  // counts as not there
  for (const char* const place : kFiles) {
    const std::string path = root + place;
    if (found.file.empty() && std::filesystem::is_regular_file(path, unreachable)) {
      found.file = path;
    }
  }
  for (const char* const place : kFolders) {
    const std::string path = root + place;
    if (found.folder.empty() && std::filesystem::is_directory(path, unreachable)) {
      found.folder = path;
    }
  }
  return found;
}

}  // namespace kvkeep
