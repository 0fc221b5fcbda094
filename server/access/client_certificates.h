// ClientCertificates: whether a certificate that a client, or another node of the fleet, showed in
// its handshake still holds: not expired, not revoked, and of a CA that is still wanted. gRPC
// checks it once, and connections live for days, so every call checks it again.
//
// Results are remembered for kRememberFor, or until the CA's or the CRL's file changes. With a CRL
// file, each CA that issued a client's certificate must have a CRL in it that has not expired;
// otherwise its clients are refused. Thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

#include <array>
#include <chrono>
#include <ctime>
#include <memory>

#include "server/access/tls_identity.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class ClientCertificates {
 public:
  static constexpr time_t kRememberFor = 10;  // seconds
  static constexpr size_t kMost = 4096;       // results; beyond it all of them are dropped

  explicit ClientCertificates(std::shared_ptr<const TlsIdentity> identity)
      : identity_(std::move(identity)) {}

  // Checks the client's certificate and the ones it sent `between` that and its CA, all PEM.
  // Unauthenticated says what is wrong.
  absl::Status Check(absl::string_view certificate, absl::string_view between, time_t now);

 private:
  struct Trusted;  // the CAs and CRLs, parsed
  struct Found {
    uint64_t generation = 0;
    time_t until = 0;
    absl::Status status;
  };
  std::shared_ptr<const Trusted> TrustedNow();
  static absl::Status Verify(const Trusted& trusted, absl::string_view certificate,
                             absl::string_view between, time_t now);

  const std::shared_ptr<const TlsIdentity> identity_;
  Mutex mu_;
  std::shared_ptr<const Trusted> trusted_ ABSL_GUARDED_BY(mu_);
  // By the SHA-256 of both arguments of Check.
  absl::flat_hash_map<std::array<unsigned char, 32>, Found> found_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
