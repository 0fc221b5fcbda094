#include "server/access/callers.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr std::chrono::seconds kRefusalLineEvery{10};
constexpr size_t kMaxNames = 64;  // of one certificate; further names are ignored

absl::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

std::vector<absl::string_view> Values(const grpc::AuthContext& auth, const char* property) {
  std::vector<absl::string_view> values;
  for (const grpc::string_ref& value : auth.FindPropertyValues(property)) {
    if (values.size() < kMaxNames) values.push_back(View(value));
  }
  return values;
}

// Returns a name in the form for comparison: DNS names ignore case.
std::string Comparable(absl::string_view name) {
  return absl::StrContains(name, ':') ? std::string(name) : absl::AsciiStrToLower(name);
}

// Returns the token in an authorization, "Bearer TOKEN".
absl::StatusOr<absl::string_view> BearerToken(absl::string_view authorization) {
  if (!absl::StartsWithIgnoreCase(authorization, "bearer ")) {
    return absl::UnauthenticatedError("authorization: is not \"Bearer TOKEN\"");
  }
  authorization.remove_prefix(7);
  return absl::StripAsciiWhitespace(authorization);
}

// Returns none if no token was sent.
absl::StatusOr<std::optional<absl::string_view>> TokenOf(const Callers::Context& context) {
  const auto [first, last] = context.client_metadata().equal_range("authorization");
  if (first == last) return std::nullopt;
  if (std::next(first) != last) {
    return absl::UnauthenticatedError("authorization: was sent more than once");
  }
  return BearerToken(View(first->second));
}

absl::Status UnknownPeer() {
  return absl::UnauthenticatedError("the peer of this connection is not known");
}

}  // namespace

absl::StatusOr<Caller> SocketCallers::Who(const Context& context) {
  const std::optional<ConnectedPeer> peer = state_->peers.Find(context.peer());
  if (!peer.has_value()) return UnknownPeer();
  return Caller{peer->tenant, peer->grants, peer->credentials.ToString()};
}

absl::StatusOr<TenantId> SocketCallers::Admit(const Context& context) {
  const std::optional<ConnectedPeer> peer = state_->peers.Find(context.peer());
  if (!peer.has_value()) return UnknownPeer();
  return peer->tenant;
}

absl::StatusOr<std::string> SocketCallers::WhoAdmin(const Context& context) {
  KVKEEP_ASSIGN_OR_RETURN(const Caller caller, Who(context));
  return caller.who;
}

TcpCallers::TcpCallers(const Options& options, std::shared_ptr<Credentials> credentials,
                       ServerState* state, const Log* log)
    : options_(options), state_(state), log_(log), credentials_(std::move(credentials)) {
  for (const std::string& name : options.admin_certificate_names) {
    admin_names_.insert(Comparable(name));
  }
}

absl::Status CheckTls(const grpc::AuthContext& connection, ClientCertificates* certificates) {
  // gRPC goes on without TLS if it cannot set up a handshake: refuse such a connection.
  const auto types = connection.FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  const bool tls = types.size() == 1 && View(types[0]) == GRPC_SSL_TRANSPORT_SECURITY_TYPE;
  if (!tls) return absl::UnauthenticatedError("this connection is not TLS");
  if (certificates == nullptr) return absl::OkStatus();
  const auto pem = [&](const char* property) {
    const auto values = connection.FindPropertyValues(property);
    return values.empty() ? absl::string_view() : View(values[0]);
  };
  return certificates->Check(pem(GRPC_X509_PEM_CERT_PROPERTY_NAME),
                             pem(GRPC_X509_PEM_CERT_CHAIN_PROPERTY_NAME), std::time(nullptr));
}

std::vector<std::string> CertificateNames(const Callers::Context& context) {
  std::vector<std::string> names;
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  for (const char* property : {GRPC_PEER_DNS_PROPERTY_NAME, GRPC_PEER_URI_PROPERTY_NAME}) {
    for (const absl::string_view name : Values(*auth, property)) names.push_back(Comparable(name));
  }
  return names;
}

absl::Status TcpCallers::CheckTransport(const Context& context) const {
  return options_.tls ? CheckTls(*context.auth_context(), options_.certificates.get())
                      : absl::OkStatus();
}

absl::StatusOr<Caller> TcpCallers::Identify(const Presented& presented) const {
  if (presented.token.has_value() && !options_.tls && !options_.loopback) {
    return absl::UnauthenticatedError(
        "a token was sent in clear: it is refused, and others may have read it; replace it");
  }
  return credentials()->Identify(presented);
}

absl::StatusOr<Caller> TcpCallers::Identify(const Context& context) const {
  KVKEEP_RETURN_IF_ERROR(CheckTransport(context));
  Presented presented;
  KVKEEP_ASSIGN_OR_RETURN(presented.token, TokenOf(context));
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (options_.tls) {
    presented.dns_names = Values(*auth, GRPC_PEER_DNS_PROPERTY_NAME);
    presented.uri_names = Values(*auth, GRPC_PEER_URI_PROPERTY_NAME);
  }
  return Identify(presented);
}

absl::StatusOr<Caller> TcpCallers::Identify(const TcpClient& client) const {
  if (options_.tls && !client.tls) return absl::UnauthenticatedError("this connection is not TLS");
  if (options_.certificates != nullptr) {
    KVKEEP_RETURN_IF_ERROR(
        options_.certificates->Check(client.certificate, client.between, std::time(nullptr)));
  }
  Presented presented;
  presented.dns_names.assign(client.dns_names.begin(), client.dns_names.end());
  presented.uri_names.assign(client.uri_names.begin(), client.uri_names.end());
  if (!client.authorization.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(presented.token, BearerToken(client.authorization));
  }
  return Identify(presented);
}

std::shared_ptr<Credentials> TcpCallers::credentials() const {
  MutexLock lock(&mu_);
  return credentials_;
}

void TcpCallers::SetCredentials(std::shared_ptr<Credentials> credentials) {
  MutexLock lock(&mu_);
  credentials_ = std::move(credentials);
}

absl::StatusOr<Caller> TcpCallers::Who(const Context& context) {
  absl::StatusOr<Caller> caller = Identify(context);
  if (!caller.ok()) {
    Refused(context.peer(), caller.status());
  } else {
    caller->who = absl::StrCat(context.peer(), " ", caller->who);
  }
  return caller;
}

absl::StatusOr<TenantId> TcpCallers::Admit(const Context& context) {
  const absl::StatusOr<Caller> caller = Identify(context);
  if (caller.ok()) return caller->tenant;
  Refused(context.peer(), caller.status());
  return caller.status();
}

absl::StatusOr<TenantId> TcpCallers::Admit(const TcpClient& client) {
  const absl::StatusOr<Caller> caller = Identify(client);
  if (caller.ok()) return caller->tenant;
  Refused(client.name, caller.status());
  return caller.status();
}

absl::StatusOr<std::string> TcpCallers::WhoAdmin(const Context& context) {
  absl::Status tls = CheckTransport(context);
  if (!tls.ok()) return tls;
  for (const std::string& name : CertificateNames(context)) {
    if (options_.tls && admin_names_.contains(name)) return absl::StrCat("certificate ", name);
  }
  return absl::PermissionDeniedError(
      "admin calls: none of the certificate's names is in tls.admin_certificate_names");
}

void TcpCallers::Refused(const std::string& peer, const absl::Status& reason) {
  state_->counters.unauthenticated_calls.fetch_add(1, std::memory_order_relaxed);
  const auto now = std::chrono::steady_clock::now();
  uint64_t unsaid = 0;
  {
    MutexLock lock(&mu_);
    if (now < next_line_) {
      ++unsaid_;
      return;
    }
    next_line_ = now + kRefusalLineEvery;
    unsaid = std::exchange(unsaid_, 0);
  }
  log_->Warn("call refused", {{"peer", peer},
                              {"reason", std::string(reason.message())},
                              {"unsaid", absl::StrCat(unsaid)}});
}

}  // namespace kvkeep
