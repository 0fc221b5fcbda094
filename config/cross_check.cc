#include "config/cross_check.h"

#include <absl/container/flat_hash_map.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "config/values.h"
#include "tiers/policy/admission_policy.h"

namespace kvkeep {

void AddConflict(std::vector<Conflict>& conflicts, std::vector<std::string> keys,
                 absl::string_view message) {
  conflicts.push_back({std::move(keys), std::string(message)});
}

namespace {

struct KeyAndPath {
  std::string key, path;
};

// Returns the path as the file system reads it, symbolic links aside: "/a//b/." is "/a/b".
std::string Normal(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

bool IsInside(const std::string& inner, const std::string& outer) {
  return absl::StartsWith(inner, outer == "/" ? "/" : absl::StrCat(outer, "/"));
}

// Shares are decimal fractions in binary: 10% of 10 segments must be one.
constexpr double kShareSlack = 1e-9;
constexpr uint64_t kSegmentUnit = 2 * kMiB;

// Says what to do when `share` is less than a segment.
std::string SmallShareAdvice(const Config& config, double share) {
  const auto bytes =
      static_cast<uint64_t>((share + kShareSlack) * static_cast<double>(config.g2.capacity_bytes));
  // Halves of what divides g2.capacity divide it too.
  uint64_t segment = config.g2.segment_bytes;
  while (segment > bytes || segment % kSegmentUnit != 0) segment /= 2;
  if (segment < kSegmentUnit) return "raise it";
  return absl::StrCat("raise it, or lower g2.segment_bytes to ", FormatSize(segment));
}

void CheckG3Paths(const Config& config, std::vector<Conflict>& conflicts) {
  std::vector<KeyAndPath> dirs;
  for (size_t i = 0; i < config.g3.paths.size(); ++i) {
    dirs.push_back({absl::StrCat("g3.paths[", i, "].dir"), Normal(config.g3.paths[i].dir)});
  }
  for (size_t i = 0; i < dirs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const char* how = dirs[i].path == dirs[j].path           ? "is the same directory as "
                        : IsInside(dirs[i].path, dirs[j].path) ? "is inside "
                        : IsInside(dirs[j].path, dirs[i].path) ? "contains "
                                                               : nullptr;
      if (how == nullptr) continue;
      AddConflict(conflicts, {dirs[i].key, dirs[j].key},
                  absl::StrCat(dirs[i].key, ": ", QuoteForMessage(dirs[i].path), " ", how,
                               dirs[j].key, "; every path needs a directory of its own"));
    }
    if (dirs[i].path == Normal(config.state.dir)) {
      AddConflict(conflicts, {dirs[i].key, "state.dir"},
                  absl::StrCat(dirs[i].key, ": ", QuoteForMessage(dirs[i].path),
                               " is also state.dir; a path of G3 needs a directory of its own"));
    }
  }
}

void CheckAdmission(const G3Config& g3, std::vector<Conflict>& conflicts) {
  if (g3.admission != "write_budget") return;
  if (g3.write_budget_bytes_per_second > 0 || g3.endurance_tbw > 0) return;
  AddConflict(
      conflicts, {"g3.admission", "g3.write_budget_bytes_per_second", "g3.endurance_tbw"},
      "g3.admission: write_budget needs g3.write_budget_bytes_per_second, or g3.endurance_tbw");
}

void CheckArena(const G2Config& g2, std::vector<Conflict>& conflicts) {
  const bool has_dir = !g2.arena_dir.empty();
  const bool has_readonly = !g2.arena_readonly_dir.empty();
  if (g2.arena == ArenaChoice::kMount && (!has_dir || !has_readonly)) {
    const std::string missing = has_dir        ? "g2.arena_readonly_dir is"
                                : has_readonly ? "g2.arena_dir is"
                                               : "g2.arena_dir and g2.arena_readonly_dir are";
    AddConflict(conflicts, {"g2.arena", "g2.arena_dir", "g2.arena_readonly_dir"},
                absl::StrCat("g2.arena: mount needs both directories, but ", missing, " not set"));
  } else if (has_dir != has_readonly) {
    const std::string set = has_dir ? "g2.arena_dir" : "g2.arena_readonly_dir";
    const std::string missing = has_dir ? "g2.arena_readonly_dir" : "g2.arena_dir";
    AddConflict(conflicts, {set, missing},
                absl::StrCat(set, ": is of no use without ", missing, "; set both"));
  }
  if (has_dir && Normal(g2.arena_dir) == Normal(g2.arena_readonly_dir)) {
    AddConflict(
        conflicts, {"g2.arena_readonly_dir", "g2.arena_dir"},
        "g2.arena_readonly_dir: is the same directory as g2.arena_dir; it must be a read-only bind "
        "mount of it");
  }
}

// Finds keys that are of no use without G4.
void CheckNoG4(const Config& config, std::vector<Conflict>& conflicts) {
  const auto check = [&](const std::string& key, bool is_set) {
    if (!is_set) return;
    AddConflict(conflicts, {key, "g4.url"},
                absl::StrCat(key, ": is of no use without g4.url; set both"));
  };
  check("fleet.previous_key_files", !config.fleet.previous_key_files.empty());
  for (size_t i = 0; i < config.tenants.size(); ++i) {
    check(absl::StrCat("tenants[", i, "].g4_key_file"), !config.tenants[i].g4_key_file.empty());
  }
}

// Checks that the named source of keys has what it needs, and that nothing is set for other
// sources.
void CheckG4Keys(const G4Config& g4, std::vector<Conflict>& conflicts) {
  const auto check = [&](const std::string& source, const std::string& key,
                         const std::string& value) {
    if (g4.credentials == source && value.empty()) {
      AddConflict(conflicts, {"g4.credentials", key},
                  absl::StrCat("g4.credentials: ", source, " needs ", key));
    }
    if (g4.credentials != "auto" && g4.credentials != source && !value.empty()) {
      AddConflict(conflicts, {key, "g4.credentials"},
                  absl::StrCat(key, ": is of no use with g4.credentials: ", g4.credentials));
    }
  };
  check("file", "g4.credentials_file", g4.credentials_file);
  check("process", "g4.credential_process", g4.credential_process);
  if (g4.credentials == "auto" && !g4.credentials_file.empty() && !g4.credential_process.empty()) {
    AddConflict(conflicts, {"g4.credential_process", "g4.credentials_file"},
                "g4.credential_process: is of no use with g4.credentials_file; set one of them");
  }
}

void CheckG4(const Config& config, std::vector<Conflict>& conflicts) {
  const FleetConfig& fleet = config.fleet;
  const auto lifetime = config.g4.lifetime;
  if (lifetime.count() != 0 && lifetime < std::chrono::hours(1)) {
    AddConflict(conflicts, {"g4.lifetime"},
                "g4.lifetime: is shorter than an hour; write 0 if objects do not expire");
  }
  CheckG4Keys(config.g4, conflicts);
  if (config.g4.url.empty()) return CheckNoG4(config, conflicts);
  if (fleet.name.empty() || fleet.key_file.empty()) {
    AddConflict(conflicts, {"g4.url", "fleet.name", "fleet.key_file"},
                "g4.url: needs fleet.name and fleet.key_file, which the nodes that share it have "
                "in common");
  }
  if (absl::StartsWith(config.g4.url, "file://") && !config.g4.prefix.empty()) {
    AddConflict(conflicts, {"g4.prefix", "g4.url"},
                "g4.prefix: is of a bucket; name a directory of its own in g4.url");
  }
}

// Checks that a node with peers has what mutual TLS takes.
void CheckPeers(const Config& config, std::vector<Conflict>& conflicts) {
  const FleetConfig& fleet = config.fleet;
  if (fleet.node.empty()) {
    const auto check = [&](const std::string& key, bool is_set) {
      if (!is_set) return;
      AddConflict(conflicts, {key, "fleet.node"},
                  absl::StrCat(key, ": is of no use without fleet.node; set both"));
    };
    check("fleet.peers", !fleet.peers.empty());
    check("fleet.peers_file", !fleet.peers_file.empty());
    check("fleet.ca_file", !fleet.ca_file.empty());
    check("drain.to_peers", config.drain.to_peers);
    return;
  }
  const auto needs = [&](const std::string& key, const std::string& value) {
    if (!value.empty()) return;
    AddConflict(conflicts, {"fleet.node", key}, absl::StrCat("fleet.node: needs ", key));
  };
  needs("fleet.name", fleet.name);
  needs("fleet.key_file", fleet.key_file);
  needs("fleet.ca_file", fleet.ca_file);
  needs("listen.tcp", config.listen.tcp_address);
  needs("tls.cert_file", config.tls.cert_file);
  needs("tls.client_ca_file", config.tls.client_ca_file);
}

// The endpoints of one tenant's events, set or not.
struct EventListener {
  std::string prefix;  // of its keys
  const std::string& publish;
  const std::string& replay;
};

// Returns the default tenant's endpoints, then those of the others.
std::vector<EventListener> EventListeners(const Config& config) {
  std::vector<EventListener> listeners = {
      {"events.", config.events.zmq_endpoint, config.events.zmq_replay_endpoint}};
  for (size_t i = 0; i < config.tenants.size(); ++i) {
    const TenantConfig& tenant = config.tenants[i];
    listeners.push_back(
        {absl::StrCat("tenants[", i, "]."), tenant.zmq_endpoint, tenant.zmq_replay_endpoint});
  }
  return listeners;
}

// Returns an empty path if the endpoint is no Unix socket.
std::string IpcPath(absl::string_view endpoint) {
  return absl::ConsumePrefix(&endpoint, "ipc://") ? std::string(endpoint) : "";
}

// Each publisher has an equal part of the queued bytes. With less than this its queues are short of
// messages, and replays hold next to nothing.
constexpr uint64_t kLeastQueuedBytes = 4 * kMiB;

void CheckQueuedBytes(const Config& config, std::vector<Conflict>& conflicts) {
  std::vector<std::string> keys = {"events.queued_bytes"};
  for (const EventListener& listener : EventListeners(config)) {
    if (!listener.publish.empty()) keys.push_back(listener.prefix + "zmq");
  }
  const uint64_t least = (keys.size() - 1) * kLeastQueuedBytes;
  if (config.events.queued_bytes >= least) return;
  AddConflict(
      conflicts, keys,
      absl::StrCat("events.queued_bytes: ", FormatSize(config.events.queued_bytes), " for ",
                   keys.size() - 1, " tenants' events; each wants ", FormatSize(kLeastQueuedBytes),
                   ", so give at least ", FormatSize(least)));
}

void CheckEncryption(const EncryptionConfig& encryption, std::vector<Conflict>& conflicts) {
  if (encryption.previous_master_key_files.empty() || !encryption.master_key_file.empty()) return;
  AddConflict(
      conflicts, {"encryption.previous_master_key_files", "encryption.master_key_file"},
      "encryption.previous_master_key_files: is of no use without encryption.master_key_file, and "
      "nothing would be encrypted; set both");
}

// Returns every socket, in the order in which conflicts are reported.
std::vector<KeyAndPath> Sockets(const Config& config) {
  std::vector<KeyAndPath> sockets = {{"listen.unix", config.listen.unix_path},
                                     {"listen.local", config.listen.local_path},
                                     {"listen.bulk", config.listen.bulk_path},
                                     {"listen.admin", config.listen.admin_path},
                                     {"metrics.unix", config.metrics.unix_path}};
  for (size_t i = 0; i < config.tenants.size(); ++i) {
    sockets.push_back({absl::StrCat("tenants[", i, "].unix"), config.tenants[i].unix_path});
    sockets.push_back({absl::StrCat("tenants[", i, "].local"), config.tenants[i].local_path});
    sockets.push_back({absl::StrCat("tenants[", i, "].bulk"), config.tenants[i].bulk_path});
  }
  for (const EventListener& listener : EventListeners(config)) {
    sockets.push_back({listener.prefix + "zmq", IpcPath(listener.publish)});
    sockets.push_back({listener.prefix + "zmq_replay", IpcPath(listener.replay)});
  }
  std::erase_if(sockets, [](const KeyAndPath& socket) { return socket.path.empty(); });
  for (KeyAndPath& socket : sockets) socket.path = Normal(socket.path);
  return sockets;
}

void CheckSockets(const Config& config, std::vector<Conflict>& conflicts) {
  absl::flat_hash_map<std::string, std::string> keys;  // of the paths seen
  for (const KeyAndPath& socket : Sockets(config)) {
    const auto [seen, is_new] = keys.try_emplace(socket.path, socket.key);
    if (is_new) continue;
    const char* why = socket.key == "listen.admin" ? "admin calls need a socket of their own"
                                                   : "every listener needs a socket of its own";
    AddConflict(conflicts, {socket.key, seen->second},
                absl::StrCat(socket.key, ": is the same socket as ", seen->second, "; ", why));
  }
}

void CheckTenantNames(const Config& config, std::vector<Conflict>& conflicts) {
  absl::flat_hash_map<std::string, std::string> keys;  // of the names seen
  for (size_t i = 0; i < config.tenants.size(); ++i) {
    const std::string key = absl::StrCat("tenants[", i, "].name");
    const auto [seen, is_new] = keys.try_emplace(config.tenants[i].name, key);
    if (is_new) continue;
    AddConflict(conflicts, {key, seen->second},
                absl::StrCat(key, ": ", QuoteForMessage(config.tenants[i].name), " is also ",
                             seen->second, "; names tell tenants apart"));
  }
}

void CheckTenantShares(const Config& config, std::vector<Conflict>& conflicts) {
  if (config.tenants.empty()) return;
  const uint64_t segment = config.g2.segment_bytes;
  std::vector<std::string> keys;
  double sum = 0;
  for (size_t i = 0; i < config.tenants.size(); ++i) {
    keys.push_back(absl::StrCat("tenants[", i, "].g2_share"));
    sum += config.tenants[i].g2_share;
  }
  if (sum > 1 - 100 * kShareSlack) {
    AddConflict(conflicts, keys,
                absl::StrCat("tenants: their g2_share is ", FormatFraction(sum),
                             " together; leave a part of g2.capacity to the default tenant"));
    return;
  }
  if (config.g2.capacity_bytes % segment != 0) {
    AddConflict(
        conflicts, {"g2.capacity", "g2.segment_bytes", "tenants"},
        absl::StrCat("g2.capacity: ", FormatSize(config.g2.capacity_bytes),
                     " is no multiple of g2.segment_bytes, ", FormatSize(segment),
                     ", and tenants have whole segments; round it, or make segments smaller"));
    return;
  }
  const std::vector<uint64_t> segments = TenantSegments(config);
  for (size_t i = 0; i < config.tenants.size(); ++i) {
    if (segments[i + 1] > 0) continue;
    const double share = config.tenants[i].g2_share;
    AddConflict(conflicts, {keys[i], "g2.segment_bytes", "g2.capacity"},
                absl::StrCat(keys[i], ": ", FormatFraction(share), " of g2.capacity, ",
                             FormatSize(config.g2.capacity_bytes), ", is less than a segment of ",
                             FormatSize(segment), "; ", SmallShareAdvice(config, share)));
  }
}

void CheckTenantQuotas(const Config& config, std::vector<Conflict>& conflicts) {
  uint64_t capacity = 0;
  for (const G3PathConfig& path : config.g3.paths) capacity += path.capacity_bytes;
  std::vector<std::string> keys;
  uint64_t sum = 0;
  for (size_t i = 0; i < config.tenants.size(); ++i) {
    if (config.tenants[i].g3_quota_bytes == 0) continue;
    keys.push_back(absl::StrCat("tenants[", i, "].g3_quota"));
    sum += config.tenants[i].g3_quota_bytes;
  }
  if (sum <= capacity) return;
  AddConflict(
      conflicts, keys,
      absl::StrCat("tenants: their g3_quota is ", FormatSize(sum),
                   " together, and the capacity of all g3.paths ", FormatSize(capacity),
                   "; a quota is kept free from others, so they cannot be more than there is"));
}

void CheckReaders(const Config& config, std::vector<Conflict>& conflicts) {
  std::vector<std::string> names = {"default"};
  for (const TenantConfig& tenant : config.tenants) names.push_back(tenant.name);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string key =
        i == 0 ? "listen.readers" : absl::StrCat("tenants[", i - 1, "].readers");
    const AccessConfig& access = i == 0 ? config.listen.access : config.tenants[i - 1].access;
    for (const std::string& reader : access.readers) {
      if (reader == names[i]) {
        AddConflict(conflicts, {key},
                    absl::StrCat(key, ": ", QuoteForMessage(reader),
                                 " is this tenant itself, whose clients read by their own grants"));
      } else if (std::find(names.begin(), names.end(), reader) == names.end()) {
        AddConflict(conflicts, {key, "tenants"},
                    absl::StrCat(key, ": ", QuoteForMessage(reader), " is no tenant's name"));
      }
    }
  }
}

// Finds limits of a tenant that promise more than there is.
void CheckTenantLimits(const Config& config, std::vector<Conflict>& conflicts) {
  const std::vector<uint64_t> segments = TenantSegments(config);
  const auto staging =
      static_cast<uint64_t>(config.limits.staging * static_cast<double>(config.g2.capacity_bytes));
  for (size_t i = 0; i < segments.size(); ++i) {
    const std::string tenant = i == 0 ? "listen" : absl::StrCat("tenants[", i - 1, "]");
    const TenantLimitsConfig& limits = i == 0 ? config.listen.limits : config.tenants[i - 1].limits;
    const uint64_t own = std::min(segments[i] * config.g2.segment_bytes, config.g2.capacity_bytes);
    if (limits.leased_bytes > own) {
      const std::string key = absl::StrCat(tenant, ".leased_bytes");
      AddConflict(
          conflicts, {key, "g2.capacity", "tenants"},
          absl::StrCat(key, ": ", FormatSize(limits.leased_bytes),
                       " is more than this tenant's part of g2.capacity, ", FormatSize(own)));
    }
    if (limits.staging_bytes > staging) {
      const std::string key = absl::StrCat(tenant, ".staging");
      AddConflict(
          conflicts, {key, "limits.staging", "g2.capacity"},
          absl::StrCat(key, ": ", FormatSize(limits.staging_bytes),
                       " is more than limits.staging allows to all, ", FormatSize(staging)));
    }
  }
}

}  // namespace

std::vector<uint64_t> TenantSegments(const Config& config) {
  const uint64_t all = DivideRoundUp(config.g2.capacity_bytes, config.g2.segment_bytes);
  std::vector<uint64_t> segments = {all};
  for (const TenantConfig& tenant : config.tenants) {
    const double exact = tenant.g2_share * static_cast<double>(all);
    const auto whole = static_cast<uint64_t>(exact + kShareSlack);
    segments.push_back(whole);
    segments[0] -= std::min(whole, segments[0]);
  }
  return segments;
}

uint64_t WriteBudget(const G3Config& g3) {
  if (g3.endurance_tbw == 0) return g3.write_budget_bytes_per_second;
  const double endured = EnduranceBytesPerSecond(static_cast<double>(g3.endurance_tbw),
                                                 static_cast<double>(g3.endurance_years));
  const auto lasting = std::max<uint64_t>(1, static_cast<uint64_t>(endured));
  const uint64_t said = g3.write_budget_bytes_per_second;
  return said == 0 ? lasting : std::min(said, lasting);
}

void CheckEvents(const Config& config, std::vector<Conflict>& conflicts) {
  // The keys of the addresses seen; CheckSockets checks paths.
  absl::flat_hash_map<std::string, std::string> keys;
  const std::vector<EventListener> listeners = EventListeners(config);
  for (const EventListener& listener : listeners) {
    const std::string publish_key = listener.prefix + "zmq",
                      replay_key = listener.prefix + "zmq_replay";
    if (listener.publish.empty() && !listener.replay.empty()) {
      AddConflict(conflicts, {replay_key, publish_key},
                  absl::StrCat(replay_key, ": is of no use without ", publish_key, "; set both"));
    }
    const std::pair<const std::string&, const std::string&> endpoints[] = {
        {publish_key, listener.publish}, {replay_key, listener.replay}};
    for (const auto& [key, endpoint] : endpoints) {
      absl::string_view address = endpoint;
      if (!absl::ConsumePrefix(&address, "tcp://")) continue;
      if (const auto [seen, is_new] = keys.try_emplace(endpoint, key); !is_new) {
        AddConflict(
            conflicts, {key, seen->second},
            absl::StrCat(key, ": is the same as ", seen->second,
                         "; a router tells tenants, and answers from events, by their endpoints"));
      }
      if (config.events.zmq_insecure) continue;
      // On loopback every local user reads them, other tenants' users too.
      const bool loopback = IsLoopbackAddress(address),
                 default_tenant = &listener == &listeners.front();
      if (loopback && default_tenant) continue;
      AddConflict(
          conflicts, {key, "events.zmq_insecure"},
          absl::StrCat(key, ": ", QuoteForMessage(endpoint), " is ",
                       loopback ? "open to every user of this host" : "not a loopback address",
                       ", and whoever reaches it reads the tokens of prompts; take ",
                       default_tenant ? "127.0.0.1 or " : "",
                       "ipc://, or say events.zmq_insecure: true"));
    }
  }
}

std::vector<Conflict> FindConflicts(const Config& config) {
  std::vector<Conflict> conflicts;
  CheckSockets(config, conflicts);
  CheckTenantNames(config, conflicts);
  CheckTenantShares(config, conflicts);
  CheckTenantQuotas(config, conflicts);
  CheckTenantLimits(config, conflicts);
  CheckReaders(config, conflicts);
  CheckArena(config.g2, conflicts);
  CheckG3Paths(config, conflicts);
  CheckAdmission(config.g3, conflicts);
  CheckEncryption(config.encryption, conflicts);
  CheckG4(config, conflicts);
  CheckPeers(config, conflicts);
  CheckEvents(config, conflicts);
  CheckQueuedBytes(config, conflicts);
  FindAccessConflicts(config, conflicts);
  // Port 0 is any free one, so two of them are two ports.
  if (!config.listen.tcp_address.empty() &&
      config.listen.tcp_address == config.metrics.listen_address &&
      !absl::EndsWith(config.listen.tcp_address, ":0")) {
    AddConflict(conflicts, {"metrics.listen", "listen.tcp"},
                "metrics.listen: is the same address as listen.tcp; give it another port");
  }
  return conflicts;
}

}  // namespace kvkeep
