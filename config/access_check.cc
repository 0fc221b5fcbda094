// Finds conflicts between the keys for access over TCP (cross_check.h).
#include <absl/algorithm/container.h>
#include <absl/container/flat_hash_map.h>
#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>

#include <utility>

#include "config/cross_check.h"
#include "config/values.h"

namespace kvkeep {
namespace {

using Conflicts = std::vector<Conflict>;

struct KeyedAccess {
  std::string prefix;  // of its keys: "listen.", "tenants[1]."
  const AccessConfig* access;
  const std::string* local_path;
};

std::vector<KeyedAccess> AllAccess(const Config& config) {
  std::vector<KeyedAccess> all = {{"listen.", &config.listen.access, &config.listen.local_path}};
  for (size_t i = 0; i < config.tenants.size(); ++i) {
    all.push_back({absl::StrCat("tenants[", i, "]."), &config.tenants[i].access,
                   &config.tenants[i].local_path});
  }
  return all;
}

void CheckTlsFiles(const Config& config, Conflicts& conflicts) {
  const TlsConfig& tls = config.tls;
  const bool cert = !tls.cert_file.empty(), key = !tls.key_file.empty();
  if (cert != key) {
    const std::string set = cert ? "tls.cert_file" : "tls.key_file";
    const std::string missing = cert ? "tls.key_file" : "tls.cert_file";
    AddConflict(conflicts, {set, missing},
                absl::StrCat(set, ": is of no use without ", missing, "; set both"));
  }
  if (!tls.client_ca_file.empty() && !cert && !key) {
    AddConflict(conflicts, {"tls.client_ca_file", "tls.cert_file"},
                "tls.client_ca_file: without tls.cert_file and tls.key_file there is no "
                "TLS that clients could show a certificate in; set them");
  }
  if (!tls.client_crl_file.empty() && tls.client_ca_file.empty()) {
    AddConflict(conflicts, {"tls.client_crl_file", "tls.client_ca_file"},
                "tls.client_crl_file: clients show no certificate without tls.client_ca_file; set "
                "it");
  }
  if (cert && config.listen.tcp_address.empty()) {
    AddConflict(conflicts, {"tls.cert_file", "listen.tcp"},
                "tls.cert_file: there is no TCP address to use it on; set listen.tcp");
  }
}

void CheckPlaintext(const Config& config, Conflicts& conflicts) {
  const ListenConfig& listen = config.listen;
  const bool tls = !config.tls.cert_file.empty();
  if (listen.tcp_insecure_plaintext && tls) {
    AddConflict(conflicts, {"listen.tcp_insecure_plaintext", "tls.cert_file"},
                "listen.tcp_insecure_plaintext: says that there is no TLS, and "
                "tls.cert_file that there is; remove one");
  }
  if (listen.tcp_address.empty() || IsLoopbackAddress(listen.tcp_address) || tls) return;
  if (!listen.tcp_insecure_plaintext) {
    AddConflict(
        conflicts, {"listen.tcp", "listen.tcp_insecure_plaintext", "tls.cert_file"},
        absl::StrCat("listen.tcp: ", QuoteForMessage(listen.tcp_address),
                     " is not a loopback address, and without TLS whoever reaches it may read and "
                     "delete everything; set tls.cert_file and tls.key_file, or listen on "
                     "127.0.0.1 or [::1], or say listen.tcp_insecure_plaintext: true"));
    return;
  }
  for (const KeyedAccess& tenant : AllAccess(config)) {
    if (tenant.access->token_file.empty()) continue;
    const std::string key = tenant.prefix + "token_file";
    AddConflict(conflicts, {key, "listen.tcp"},
                absl::StrCat(key,
                             ": without TLS everybody on the way would read the tokens; set "
                             "tls.cert_file and tls.key_file"));
  }
}

void CheckBulk(const Config& config, Conflicts& conflicts) {
  const ListenConfig& listen = config.listen;
  const std::string& bulk = listen.bulk_tcp_address;
  if (bulk.empty()) return;
  if (listen.tcp_address.empty()) {
    AddConflict(conflicts, {"listen.bulk_tcp", "listen.tcp"},
                "listen.bulk_tcp: needs listen.tcp, where its clients open their sessions");
  }
  if (bulk == listen.tcp_address && !absl::EndsWith(bulk, ":0")) {
    AddConflict(conflicts, {"listen.bulk_tcp", "listen.tcp"},
                "listen.bulk_tcp: is the same address as listen.tcp; give it another port");
  }
  const bool safe = !config.tls.cert_file.empty() || listen.tcp_insecure_plaintext;
  if (safe || IsLoopbackAddress(bulk)) return;
  AddConflict(conflicts, {"listen.bulk_tcp", "tls.cert_file"},
              absl::StrCat("listen.bulk_tcp: ", QuoteForMessage(bulk),
                           " is not a loopback address, and there is no TLS; set tls.cert_file "
                           "and tls.key_file, or listen on 127.0.0.1 or [::1]"));
}

// Checks that configured clients can connect, and that no others can.
void CheckCallers(const Config& config, Conflicts& conflicts) {
  const ListenConfig& listen = config.listen;
  bool somebody = false;
  for (const KeyedAccess& tenant : AllAccess(config)) {
    const AccessConfig& access = *tenant.access;
    const bool names = !access.certificate_names.empty(), tokens = !access.token_file.empty();
    somebody = somebody || names || tokens;
    if (names && config.tls.client_ca_file.empty()) {
      const std::string key = tenant.prefix + "certificate_names";
      AddConflict(conflicts, {key, "tls.client_ca_file"},
                  absl::StrCat(key,
                               ": clients show no certificate without "
                               "tls.client_ca_file; set it"));
    }
    const auto any = [](const std::string& name) {
      return name == "any" || absl::StartsWith(name, "any ");
    };
    if (!config.fleet.node.empty() && absl::c_any_of(access.certificate_names, any)) {
      const std::string key = tenant.prefix + "certificate_names";
      AddConflict(conflicts, {key, "fleet.node"},
                  absl::StrCat(key, ": any would make each node of the fleet a client; name them"));
    }
    if (tokens && listen.tcp_address.empty()) {
      const std::string key = tenant.prefix + "token_file";
      AddConflict(conflicts, {key, "listen.tcp"},
                  absl::StrCat(key, ": tokens are for TCP, and listen.tcp is not set"));
    }
    if (access.socket_grant == GrantChoice::kWrite && !tenant.local_path->empty()) {
      const std::string key = tenant.prefix + "socket_grant", local = tenant.prefix + "local";
      AddConflict(conflicts, {key, local},
                  absl::StrCat(key, ": write: a client by ", local,
                               " maps the tenant's G2 and reads it; set ", local, ": \"\""));
    }
  }
  if (!config.tls.admin_certificate_names.empty() && config.tls.client_ca_file.empty()) {
    AddConflict(conflicts, {"tls.admin_certificate_names", "tls.client_ca_file"},
                "tls.admin_certificate_names: clients show no certificate without "
                "tls.client_ca_file; set it");
  }
  // With peers, nobody else comes in unless a tenant has credentials.
  somebody = somebody || !config.fleet.node.empty();
  if (somebody || config.tls.cert_file.empty() || listen.tcp_address.empty()) return;
  if (!config.tls.client_ca_file.empty()) {
    AddConflict(conflicts, {"tls.client_ca_file", "listen.certificate_names"},
                "tls.client_ca_file: no certificate belongs to a tenant yet; set "
                "listen.certificate_names (any: each that it signed), or a tenant's");
  } else if (!IsLoopbackAddress(listen.tcp_address)) {
    AddConflict(
        conflicts, {"tls.cert_file", "listen.token_file", "listen.certificate_names"},
        "tls.cert_file: TLS alone admits every client; identify clients with listen.token_file, or "
        "tls.client_ca_file and listen.certificate_names, or a tenant's");
  }
}

void CheckNamesDiffer(const Config& config, Conflicts& conflicts) {
  absl::flat_hash_map<std::string, std::string> keys;  // of the names seen
  for (const KeyedAccess& tenant : AllAccess(config)) {
    const std::string key = tenant.prefix + "certificate_names";
    for (const std::string& entry : tenant.access->certificate_names) {
      const absl::string_view name = absl::string_view(entry).substr(0, entry.find(' '));
      const auto [seen, is_new] = keys.try_emplace(absl::AsciiStrToLower(name), key);
      if (is_new) continue;
      AddConflict(conflicts, {key, seen->second},
                  absl::StrCat(key, ": ", QuoteForMessage(name), " is also in ", seen->second,
                               "; a name is one tenant's, once"));
    }
  }
}

}  // namespace

void FindAccessConflicts(const Config& config, std::vector<Conflict>& conflicts) {
  CheckTlsFiles(config, conflicts);
  CheckPlaintext(config, conflicts);
  CheckBulk(config, conflicts);
  CheckCallers(config, conflicts);
  CheckNamesDiffer(config, conflicts);
}

}  // namespace kvkeep
