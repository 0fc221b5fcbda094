// TlsDoor: makes TLS streams over accepted connections: TLS 1.3, the daemon's certificate, and the
// client's where the daemon asks for one.
//
// A new connection gets the certificate that is in force when it comes. A client's certificate is
// checked here against its CA; whether it still holds, each call checks again (ClientCertificates).
// A client that does not offer the protocol's name by ALPN is refused. No session is resumed.
//
// Thread-safe; a stream is for one thread at a time.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>

#include "server/access/tls_identity.h"
#include "server/bulk/byte_stream.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class TlsDoor {
 public:
  // REQUIRES: AllowTls13Only was called.
  explicit TlsDoor(std::shared_ptr<const TlsIdentity> identity) : identity_(std::move(identity)) {}

  // Internal: OpenSSL refused. The handshake takes place in the stream's first reads.
  absl::StatusOr<std::unique_ptr<ByteStream>> Accept(ExpendableFd socket);

 private:
  struct Context;
  absl::StatusOr<std::shared_ptr<Context>> ContextNow();

  const std::shared_ptr<const TlsIdentity> identity_;
  Mutex mu_;
  std::shared_ptr<Context> context_ ABSL_GUARDED_BY(mu_);
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;  // of it
};

}  // namespace kvkeep
