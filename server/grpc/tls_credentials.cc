#include "server/grpc/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <atomic>
#include <string>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// gRPC's C++ interface reloads certificates from files only, and replaces working ones by broken
// ones. The C interface asks at every handshake, and keeps what it has when told so.
class ReloadingCredentials final : public grpc::ServerCredentials {
 public:
  explicit ReloadingCredentials(std::shared_ptr<const TlsIdentity> identity)
      : identity_(std::move(identity)) {}

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    KVKEEP_CHECK(false);  // server/access/callers.h identifies callers
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    grpc_ssl_server_credentials_options* options =
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            identity_->wants_client_certificates()
                ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            &ReloadingCredentials::Fetch, this);
    grpc_server_credentials* credentials = grpc_ssl_server_credentials_create_with_options(options);
    const int port = grpc_server_add_http2_port(server, address.c_str(), credentials);
    grpc_server_credentials_release(credentials);
    return port;
  }

  // Called before each handshake, by one thread at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto* const credentials = static_cast<ReloadingCredentials*>(self);
    const std::shared_ptr<const TlsIdentity::Material> now = credentials->identity_->current();
    if (credentials->handed_out_.exchange(now->generation) == now->generation) {
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    const grpc_ssl_pem_key_cert_pair pair{now->key.c_str(), now->cert_chain.c_str()};
    // gRPC 1.51 requires roots; if no client certificate is wanted, it ignores them.
    const std::string& roots = now->client_ca.empty() ? now->cert_chain : now->client_ca;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<const TlsIdentity> identity_;
  std::atomic<uint64_t> handed_out_{0};  // generation
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeTlsServerCredentials(
    std::shared_ptr<const TlsIdentity> identity) {
  return std::make_shared<ReloadingCredentials>(std::move(identity));
}

}  // namespace kvkeep
