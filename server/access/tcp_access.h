// TcpAccess: decides who comes in over TCP. Holds TLS, credentials and callers, and keeps them up
// to date with a thread that checks their files for changes every second. Files that it read, or
// could not use, are logged and counted.
//
// Thread-safe once open.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/access/callers.h"
#include "server/access/credentials.h"
#include "server/access/tls_identity.h"

namespace kvkeep {

class TcpAccess {
 public:
  struct Options {
    std::string address;                     // "host:port" that is listened on
    TlsFiles tls;                            // cert_file empty: plaintext
    std::vector<TenantCredentials> tenants;  // by TenantId
    std::vector<std::string> admin_certificate_names;
    std::string fleet_ca_file;  // of other nodes; empty: there are none
  };
  // `state` and `log` are borrowed. InvalidArgument: a file is not as it must be.
  static absl::StatusOr<std::unique_ptr<TcpAccess>> Open(const Options& options, ServerState* state,
                                                         const Log* log);
  ~TcpAccess();
  TcpAccess(const TcpAccess&) = delete;
  TcpAccess& operator=(const TcpAccess&) = delete;

  // A reload has two steps. LoadCredentials may fail, and changes nothing.
  static absl::StatusOr<std::shared_ptr<Credentials>> LoadCredentials(const Options& options);
  void SetCredentials(std::shared_ptr<Credentials> credentials);

  TcpCallers* callers() { return callers_.get(); }
  const std::shared_ptr<TlsIdentity>& tls() const { return tls_; }  // null: plaintext
  // Returns the same certificate with the CA of the fleet's nodes; null: there are none.
  const std::shared_ptr<TlsIdentity>& fleet_tls() const { return fleet_tls_; }

 private:
  TcpAccess(ServerState* state, const Log* log) : state_(state), log_(log) {}
  void Watch();
  void Reload();
  void Tell(const std::string& file, const absl::Status& status);
  void TellIdentity(const char* message);

  ServerState* const state_;
  const Log* const log_;
  std::shared_ptr<TlsIdentity> tls_, fleet_tls_;
  std::unique_ptr<TcpCallers> callers_;
  Mutex mu_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watcher_;
};

}  // namespace kvkeep
