// Callers: tells the services who makes a gRPC call. Each sort of listener has its own kind,
// so that sessions, limits and calls are the same behind all of them.
//
// Thread-safe.
#pragma once

#include <absl/container/flat_hash_set.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "server/access/client_certificates.h"
#include "server/access/credentials.h"
#include "server/observe/log.h"
#include "server/observe/server_state.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class Callers {
 public:
  using Context = grpc::CallbackServerContext;
  virtual ~Callers() = default;

  // Returns the caller that a session is opened as.
  virtual absl::StatusOr<Caller> Who(const Context& context) = 0;
  // For every other call: returns the tenant that the client speaks as, or an error if it may no
  // longer speak here. A session's token is taken from callers of its own tenant only
  // (CheckSession).
  virtual absl::StatusOr<TenantId> Admit(const Context& context) = 0;
  // Returns the name of an admin call's caller, for the audit log. PermissionDenied: the caller may
  // not make it.
  virtual absl::StatusOr<std::string> WhoAdmin(const Context& context) = 0;
};

// Returns OK if the connection of a call is TLS and, with `certificates`, if the certificate of its
// other end still holds. Unauthenticated says what is wrong.
absl::Status CheckTls(const grpc::AuthContext& connection, ClientCertificates* certificates);
// Returns the DNS and URI names of the call's client certificate, DNS names in lower case.
std::vector<std::string> CertificateNames(const Callers::Context& context);

// Callers by Unix sockets: the acceptor let them in and noted who they are (ServerState::peers),
// which holds for as long as they are connected. Any peer that may connect to the admin socket may
// use it.
class SocketCallers final : public Callers {
 public:
  explicit SocketCallers(const ServerState* state) : state_(state) {}

  absl::StatusOr<Caller> Who(const Context& context) override;
  absl::StatusOr<TenantId> Admit(const Context& context) override;
  absl::StatusOr<std::string> WhoAdmin(const Context& context) override;

 private:
  const ServerState* const state_;
};

// A client over TCP whose connection is not gRPC's. Borrows all of it, as it is made for every
// call.
struct TcpClient {
  const std::string& name;                               // for logs
  bool tls = false;                                      // its connection is
  absl::string_view certificate, between;                // PEM, that it showed; empty: none
  const std::vector<std::string>&dns_names, &uri_names;  // of the certificate
  absl::string_view authorization;                       // "Bearer TOKEN"; empty: no token
};

// Callers over TCP: every call checks the certificate and the token, so a revoked token is refused
// from the next call on. Refusals are Unauthenticated, counted, and logged now and then.
class TcpCallers final : public Callers {
 public:
  struct Options {
    bool tls = false;       // each connection must be
    bool loopback = false;  // tokens are taken without TLS there only
    // Checks certificates, if clients must show one; null: they need not.
    std::shared_ptr<ClientCertificates> certificates;
    std::vector<std::string> admin_certificate_names;
  };
  // Borrows the last two.
  TcpCallers(const Options& options, std::shared_ptr<Credentials> credentials, ServerState* state,
             const Log* log);
  // Credentials in force; SetCredentials replaces them for later calls.
  std::shared_ptr<Credentials> credentials() const;
  void SetCredentials(std::shared_ptr<Credentials> credentials);

  absl::StatusOr<Caller> Who(const Context& context) override;
  absl::StatusOr<TenantId> Admit(const Context& context) override;
  // By the same rules.
  absl::StatusOr<TenantId> Admit(const TcpClient& client);
  absl::StatusOr<std::string> WhoAdmin(const Context& context) override;

 private:
  absl::StatusOr<Caller> Identify(const Context& context) const;
  absl::StatusOr<Caller> Identify(const TcpClient& client) const;
  absl::StatusOr<Caller> Identify(const Presented& presented) const;
  absl::Status CheckTransport(const Context& context) const;
  void Refused(const std::string& peer, const absl::Status& reason);

  const Options options_;
  absl::flat_hash_set<std::string> admin_names_;  // constant
  ServerState* const state_;
  const Log* const log_;
  mutable Mutex mu_;
  std::shared_ptr<Credentials> credentials_ ABSL_GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point next_line_ ABSL_GUARDED_BY(mu_);
  uint64_t unsaid_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kvkeep
