// TLS of the TCP listener, for gRPC. Thread-safe.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/access/tls_identity.h"

namespace kvkeep {

// Each handshake uses identity->current(); connections that are there go on with what they began
// with. For one port. AllowTls13Only comes first. The credentials must outlive the server.
std::shared_ptr<grpc::ServerCredentials> MakeTlsServerCredentials(
    std::shared_ptr<const TlsIdentity> identity);

}  // namespace kvkeep
