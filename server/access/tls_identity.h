// TlsIdentity: the certificate and key that the daemon shows over TCP, and the CA that it wants
// from clients; read again when the files change.
//
// Hands on only files that belong together and can be used: gRPC 1.51 would serve without TLS if it
// could not use a key. A broken new file leaves the old ones in use.
//
// current() is thread-safe; Reload is for one thread.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "tiers/base/mutex.h"
#include "tiers/base/private_file.h"

namespace kvkeep {

struct TlsFiles {
  std::string cert_file, key_file;
  std::string client_ca_file;   // empty: clients show no certificate
  std::string client_crl_file;  // revoked client certificates; empty: none is checked
};

class TlsIdentity {
 public:
  struct Material {
    std::string cert_chain, key, client_ca, client_crl;  // PEM
    std::string serial;                      // hex, of the daemon's certificate
    time_t not_after = 0;
    uint64_t generation = 0;  // from 1
  };

  // InvalidArgument names the file and what is wrong. A certificate that has expired is taken: the
  // other listeners matter more, and clients are told (expired()).
  static absl::StatusOr<std::shared_ptr<TlsIdentity>> Load(const TlsFiles& files);

  std::shared_ptr<const Material> current() const;
  bool wants_client_certificates() const { return !files_.client_ca_file.empty(); }
  bool expired() const { return current()->not_after < std::time(nullptr); }

  // Reads the files if they changed. Returns none if they did not, and an error if the old ones
  // stay in use. Call about every second.
  std::optional<absl::Status> Reload();

 private:
  explicit TlsIdentity(const TlsFiles& files)
      : files_(files),
        changes_({files.cert_file, files.key_file, files.client_ca_file, files.client_crl_file}) {}

  const TlsFiles files_;
  FileChanges changes_;  // Reload's thread
  mutable Mutex mu_;
  std::shared_ptr<const Material> current_ ABSL_GUARDED_BY(mu_);
};

// Restricts TLS in this process to version 1.3: gRPC 1.51 has no option for it. Call before any
// TLS. Internal: OpenSSL refused.
absl::Status AllowTls13Only();

}  // namespace kvkeep
