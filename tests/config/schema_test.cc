#include "config/schema.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tests/fakes/sanitized.h"
#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

const std::map<std::string, std::string>& G4Samples() {
  static const std::map<std::string, std::string> samples = {
      {"g4.url", "https://s3.example:9000/kvs"},
      {"g4.prefix", "a/b-"},
      {"g4.region", "eu-west-1"},
      {"g4.virtual_host", "true"},
      {"g4.credentials", "web_identity"},
      {"g4.credentials_file", "/etc/s3.credentials"},
      {"g4.credential_process", "/opt/keys --of kvkeep"},
      {"g4.ca_file", "/etc/ca.pem"},
      {"g4.proxy", "http://proxy.example:3128"},
      {"g4.connections", "32"},
      {"g4.write_bytes_per_second", "100MiB"},
      {"g4.admission", "all"},
      {"g4.lifetime", "7d"},
      {"g4.epoch", "7"},
      {"remote.probes_per_second", "50"},
      {"fleet.name", "east"},
      {"fleet.key_file", "/etc/fleet.key"},
      {"fleet.previous_key_files", "[/etc/fleet-1.key]"},
      {"fleet.node", "a.example"},
      {"fleet.peers", "[b.example=10.0.0.2:9400]"},
      {"fleet.peers_file", "/etc/peers"},
      {"fleet.ca_file", "/etc/fleet-ca.pem"},
      {"drain.to_peers", "true"},
      {"fleet.serve_bytes_per_second", "2GiB"},
  };
  return samples;
}

const std::map<std::string, std::string>& WatchingSamples() {
  static const std::map<std::string, std::string> samples = {
      {"metrics.listen", "\"\""},
      {"metrics.unix", "/run/metrics.sock"},
      {"metrics.socket_group", "video"},
      {"metrics.token_file", "/etc/metrics-tokens"},
      {"events.zmq", "ipc:///run/kvkeep/events.sock"},
      {"events.zmq_replay", "tcp://127.0.0.1:5558"},
      {"events.form", "sglang"},
      {"events.zmq_insecure", "true"},
      {"events.queued_bytes", "1GiB"},
  };
  return samples;
}

// Sample values of the keys that tenants have, the default tenant too, and of TLS.
const std::map<std::string, std::string>& TenantSamples() {
  static const std::map<std::string, std::string> samples = {
      {"listen.keys_per_second", "100k"},
      {"listen.bytes_per_second", "3GiB"},
      {"listen.leased_bytes", "1GiB"},
      {"listen.staging", "100MiB"},
      {"listen.connections", "12"},
      {"tenants[].socket_grant", "read"},
      {"tenants[].certificate_names", "[a.example write]"},
      {"tenants[].token_file", "/etc/tokens-a"},
      {"tenants[].name", "a-1"},
      {"tenants[].unix", "/tmp/t.sock"},
      {"tenants[].local", "/tmp/u.sock"},
      {"tenants[].bulk", "/tmp/v.sock"},
      {"listen.bulk", "/tmp/b.sock"},
      {"listen.bulk_tcp", "\"[::1]:50052\""},
      {"tenants[].socket_mode", "0666"},
      {"tenants[].socket_group", "\"12\""},
      {"tenants[].allowed_uids", "[1]"},
      {"tenants[].allowed_gids", "[2, 3]"},
      {"tenants[].g2_share", "12.5%"},
      {"tenants[].g3_quota", "10GiB"},
      {"tenants[].keys_per_second", "1k"},
      {"tenants[].bytes_per_second", "1GiB"},
      {"tenants[].leased_bytes", "2GiB"},
      {"tenants[].staging", "64MiB"},
      {"tenants[].connections", "3"},
      {"tenants[].readers", "[default]"},
      {"tenants[].g4_key_file", "/etc/key-a"},
      {"tenants[].zmq", "ipc:///run/kvkeep/a-events.sock"},
      {"tenants[].zmq_replay", "ipc:///run/kvkeep/a-replay.sock"},
      {"listen.readers", "[t]"},
      {"listen.gpus", "[]"},
      {"listen.shared", "true"},
      {"tenants[].shared", "true"},
      {"listen.tcp_connection_age", "1h"},
      {"tls.cert_file", "/etc/cert.pem"},
      {"tls.key_file", "/etc/key.pem"},
      {"tls.client_ca_file", "/etc/ca.pem"},
      {"tls.admin_certificate_names", "[operator.example]"},
      {"tls.client_crl_file", "/etc/crl.pem"},
      {"tenants[].gpus", "[GPU-b21c0c3e-0000-4000-8000-0123456789ab]"},
  };
  return samples;
}

// A value other than the default for every key there is.
const std::map<std::string, std::string>& Samples() {
  static const std::map<std::string, std::string> samples = [] {
    std::map<std::string, std::string> all = {
        {"listen.unix", "/tmp/x.sock"},
        {"listen.admin", "/tmp/y.sock"},
        {"listen.tcp", "\"[::1]:50051\""},
        {"listen.local", "/tmp/z.sock"},
        {"listen.socket_mode", "0600"},
        {"listen.socket_group", "video"},
        {"listen.allowed_uids", "[0, 4294967295]"},
        {"listen.allowed_gids", "[7]"},
        {"listen.socket_grant", "read"},
        {"listen.certificate_names", "[any, spiffe://x/y read]"},
        {"listen.token_file", "/etc/tokens"},
        {"listen.tcp_insecure_plaintext", "true"},
        {"g2.segment_bytes", "512MiB"},
        {"limits.connections", "9"},
        {"limits.connections_per_address", "5"},
        {"limits.receive_memory", "100MiB"},
        {"limits.call_memory", "64MiB"},
        {"limits.resets_per_second", "50"},
        {"limits.pinned_bytes", "20%"},
        {"limits.stall_timeout", "2s"},
        {"limits.peer_timeout", "5s"},
        {"limits.staging_per_session", "2GiB"},
        {"limits.staging", "7%"},
        {"limits.local_memory", "64MiB"},
        {"limits.session_grace", "1m"},
        {"limits.busy_poll_us", "0"},
        {"g2.capacity", "3GiB"},
        {"g2.arena", "memfd"},
        {"g2.arena_dir", "/mnt/rw"},
        {"g2.arena_readonly_dir", "/mnt/ro"},
        {"g2.numa", "interleave"},
        {"g2.policy", "lru"},
        {"g2.dirty_budget", "12.5%"},
        {"g2.copy_threads", "3"},
        {"g3.paths[].dir", "\"/mnt/a: b\\\\c\""},
        {"g3.paths[].capacity", "2TiB"},
        {"g3.paths[].required", "true"},
        {"g3.policy", "lru"},
        {"g3.write_policy", "eager"},  // the only one
        {"g3.admission", "second_use"},
        {"g3.write_budget_bytes_per_second", "40MiB"},
        {"g3.endurance_tbw", "3650"},
        {"g3.endurance_years", "3"},
        {"g3.io", "threads"},
        {"g3.scrub_bytes_per_second", "8MiB"},
        {"limits.max_chunks", "12345"},
        {"limits.keys_per_call", "64k"},
        {"limits.sessions", "7"},
        {"limits.leases_per_session", "9k"},
        {"limits.leased_bytes", "33%"},
        {"limits.reserved_bytes", "5%"},
        {"log.level", "debug"},
        {"log.format", "json"},
        {"log.slow_operation", "250ms"},
        {"encryption.master_key_file", "/etc/master.key"},
        {"encryption.previous_master_key_files", "[/etc/a.key, /etc/b.key]"},
        {"gpu.mode", "off"},
        {"state.dir", "/var/lib/other"},
        {"drain.timeout", "250ms"},
    };
    all.insert(TenantSamples().begin(), TenantSamples().end());
    all.insert(G4Samples().begin(), G4Samples().end());
    all.insert(WatchingSamples().begin(), WatchingSamples().end());
    return all;
  }();
  return samples;
}

// Returns the settings without which the key at `path` cannot be set.
const std::vector<std::string>& Companions(const std::string& path) {
  static const std::vector<std::string> tls = {
      "listen.tcp: 127.0.0.1:7", "listen.certificate_names: [x.example]", "tls.cert_file: /c",
      "tls.key_file: /k", "tls.client_ca_file: /a"};
  static const std::vector<std::string> tcp = {"listen.tcp: 127.0.0.1:7"};
  static const std::vector<std::string> none;
  static const std::vector<std::string> zmq = {"events.zmq: tcp://127.0.0.1:5557"};
  if (absl::EndsWith(path, "token_file") || path == "listen.bulk_tcp") return tcp;
  static const std::vector<std::string> tenant_zmq = {"tenants[].zmq: ipc:///run/t-events"};
  static const std::vector<std::string> master = {"encryption.master_key_file: /etc/master.key"};
  static const std::vector<std::string> fleet = {"fleet.name: f", "fleet.key_file: /etc/key"};
  static const std::vector<std::string> g4 = {"g4.url: http://h:1/bkt", "fleet.name: f",
                                              "fleet.key_file: /etc/key"};
  static const std::vector<std::string> peers = {
      "fleet.node: a",     "fleet.name: f",           "fleet.key_file: /etc/key",
      "fleet.ca_file: /f", "listen.tcp: 127.0.0.1:7", "listen.certificate_names: [x.example]",
      "tls.cert_file: /c", "tls.key_file: /k",        "tls.client_ca_file: /a"};
  const bool of_peers = absl::StartsWith(path, "fleet.peers") || path == "fleet.node" ||
                        path == "fleet.ca_file" || path == "fleet.serve_bytes_per_second" ||
                        path == "drain.to_peers";
  if (of_peers) return peers;
  if (path == "g4.url") return fleet;
  if (path == "fleet.previous_key_files" || path == "tenants[].g4_key_file") return g4;
  if (path == "events.zmq_replay") return zmq;
  if (path == "encryption.previous_master_key_files") return master;
  if (path == "tenants[].zmq_replay") return tenant_zmq;
  return absl::StartsWith(path, "tls.") || absl::EndsWith(path, "certificate_names") ? tls : none;
}

// Returns the lines of `section` among them, except for `path` itself.
std::string CompanionLines(const std::string& path, const std::string& section) {
  std::string text;
  for (const std::string& line : Companions(path)) {
    if (!absl::StartsWith(line, section + ".") || absl::StartsWith(line, path + ":")) continue;
    absl::StrAppend(&text, "  ", line.substr(section.size() + 1), "\n");
  }
  return text;
}

std::string CompanionSections(const std::string& path, absl::string_view but) {
  std::string text;
  for (const char* section : {"listen", "tls", "g4", "fleet"}) {
    const std::string lines = section == but ? "" : CompanionLines(path, section);
    if (!lines.empty()) absl::StrAppend(&text, section, ":\n", lines);
  }
  return text;
}

// Returns a file that sets one key, with the settings that it needs.
std::string FileWith(const ConfigKey& key, const std::string& value) {
  const std::string line = absl::StrCat(key.name(), ": ", value);
  if (key.list() == "g3.paths") {
    const char* dir = key.name() == "dir" ? "" : ", dir: /var/lib/kvkeep/nvme0";
    return absl::StrCat("g3:\n  paths:\n    - {", line, dir, "}\n");
  }
  if (key.list() == "tenants") {
    std::string text = absl::StrCat("tenants:\n  - ", line, "\n");
    for (const char* other : {"name: t", "unix: /run/t.sock", "g2_share: 50%"}) {
      const bool is_key = absl::StartsWith(other, absl::StrCat(key.name(), ":"));
      if (!is_key) absl::StrAppend(&text, "    ", other, "\n");
    }
    for (absl::string_view line : Companions(key.path)) {
      if (absl::ConsumePrefix(&line, "tenants[].")) absl::StrAppend(&text, "    ", line, "\n");
    }
    return text + CompanionSections(key.path, "");
  }
  std::string text = absl::StrCat(key.section(), ":\n  ", line, "\n");
  if (key.path == "g2.arena_dir") absl::StrAppend(&text, "  arena_readonly_dir: /mnt/other\n");
  if (key.path == "g2.arena_readonly_dir") absl::StrAppend(&text, "  arena_dir: /mnt/other\n");
  if (key.path == "listen.readers") {
    absl::StrAppend(&text, "tenants: [{name: t, unix: /run/t.sock, g2_share: 50%}]\n");
  }
  return text + CompanionLines(key.path, std::string(key.section())) +
         CompanionSections(key.path, key.section());
}

// Returns the defaults, with one entry in every list.
Config Defaults() {
  Config config;
  config.tenants = {{.name = "t", .unix_path = "/run/t.sock", .g2_share = 0.5}};
  return config;
}

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(text, '\n'); }

// Loading must return, with a config or with well-formed errors.
void MustReturn(const std::string& text) {
  const LoadResult result = LoadConfig(text, "kv.yaml");
  if (result.config.has_value() != result.errors.empty()) FAIL("neither or both for:\n" << text);
  for (const std::string& error : result.errors) {
    if (!absl::StartsWith(error, "kv.yaml:") || absl::StrContains(error, "\n")) FAIL(error);
  }
}

}  // namespace

TEST_CASE("the printed default loads as it is and is the built-in default") {
  const LoadResult result = LoadConfig(PrintDefaultConfig(), "default");
  INFO(absl::StrJoin(result.errors, "\n"));
  REQUIRE(result.config.has_value());
  CHECK(*result.config == Config{});
  CHECK(*LoadConfig(PrintConfig(Config{}), "default").config == Config{});
}

TEST_CASE("the printed default shows every key with its doc and its limits") {
  const std::string text = PrintDefaultConfig();
  for (const ConfigKey& key : ConfigKeys()) {
    INFO(key.path);
    CHECK(absl::StrContains(text, absl::StrCat("# ", key.doc, " (", key.limits, ")\n")));
    CHECK(absl::StrContains(text, absl::StrCat(key.name(), ": ")));
  }
  for (const ConfigSection& section : ConfigSections()) {
    CHECK(absl::StrContains(text, absl::StrCat("\n# ", section.doc, "\n", section.name, ":")));
  }
}

TEST_CASE("the table is whole: unique paths, known sections, a sample for every key") {
  std::set<std::string> paths, sections;
  for (const ConfigSection& section : ConfigSections()) sections.insert(section.name);
  for (const ConfigKey& key : ConfigKeys()) {
    INFO(key.path);
    CHECK(paths.insert(key.path).second);
    CHECK(sections.count(std::string(key.section())) == 1);
    CHECK(Samples().count(key.path) == 1);
    CHECK_FALSE(key.doc.empty());
    CHECK(key.doc.back() == '.');
  }
  CHECK(paths.size() == Samples().size());
}

TEST_CASE("every key can be set and changes nothing but itself") {
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string value = Samples().at(key.path);
    const std::string text = FileWith(key, value);
    INFO(text);
    const LoadResult result = LoadConfig(text, "kv.yaml");
    INFO(absl::StrJoin(result.errors, "\n"));
    REQUIRE(result.config.has_value());
    Config config = *result.config;

    // The value is the given one now.
    Config same = Defaults();
    const absl::string_view bare = absl::StartsWith(value, "\"")
                                       ? absl::string_view(value).substr(1, value.size() - 2)
                                       : absl::string_view(value);
    const std::string unescaped = bare == "/mnt/a: b\\\\c" ? "/mnt/a: b\\c" : std::string(bare);
    REQUIRE(key.set(unescaped, same, 0).ok());
    CHECK(key.get(config, 0) == key.get(same, 0));
    if (key.path != "g3.write_policy") {  // which exists once
      Config defaults = Defaults();
      CHECK(key.get(config, 0) != key.get(defaults, 0));
    }

    // Every other key still has its default.
    for (const ConfigKey& other : ConfigKeys()) {
      const bool pair =
          absl::StartsWith(key.path, "g2.arena_") && absl::StartsWith(other.path, "g2.arena_");
      const std::vector<std::string>& given = Companions(key.path);
      const bool companion = std::any_of(given.begin(), given.end(), [&](const std::string& line) {
        return absl::StartsWith(line, other.path + ":");
      });
      if (other.path == key.path || pair || companion) continue;
      if (other.list() == "tenants" && config.tenants.empty()) continue;
      Config defaults = Defaults();
      INFO(other.path);
      CHECK(other.get(config, 0) == other.get(defaults, 0));
    }

    // The value survives being printed.
    const LoadResult again = LoadConfig(PrintConfig(config), "printed");
    INFO(absl::StrJoin(again.errors, "\n"));
    REQUIRE(again.config.has_value());
    CHECK(*again.config == config);
  }
}

TEST_CASE("a config with many paths or tenants, and one with none, survive being printed") {
  Config config;
  config.listen.local_path = "";
  config.listen.access = {.socket_mode = 07, .socket_group = "a", .allowed_uids = {0, 1}};
  for (int i = 0; i < 3; ++i) {
    config.tenants.push_back({.name = absl::StrCat("t", i),
                              .unix_path = absl::StrCat("/run/", i),
                              .local_path = i == 0 ? "" : absl::StrCat("/run/l", i),
                              .access = {.allowed_gids = {static_cast<uint32_t>(i)}},
                              .g2_share = 0.125 * (i + 1)});
  }
  config.g3.paths.clear();
  CHECK(*LoadConfig(PrintConfig(config), "printed").config == config);
  for (int i = 0; i < 3; ++i) {
    config.g3.paths.push_back({.dir = absl::StrCat("/nvme", i, "/ \"k\"#"),
                               .capacity_bytes = kTiB + i,
                               .required = true});
  }
  CHECK(*LoadConfig(PrintConfig(config), "printed").config == config);
}

constexpr size_t kStep = kSanitized ? 7 : 1;  // one in so many of similar cases

TEST_CASE("the default without one of its lines, or with one changed, never crashes or hangs") {
  const std::vector<std::string> lines = Lines(PrintDefaultConfig());
  const char* const inserts[] = {"\t", "[", "]", "{",    "}",    ":",   ": ",    "- ", "\"",
                                 "'",  "*", "&", "!",    "%",    "|",   ">",     "?",  "@",
                                 "`",  "#", "~", "\x01", "\xff", "---", "<<: *a"};
  for (size_t i = 0; i < lines.size(); i += kStep) {
    std::vector<std::string> changed = lines;
    changed.erase(changed.begin() + static_cast<ptrdiff_t>(i));
    MustReturn(absl::StrJoin(changed, "\n"));
    changed = lines;
    changed.insert(changed.begin() + static_cast<ptrdiff_t>(i), lines[i]);  // twice
    MustReturn(absl::StrJoin(changed, "\n"));
    changed = lines;
    changed[i] = absl::StrCat(" ", lines[i]);
    MustReturn(absl::StrJoin(changed, "\n"));
  }
  // The same keys without the comments, which do not matter here and take most of the time.
  const std::vector<std::string> bare = Lines(PrintConfig(Config{}));
  for (size_t i = 0; i < bare.size(); i += kStep) {
    std::vector<std::string> changed = bare;
    for (size_t which = 0; which < std::size(inserts); ++which) {
      // At the beginning, in the middle, at the end: one for each line, in turn.
      const size_t at = (i + which) % 3 * bare[i].size() / 2;
      changed[i] = absl::StrCat(bare[i].substr(0, at), inserts[which], bare[i].substr(at));
      MustReturn(absl::StrJoin(changed, "\n"));
    }
  }
}

TEST_CASE("the default cut off anywhere, or with random bytes in it, never crashes or hangs") {
  const std::string text = PrintConfig(Config{});
  for (size_t length = 0; length <= text.size(); length += kStep) {
    MustReturn(text.substr(0, length));
  }
  constexpr uint64_t kSeed = 20240607;
  SeededRandom random(kSeed);
  INFO("seed " << kSeed);
  for (size_t round = 0; round < 1500; round += kStep) {
    std::string changed = text;
    for (uint64_t i = random.Between(1, 5); i > 0; --i) {
      const size_t at = random.Below(changed.size());
      switch (random.Below(3)) {
        case 0:
          changed[at] = static_cast<char>(random.Below(256));
          break;
        case 1:
          changed.erase(at, random.Between(1, 20));
          break;
        default:
          changed.insert(at, 1, static_cast<char>(random.Below(128)));
      }
    }
    MustReturn(changed);
  }
}

}  // namespace kvkeep
