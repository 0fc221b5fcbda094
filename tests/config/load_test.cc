// Golden messages: what an operator sees for each kind of mistake.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "config/config.h"
#include "config/sources.h"
#include "config/suggest.h"
#include "tests/config/loaded.h"

namespace kvkeep {
namespace {

constexpr char kNoSize[] =
    "is not a size: write a whole number with KiB, MiB, GiB, TiB (or decimal KB, MB, GB, TB), like "
    "64GiB";

}  // namespace

TEST_CASE("nothing said means all defaults") {
  for (const char* text : {"", "\n", "# only a comment\n", "~", "{}", "g2:\n", "g2: {}\ng3: ~\n",
                           "---\n", "g2:\n  # capacity: 1GiB\nlog:\n  level: info\n"}) {
    INFO(text);
    CHECK(Good(text) == Config{});
  }
}

TEST_CASE("block and flow style say the same") {
  const Config config = Good(
      "listen: {unix: /tmp/a.sock, admin: /tmp/b.sock, tcp: \"[::1]:50051\"}\n"
      "g2: {capacity: 512MiB, arena: mount, arena_dir: /m/rw, arena_readonly_dir: /m/ro}\n"
      "g3:\n"
      "  paths:\n"
      "    - {dir: /nvme0/kv, capacity: 2TiB, required: true}\n"
      "    - dir: /nvme1/kv\n"
      "  write_policy: eager\n"
      "drain: {timeout: 250ms}\n");
  CHECK(config.listen.tcp_address == "[::1]:50051");
  CHECK(config.g2.capacity_bytes == 512 * kMiB);
  CHECK(config.g2.arena == ArenaChoice::kMount);
  REQUIRE(config.g3.paths.size() == 2);
  CHECK(config.g3.paths[0] ==
        G3PathConfig{.dir = "/nvme0/kv", .capacity_bytes = 2 * kTiB, .required = true});
  CHECK(config.g3.paths[1] == G3PathConfig{.dir = "/nvme1/kv"});
  CHECK(config.g3.write_policy == WritePolicyChoice::kEager);
  CHECK(config.drain.timeout == std::chrono::milliseconds(250));
  CHECK(Good("g3: {paths: []}").g3.paths.empty());
  CHECK(Good("metrics: {listen: ''}").metrics.listen_address.empty());
}

TEST_CASE("a value of the wrong kind is told with its place and what it should be") {
  CHECK(ErrorsOf("g2:\n  capacity: lots\n") ==
        absl::StrCat("kv.yaml:2:13: g2.capacity: 'lots' ", kNoSize));
  CHECK(ErrorsOf("g2:\n  capacity: 64G\n") ==
        absl::StrCat("kv.yaml:2:13: g2.capacity: '64G' ", kNoSize));
  CHECK(ErrorsOf("g2: {capacity: [1, 2]}") ==
        "kv.yaml:1:16: g2.capacity: expected a size, found a list");
  CHECK(ErrorsOf("g2:\n  capacity:\n") ==
        "kv.yaml:2:3: g2.capacity: expected a size, found nothing");
  CHECK(ErrorsOf("g2:\n  dirty_budget: 0.25\n") ==
        "kv.yaml:2:17: g2.dirty_budget: '0.25' is not a percentage: write it with a %, like 25%");
  CHECK(ErrorsOf("drain:\n  timeout: 15\n") ==
        "kv.yaml:2:12: drain.timeout: '15' is not a time: write a whole number with ms, s, m, h or "
        "d, like 15s");
  CHECK(
      ErrorsOf("limits:\n  max_chunks: many\n") ==
      "kv.yaml:2:15: limits.max_chunks: 'many' is not a count: write a whole number, also with k, "
      "M, G (decimal) or Ki, Mi, Gi, like 4M");
  CHECK(ErrorsOf("g3:\n  paths: [{dir: /a, required: yes}]\n") ==
        "kv.yaml:2:31: g3.paths[0].required: 'yes' is not true or false");
  CHECK(ErrorsOf("log: {level: verbose}") ==
        "kv.yaml:1:14: log.level: 'verbose' is not one of trace, debug, info, warn, error");
  CHECK(ErrorsOf("g2: {policy: random}") ==
        "kv.yaml:1:14: g2.policy: 'random' is not one of reuse, seconds, lru");
  CHECK(ErrorsOf("state: {dir: var/lib}") ==
        "kv.yaml:1:14: state.dir: 'var/lib' is not an absolute path");
  CHECK(ErrorsOf("state: {dir: \"\"}") == "kv.yaml:1:14: state.dir: '' is not an absolute path");
  CHECK(ErrorsOf("metrics: {listen: 9464}") ==
        "kv.yaml:1:19: metrics.listen: '9464' is not an address: write host:port, like "
        "127.0.0.1:9464 or [::1]:9464");
  const std::string long_path = absl::StrCat("/", std::string(119, 'a'));
  CHECK(ErrorsOf("listen: {unix: " + long_path + "}") ==
        absl::StrCat("kv.yaml:1:16: listen.unix: '", long_path.substr(0, 80),
                     "...' has 120 bytes, a Unix socket's path has at most 107"));
}

TEST_CASE("a value out of range is told with the range") {
  CHECK(ErrorsOf("g2: {capacity: 512KiB}") ==
        "kv.yaml:1:16: g2.capacity: '512KiB' is out of range: 1MiB to 16TiB");
  CHECK(ErrorsOf("g2: {capacity: 17TiB}") ==
        "kv.yaml:1:16: g2.capacity: '17TiB' is out of range: 1MiB to 16TiB");
  CHECK(ErrorsOf("limits: {keys_per_call: 0}") ==
        "kv.yaml:1:25: limits.keys_per_call: '0' is out of range: 1 to 65536");
  CHECK(ErrorsOf("limits: {leased_bytes: 101%}") ==
        "kv.yaml:1:24: limits.leased_bytes: '101%' is out of range: 1% to 100%");
  CHECK(ErrorsOf("drain: {timeout: 61m}") ==
        "kv.yaml:1:18: drain.timeout: '61m' is out of range: 0s to 1h");
  CHECK(ErrorsOf("g3: {paths: [{dir: /a, capacity: 1MiB}]}") ==
        "kv.yaml:1:34: g3.paths[0].capacity: '1MiB' is out of range: 64MiB to 1024TiB");
  // The ends are inside.
  Good("g2: {capacity: 1MiB, dirty_budget: 1%}\ndrain: {timeout: 0s}\nlimits: {sessions: 65536}");
  std::vector<std::string> many(65);
  for (size_t i = 0; i < many.size(); ++i) many[i] = absl::StrCat("{dir: /d", i, "}");
  CHECK(ErrorsOf("g3: {paths: [" + absl::StrJoin(many, ", ") + "]}") ==
        "kv.yaml:1:13: g3.paths: 65 entries are out of range: 0 to 64");
}

TEST_CASE("an unknown key is told with the nearest right one, or with those that are known there") {
  CHECK(ErrorsOf("g3:\n  pths: []\n") ==
        "kv.yaml:2:3: unknown key 'g3.pths', did you mean 'g3.paths'?");
  CHECK(ErrorsOf("g2: {capactiy: 1GiB}") ==
        "kv.yaml:1:6: unknown key 'g2.capactiy', did you mean 'g2.capacity'?");
  CHECK(ErrorsOf("limit: {}") == "kv.yaml:1:1: unknown key 'limit', did you mean 'limits'?");
  CHECK(ErrorsOf("write_policy: eager") ==
        "kv.yaml:1:1: unknown key 'write_policy', did you mean 'g3.write_policy'?");
  CHECK(ErrorsOf("g2.capacity: 1GiB") ==
        "kv.yaml:1:1: unknown key 'g2.capacity'; write 'capacity' under 'g2:'");
  CHECK(ErrorsOf("g3: {paths: [{dir: /a, size: 1TiB}]}") ==
        "kv.yaml:1:24: unknown key 'g3.paths[0].size'; known here: dir, capacity, required");
  CHECK(ErrorsOf("g3: {paths: [{dir: /a, capcity: 1TiB}]}") ==
        "kv.yaml:1:24: unknown key 'g3.paths[0].capcity', did you mean 'g3.paths[].capacity'?");
  CHECK(ErrorsOf("frobnicate: 1") ==
        "kv.yaml:1:1: unknown key 'frobnicate'; known here: listen, tls, tenants, g2, g3, "
        "encryption, g4, remote, fleet, gpu, limits, "
        "metrics, events, log, state, drain");
  CHECK(
      ErrorsOf("g3: {<<: {io: auto}}") ==
      "kv.yaml:1:6: unknown key 'g3.<<'; known here: paths, policy, write_policy, admission, "
      "write_budget_bytes_per_second, endurance_tbw, endurance_years, io, scrub_bytes_per_second");
}

TEST_CASE("a key that is gone is refused, in each source, with what to do") {
  for (const char* value : {"false", "true"}) {
    CHECK(ErrorsOf(absl::StrCat("g4: {encryption: ", value, "}")) ==
          "kv.yaml:1:6: unknown key 'g4.encryption': what is written to G4 is always encrypted; "
          "take the key out");
  }
  ConfigSources sources{.user = {.home = "/var/u"}};
  const char* const environment[] = {"KVKEEP_G4_ENCRYPTION=false", nullptr};
  sources.AddEnvironment(environment);
  CHECK(sources.warnings.empty());
  CHECK(LoadConfigSources(sources).errors ==
        std::vector<std::string>{"environment KVKEEP_G4_ENCRYPTION: no key is called "
                                 "'g4.encryption': what is written to G4 is always encrypted; "
                                 "take the key out"});
}

TEST_CASE("the source of G4's keys has what it needs, and nothing is set that it does not read") {
  CHECK(Good("g4: {credentials: process, credential_process: '/opt/my-keys --of \"a b\"'}")
            .g4.credential_process == "/opt/my-keys --of \"a b\"");
  Good("g4: {credentials: web_identity}");
  Good("g4: {credentials: file, credentials_file: /k}");
  CHECK(ErrorsOf("g4: {credentials: file}") ==
        "kv.yaml:1:19: g4.credentials: file needs g4.credentials_file");
  CHECK(ErrorsOf("g4: {credentials: process}") ==
        "kv.yaml:1:19: g4.credentials: process needs g4.credential_process");
  CHECK(ErrorsOf("g4: {credentials: instance, credentials_file: /k}") ==
        "kv.yaml:1:47: g4.credentials_file: is of no use with g4.credentials: instance");
  CHECK(ErrorsOf("g4: {credentials_file: /k, credential_process: /p}") ==
        "kv.yaml:1:48: g4.credential_process: is of no use with g4.credentials_file; set one of "
        "them");
  for (const char* command : {"my-keys", "'/opt/keys \"a'", "\"/opt/keys\\na\""}) {
    CHECK_THAT(ErrorsOf(absl::StrCat("g4: {credential_process: ", command, "}")),
               Catch::Contains("g4.credential_process: ") && Catch::Contains("is not a command"));
  }
}

TEST_CASE("events go to loopback and Unix sockets, anywhere else only when that is said") {
  CHECK(Good("events: {zmq: 'tcp://127.0.0.1:5557', zmq_replay: 'ipc:///run/r'}").events.form ==
        EventFormChoice::kVllm);
  Good("events: {zmq: 'tcp://0.0.0.0:5557', zmq_insecure: true}");
  CHECK(ErrorsOf("events: {zmq: 'tcp://0.0.0.0:5557'}") ==
        "kv.yaml:1:15: events.zmq: 'tcp://0.0.0.0:5557' is not a loopback address, and whoever "
        "reaches it reads the tokens of prompts; take 127.0.0.1 or ipc://, or say "
        "events.zmq_insecure: true");
  CHECK(ErrorsOf("events: {zmq_replay: 'ipc:///run/r'}") ==
        "kv.yaml:1:22: events.zmq_replay: is of no use without events.zmq; set both");
  CHECK_FALSE(ErrorsOf("events: {zmq: '127.0.0.1:5557'}").empty());
  CHECK(ErrorsOf("events: {zmq: 'ipc:///run/e', zmq_replay: 'ipc:///run/e'}") ==
        "kv.yaml:1:43: events.zmq_replay: is the same socket as events.zmq; every listener needs a "
        "socket of its own");
  CHECK(ErrorsOf("listen: {unix: /run/k.sock}\nevents: {zmq: 'ipc:///run//./k.sock'}") ==
        "kv.yaml:2:15: events.zmq: is the same socket as listen.unix; every listener needs a "
        "socket of "
        "its own");
  CHECK(ErrorsOf("events: {zmq: 'tcp://127.0.0.1:5557', zmq_replay: 'tcp://127.0.0.1:5557'}") ==
        "kv.yaml:1:51: events.zmq_replay: is the same as events.zmq; a router tells tenants, and "
        "answers from events, by their endpoints");
}

TEST_CASE("edit distance counts insertions, deletions, replacements and swaps") {
  CHECK(EditDistance("", "abc") == 3);
  CHECK(EditDistance("paths", "paths") == 0);
  CHECK(EditDistance("pths", "paths") == 1);
  CHECK(EditDistance("capactiy", "capacity") == 1);
  CHECK(EditDistance("kitten", "sitting") == 3);
}

TEST_CASE("a key given twice is told with the line of the first") {
  CHECK(ErrorsOf("g2:\n  capacity: 1GiB\n  policy: lru\n  capacity: 2GiB\n") ==
        "kv.yaml:4:3: duplicate key 'g2.capacity', first given in line 2");
  CHECK(ErrorsOf("g2: {}\ng3: {}\ng2: {}\n") ==
        "kv.yaml:3:1: duplicate key 'g2', first given in line 1");
}

TEST_CASE("the wrong shape is told with what belongs there") {
  CHECK(ErrorsOf("- a\n- b\n") == "kv.yaml:1:1: expected sections such as 'g2:', found a list");
  CHECK(ErrorsOf("hello") == "kv.yaml:1:1: expected sections such as 'g2:', found a single value");
  CHECK(ErrorsOf("g2: 64GiB") == "kv.yaml:1:5: g2: expected keys under it, found a single value");
  CHECK(
      ErrorsOf("g3: {paths: /a}") ==
      "kv.yaml:1:13: g3.paths: expected a list like [{dir: /nvme0/kvkeep, capacity: 1TiB}], found "
      "a single value");
  CHECK(ErrorsOf("g3: {paths: [/a]}") ==
        "kv.yaml:1:14: g3.paths[0]: expected {dir: ..., capacity: ...}, found a single value");
  CHECK(ErrorsOf("g3:\n  paths:\n    - capacity: 1TiB\n") ==
        "kv.yaml:3:7: g3.paths[0].dir: is missing; say where this path is");
  CHECK(ErrorsOf("g2: {[a]: b}") == "kv.yaml:1:6: g2: expected a name as key, found a list");
  CHECK(ErrorsOf("g2: {}\n---\ng3: {}\n") ==
        "kv.yaml:2:1: a second YAML document begins here: only one is read");
  CHECK(ErrorsOf("%g2: 1\n") ==
        "kv.yaml:1:1: a line that begins with % is a YAML directive: none is read here");
}

TEST_CASE("what is no YAML is told with its place") {
  CHECK(ErrorsOf("g2: [1, 2\n") == "kv.yaml:2:1: not valid YAML: end of sequence flow not found");
  CHECK(ErrorsOf("g2:\n\tcapacity: 1GiB\n") ==
        "kv.yaml:2:1: a tab in the indentation: YAML wants spaces\n"
        "kv.yaml:2:10: not valid YAML: illegal map value");
  CHECK(ErrorsOf("g2: *nowhere\n") ==
        "kv.yaml:1:5: not valid YAML: the referenced anchor is not defined");
  CHECK(ErrorsOf(std::string(5000, '[')) == "kv.yaml:1:1: not valid YAML: nested too deep");
  CHECK(ErrorsOf(std::string(256 * 1024 + 1, '#')) ==
        "kv.yaml: has more than 262144 bytes, the most a configuration may have");
}

TEST_CASE("a comma that belongs to nothing ends the reading, which it once kept going for ever") {
  CHECK(ErrorsOf(",") == "kv.yaml:1:1: not valid YAML: a ',' that belongs to nothing");
  CHECK(ErrorsOf("{g2: {capacity: 1GiB}}\n, x") ==
        "kv.yaml:2:1: not valid YAML: a ',' that belongs to nothing");
}

TEST_CASE("values that are right alone but not together are told") {
  CHECK(
      ErrorsOf("listen:\n  unix: /tmp/a\n  admin: /tmp//./a\n") ==
      "kv.yaml:3:10: listen.admin: is the same socket as listen.unix; admin calls need a socket of "
      "their own");
  CHECK(
      ErrorsOf("listen: {unix: /run/kvkeep-admin/admin.sock}") ==
      "kv.yaml:1:16: listen.admin: is the same socket as listen.unix; admin calls need a socket of "
      "their own");
  CHECK(ErrorsOf("g3: {paths: [{dir: /a/}, {dir: /b}, {dir: /a}]}") ==
        "kv.yaml:1:43: g3.paths[2].dir: '/a' is the same directory as g3.paths[0].dir; every path "
        "needs a directory of its own");
  CHECK(ErrorsOf("g3: {paths: [{dir: /a}, {dir: /a/b}, {dir: /ab}]}") ==
        "kv.yaml:1:31: g3.paths[1].dir: '/a/b' is inside g3.paths[0].dir; every path needs a "
        "directory of its own");
  CHECK(
      ErrorsOf("g3: {paths: [{dir: /a/b}, {dir: /a}]}") ==
      "kv.yaml:1:33: g3.paths[1].dir: '/a' contains g3.paths[0].dir; every path needs a directory "
      "of its own");
  CHECK(ErrorsOf("state: {dir: /var/lib/kvkeep/nvme0}") ==
        "kv.yaml:1:14: g3.paths[0].dir: '/var/lib/kvkeep/nvme0' is also state.dir; a path of G3 "
        "needs a directory of its own");
  CHECK(ErrorsOf("g2: {arena: mount}") ==
        "kv.yaml:1:13: g2.arena: mount needs both directories, but g2.arena_dir and "
        "g2.arena_readonly_dir are not set");
  CHECK(
      ErrorsOf("g2: {arena: mount, arena_dir: /a}") ==
      "kv.yaml:1:13: g2.arena: mount needs both directories, but g2.arena_readonly_dir is not set");
  CHECK(ErrorsOf("g2: {arena_readonly_dir: /a}") ==
        "kv.yaml:1:26: g2.arena_readonly_dir: is of no use without g2.arena_dir; set both");
  CHECK(ErrorsOf("g2: {arena_dir: /a, arena_readonly_dir: /a/}") ==
        "kv.yaml:1:41: g2.arena_readonly_dir: is the same directory as g2.arena_dir; it must be a "
        "read-only bind mount of it");
  CHECK(ErrorsOf("encryption: {previous_master_key_files: [/a]}") ==
        "kv.yaml:1:41: encryption.previous_master_key_files: is of no use without "
        "encryption.master_key_file, and nothing would be encrypted; set both");
  CHECK(ErrorsOf("listen: {tcp: \"127.0.0.1:9464\"}") ==
        "kv.yaml:1:15: metrics.listen: is the same address as listen.tcp; give it another port");
  Good("listen: {tcp: \"127.0.0.1:0\"}\nmetrics: {listen: \"127.0.0.1:0\"}");
}

TEST_CASE("G4 needs the fleet that shares it, and a prefix a bucket") {
  CHECK(ErrorsOf("g4: {url: http://h:1/bkt}") ==
        "kv.yaml:1:11: g4.url: needs fleet.name and fleet.key_file, which the nodes that share it "
        "have in common");
  const std::string fleet = "fleet: {name: f, key_file: /k}\n";
  CHECK(ErrorsOf(fleet + "g4: {url: http://h:1/bkt, prefix: a}").empty());
  CHECK_THAT(ErrorsOf(fleet + "g4: {url: \"file:///b\", prefix: a}"),
             Catch::Contains("is of a bucket"));
  CHECK_THAT(ErrorsOf(fleet + "g4: {url: http://h:1/bkt, lifetime: 59m}"),
             Catch::Contains("g4.lifetime: is shorter than an hour"));
  CHECK(ErrorsOf(fleet + "g4: {url: http://h:1/bkt, lifetime: 1h}").empty());
}

TEST_CASE("a node with peers needs what mutual TLS takes, and peers a node") {
  const std::string tls =
      "listen: {tcp: \"127.0.0.1:7\", certificate_names: [x.example]}\n"
      "tls: {cert_file: /c, key_file: /k, client_ca_file: /a}\n";
  const std::string whole = "fleet: {name: f, key_file: /k, ca_file: /f, node: a, peers: [b=h:1]}";
  CHECK(ErrorsOf(tls + whole).empty());
  std::string nobody = tls, anybody = tls;
  nobody.replace(nobody.find(", certificate_names: [x.example]"), 32, "");
  CHECK(ErrorsOf(nobody + whole).empty());
  anybody.replace(anybody.find("x.example"), 9, "any read");
  CHECK_THAT(ErrorsOf(anybody + whole),
             Catch::Contains("any would make each node of the fleet a client"));
  for (const char* needed : {"name: f, ", "key_file: /k, ", "ca_file: /f, "}) {
    std::string without = whole;
    without.replace(without.find(needed), std::string(needed).size(), "");
    const std::string key = std::string(needed).substr(0, std::string(needed).find(':'));
    CHECK_THAT(ErrorsOf(tls + without), Catch::Contains("fleet.node: needs fleet." + key));
  }
  CHECK_THAT(ErrorsOf(whole), Catch::Contains("fleet.node: needs listen.tcp") &&
                                  Catch::Contains("fleet.node: needs tls.client_ca_file"));
  CHECK_THAT(ErrorsOf("fleet: {peers: [b=h:1]}"),
             Catch::Contains("fleet.peers: is of no use without fleet.node"));
  CHECK_THAT(ErrorsOf("drain: {to_peers: true}"),
             Catch::Contains("drain.to_peers: is of no use without fleet.node"));
  CHECK_THAT(ErrorsOf(tls + "fleet: {peers: [b=h]}"),
             Catch::Contains("'b=h' is not NAME=HOST:PORT"));
}

TEST_CASE("keys beside the fleet's are of no use without G4, and three are the most of before") {
  CHECK(ErrorsOf("fleet: {name: f, key_file: /k, previous_key_files: [/j]}") ==
        "kv.yaml:1:52: fleet.previous_key_files: is of no use without g4.url; set both");
  const std::string tenant = "tenants: [{name: t, unix: /t, g2_share: 50%, g4_key_file: /k-t}]\n";
  CHECK_THAT(ErrorsOf(tenant), Catch::Contains("tenants[0].g4_key_file: is of no use"));
  const std::string g4 = "g4: {url: http://h:1/bkt}\n";
  CHECK(ErrorsOf(tenant + g4 + "fleet: {name: f, key_file: /k, previous_key_files: [/1, /2, /3]}")
            .empty());
  CHECK_THAT(ErrorsOf(g4 + "fleet: {name: f, key_file: /k, previous_key_files: [/1, /2, /3, /4]}"),
             Catch::Contains("at most 3"));
}

TEST_CASE("a value that is wrong by itself causes no second error about others") {
  CHECK(ErrorsOf("g3: {paths: [{dir: a}, {dir: /b}, {capacity: 1TiB}, 3]}") ==
        "kv.yaml:1:20: g3.paths[0].dir: 'a' is not an absolute path\n"
        "kv.yaml:1:35: g3.paths[2].dir: is missing; say where this path is\n"
        "kv.yaml:1:53: g3.paths[3]: expected {dir: ..., capacity: ...}, found a single value");
}

TEST_CASE("all errors are told at once, in the order of the file") {
  CHECK(
      ErrorsOf("lsten: {}\n"
               "g2:\n"
               "  capacity: 64G\n"
               "  arena: mount\n"
               "  capacity: 1GiB\n"
               "drain:\n"
               "  timeout: never\n") ==
      absl::StrCat(
          "kv.yaml:1:1: unknown key 'lsten', did you mean 'listen'?\n",
          "kv.yaml:3:13: g2.capacity: '64G' ", kNoSize, "\n",
          "kv.yaml:4:10: g2.arena: mount needs both directories, but g2.arena_dir and "
          "g2.arena_readonly_dir are not set\n",
          "kv.yaml:5:3: duplicate key 'g2.capacity', first given in line 3\n",
          "kv.yaml:7:12: drain.timeout: 'never' is not a time: write a whole number with ms, s, m, "
          "h or d, like 15s"));
}

TEST_CASE("a flood of errors is cut and counted") {
  std::string text;
  for (int i = 0; i < 150; ++i) absl::StrAppend(&text, "key", i, ": 1\n");
  const LoadResult result = LoadConfig(text, "kv.yaml");
  REQUIRE(result.errors.size() == kMaxConfigErrors + 1);
  CHECK(result.errors.back() == "kv.yaml: and 50 more errors");
}

TEST_CASE("a file is read from its path, and one that cannot be read is told") {
  const std::string missing = "/nowhere/kv.yaml";
  CHECK(LoadConfigFile(missing).errors ==
        std::vector<std::string>{
            "/nowhere/kv.yaml: cannot be read; give the path of a readable YAML file"});
  CHECK(LoadConfigFile("/").errors.size() == 1);
  char path[] = "/tmp/kvkeep_config_XXXXXX";
  REQUIRE(mkdtemp(path) != nullptr);
  const std::string file = absl::StrCat(path, "/kv.yaml");
  std::ofstream(file) << "g2: {capacity: 2GiB}\n";
  CHECK(LoadConfigFile(file).config->g2.capacity_bytes == 2 * kGiB);
  std::ofstream(file) << "g2: {capacity: 2G}\n";
  CHECK(LoadConfigFile(file).errors ==
        std::vector<std::string>{absl::StrCat(file, ":1:16: g2.capacity: '2G' ", kNoSize)});
  std::filesystem::remove_all(path);
}

}  // namespace kvkeep
