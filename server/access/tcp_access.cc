#include "server/access/tcp_access.h"

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <pthread.h>

#include "config/values.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr std::chrono::seconds kLookEvery{1};

}  // namespace

absl::StatusOr<std::unique_ptr<TcpAccess>> TcpAccess::Open(const Options& options,
                                                           ServerState* state, const Log* log) {
  std::unique_ptr<TcpAccess> access(new TcpAccess(state, log));
  const bool tls = !options.tls.cert_file.empty();
  if (tls) {
    KVKEEP_RETURN_IF_ERROR(AllowTls13Only());
    KVKEEP_ASSIGN_OR_RETURN(access->tls_, TlsIdentity::Load(options.tls));
    access->TellIdentity("TLS is on");
    if (!options.fleet_ca_file.empty()) {
      TlsFiles fleet = options.tls;
      fleet.client_ca_file = options.fleet_ca_file;
      KVKEEP_ASSIGN_OR_RETURN(access->fleet_tls_, TlsIdentity::Load(fleet));
    }
  }
  KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<Credentials> credentials, LoadCredentials(options));
  const bool loopback = IsLoopbackAddress(options.address);
  if (!tls && !loopback) {
    log->Warn("TCP without TLS: anyone who reaches the port may read, change and delete everything",
              {{"address", options.address}, {"because", "listen.tcp_insecure_plaintext"}});
  }
  std::shared_ptr<ClientCertificates> certificates;
  if (tls && access->tls_->wants_client_certificates()) {
    certificates = std::make_shared<ClientCertificates>(access->tls_);
  }
  access->callers_ = std::make_unique<TcpCallers>(
      TcpCallers::Options{.tls = tls,
                          .loopback = loopback,
                          .certificates = std::move(certificates),
                          .admin_certificate_names = options.admin_certificate_names},
      std::move(credentials), state, log);
  access->watcher_ = std::thread([raw = access.get()] { raw->Watch(); });
  return access;
}

absl::StatusOr<std::shared_ptr<Credentials>> TcpAccess::LoadCredentials(const Options& options) {
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<Credentials> loaded,
                          Credentials::Load(options.tenants, options.fleet_ca_file.empty()));
  return std::shared_ptr<Credentials>(std::move(loaded));
}

void TcpAccess::SetCredentials(std::shared_ptr<Credentials> credentials) {
  callers_->SetCredentials(std::move(credentials));
}

TcpAccess::~TcpAccess() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  if (watcher_.joinable()) watcher_.join();
}

void TcpAccess::Watch() {
  pthread_setname_np(pthread_self(), "kvkeep-access");
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!stopping_) stop_.WaitFor(&mu_, kLookEvery);
      if (stopping_) return;
    }
    Reload();
  }
}

void TcpAccess::Reload() {
  for (const Credentials::News& news : callers_->credentials()->Reload()) {
    Tell(news.file, news.status);
  }
  if (tls_ == nullptr) return;
  if (fleet_tls_ != nullptr) {
    const std::optional<absl::Status> fleets = fleet_tls_->Reload();
    if (fleets.has_value()) Tell("the fleet's tls", *fleets);
  }
  const std::optional<absl::Status> changed = tls_->Reload();
  if (!changed.has_value()) return;
  Tell("tls", *changed);
  if (changed->ok()) TellIdentity("new connections get the new certificate");
}

void TcpAccess::Tell(const std::string& file, const absl::Status& status) {
  ServerCounters& counters = state_->counters;
  (status.ok() ? counters.credential_reloads : counters.credential_reload_failures)
      .fetch_add(1, std::memory_order_relaxed);
  if (status.ok()) return log_->Info("credentials read again", {{"file", file}});
  log_->Error("changed credentials cannot be used; the previous ones stay in use",
              {{"reason", std::string(status.message())}});
}

void TcpAccess::TellIdentity(const char* message) {
  const std::shared_ptr<const TlsIdentity::Material> now = tls_->current();
  state_->counters.tls_not_after_seconds.store(static_cast<uint64_t>(now->not_after));
  const std::string until =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromTimeT(now->not_after), absl::UTCTimeZone());
  const Log::Fields fields = {
      {"serial", now->serial},
      {"not_after", until},
      {"client_certificates", tls_->wants_client_certificates() ? "required" : "not asked for"}};
  if (tls_->expired()) return log_->Warn("the TLS certificate has expired", fields);
  log_->Info(message, fields);
}

}  // namespace kvkeep
