// TLS of the TCP listener, for gRPC. Thread-safe.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/access/tls_identity.h"

namespace kvkeep {

// Returns credentials for one port; they must outlive the server. Each handshake uses
// identity->current(); existing connections keep what they began with. REQUIRES: AllowTls13Only was
// called.
std::shared_ptr<grpc::ServerCredentials> MakeTlsServerCredentials(
    std::shared_ptr<const TlsIdentity> identity);

}  // namespace kvkeep
