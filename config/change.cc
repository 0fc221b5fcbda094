#include "config/change.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "config/schema.h"

namespace kvkeep {
namespace {

// These values are read whenever they matter, and no client was told an earlier one.
constexpr const char* kLive[] = {
    "listen.certificate_names",
    "listen.token_file",
    "listen.keys_per_second",
    "listen.bytes_per_second",
    "listen.leased_bytes",
    "listen.connections",
    "tenants[].certificate_names",
    "tenants[].token_file",
    "tenants[].g3_quota",
    "tenants[].keys_per_second",
    "tenants[].bytes_per_second",
    "tenants[].leased_bytes",
    "tenants[].connections",
    // Limited by the size for which memory and files were made.
    "g2.capacity",
    "g3.paths[].capacity",
    "g2.dirty_budget",
    "g3.admission",
    "g3.scrub_bytes_per_second",
    "g3.write_budget_bytes_per_second",
    "g3.endurance_tbw",
    "g3.endurance_years",
    "g4.write_bytes_per_second",
    "remote.probes_per_second",
    "limits.sessions",
    "limits.leases_per_session",
    "limits.leased_bytes",
    "limits.reserved_bytes",
    "limits.connections",
    "limits.connections_per_address",
    "limits.receive_memory",
    "limits.call_memory",
    "limits.resets_per_second",
    "limits.pinned_bytes",
    "limits.stall_timeout",
    "log.level",
    "log.slow_operation",
    "drain.timeout",
    "drain.to_peers",
};

constexpr const char* kRestart[] = {
    // Sockets, ports and directories that are open, locked or mapped.
    "listen.unix",
    "listen.local",
    "listen.bulk",
    "listen.socket_mode",
    "listen.socket_group",
    "listen.allowed_uids",
    "listen.allowed_gids",
    "listen.socket_grant",
    "listen.admin",
    "listen.tcp",
    "listen.bulk_tcp",
    "listen.tcp_insecure_plaintext",
    "listen.tcp_connection_age",
    "tls.cert_file",
    "tls.key_file",
    "tls.client_ca_file",
    "tls.client_crl_file",
    "tls.admin_certificate_names",
    "tenants[].unix",
    "tenants[].local",
    "tenants[].bulk",
    "tenants[].socket_mode",
    "tenants[].socket_group",
    "tenants[].allowed_uids",
    "tenants[].allowed_gids",
    "tenants[].socket_grant",
    "metrics.listen",
    "metrics.unix",
    "metrics.socket_group",
    "metrics.token_file",
    "events.zmq",
    "events.zmq_replay",
    "events.form",
    "events.zmq_insecure",
    "events.queued_bytes",
    "tenants[].zmq",
    "tenants[].zmq_replay",
    "state.dir",
    "g3.paths[].dir",
    "g3.paths[].required",
    "encryption.master_key_file",
    "encryption.previous_master_key_files",
    "g4.url",
    "g4.prefix",
    "g4.region",
    "g4.virtual_host",
    "g4.credentials",
    "g4.credentials_file",
    "g4.credential_process",
    "g4.ca_file",
    "g4.proxy",
    "g4.connections",
    "g4.admission",
    "g4.lifetime",
    "g4.epoch",
    "fleet.name",
    "fleet.key_file",
    "fleet.previous_key_files",
    "fleet.node",
    "fleet.peers",
    "fleet.peers_file",
    "fleet.ca_file",
    "fleet.serve_bytes_per_second",
    "listen.shared",
    "tenants[].shared",
    "tenants[].g4_key_file",
    "gpu.mode",
    "log.format",
    // Sizes that memory, files and tables were made for.
    "g2.segment_bytes",
    "g2.arena",
    "g2.arena_dir",
    "g2.arena_readonly_dir",
    "g2.numa",
    "g2.policy",
    "g2.copy_threads",
    "g3.policy",
    "g3.write_policy",
    "g3.io",
    "limits.max_chunks",
    "tenants[].name",
    "tenants[].g2_share",
    // Tenants that share memory.
    "listen.readers",
    "tenants[].readers",
    "listen.gpus",
    "tenants[].gpus",
    // Values that clients were told, or connections were made with.
    "limits.keys_per_call",
    "limits.peer_timeout",
    "limits.staging_per_session",
    "limits.staging",
    "limits.local_memory",
    "limits.session_grace",
    "limits.busy_poll_us",
    "listen.staging",
    "tenants[].staging",
};

template <size_t kSize>
bool Contains(const char* const (&paths)[kSize], absl::string_view path) {
  return std::any_of(std::begin(paths), std::end(paths),
                     [&](const char* known) { return path == known; });
}

std::string Entries(size_t entries) {
  return absl::StrCat(entries, entries == 1 ? " entry" : " entries");
}

}  // namespace

std::optional<ConfigChange> ChangeOf(absl::string_view path) {
  if (Contains(kLive, path)) return ConfigChange::kLive;
  if (Contains(kRestart, path)) return ConfigChange::kRestart;
  return std::nullopt;
}

std::vector<std::string> ClassifiedPaths() {
  std::vector<std::string> paths(std::begin(kLive), std::end(kLive));
  paths.insert(paths.end(), std::begin(kRestart), std::end(kRestart));
  return paths;
}

std::vector<ConfigDifference> DiffConfigs(const Config& before, const Config& after) {
  Config old_config = before, new_config = after;  // keys are read from what could be written
  std::vector<ConfigDifference> differences;
  for (const ConfigList& list : ConfigLists()) {
    const size_t had = list.size(before), has = list.size(after);
    if (had != has) differences.push_back({list.path, Entries(had), Entries(has)});
  }
  for (const ConfigKey& key : ConfigKeys()) {
    const ConfigList* list = FindConfigList(key.list());
    size_t entries = 1;
    if (list != nullptr) entries = list->size(before) == list->size(after) ? list->size(after) : 0;
    for (size_t entry = 0; entry < entries; ++entry) {
      std::string was = key.get(old_config, entry), is = key.get(new_config, entry);
      if (was == is) continue;
      differences.push_back({key.shown_path(entry), std::move(was), std::move(is),
                             ChangeOf(key.path).value_or(ConfigChange::kRestart)});
    }
  }
  return differences;
}

}  // namespace kvkeep
