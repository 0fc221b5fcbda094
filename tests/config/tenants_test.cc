// Access as the file configures it: sockets, users, tenants and their shares.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <catch2/catch.hpp>

#include "config/config.h"
#include "tests/config/loaded.h"

namespace kvkeep {
namespace {

// 8 segments, and tenants with these shares.
std::string WithShares(const std::vector<std::string>& shares) {
  std::string text = "g2: {capacity: 8GiB}\ntenants:\n";
  for (size_t i = 0; i < shares.size(); ++i) {
    absl::StrAppend(&text, "  - {name: t", i, ", unix: /run/", i, ", g2_share: ", shares[i], "}\n");
  }
  return text;
}

}  // namespace

TEST_CASE("modes, groups, users and tenants are read, in block and in flow style") {
  const Config config = Good(
      "listen: {local: '', socket_mode: 0600, socket_group: video, allowed_uids: [0, 1000]}\n"
      "tenants:\n"
      "  - {name: a, unix: /run/a, local: /run/al, allowed_gids: [5], g2_share: 25%}\n"
      "  - name: b-2\n"
      "    unix: /run/b\n"
      "    allowed_uids:\n"
      "      - 7\n"
      "      - 8\n"
      "    socket_mode: 666\n"
      "    g2_share: 12.5%\n");
  CHECK(config.listen.local_path.empty());
  CHECK(config.listen.access ==
        AccessConfig{.socket_mode = 0600, .socket_group = "video", .allowed_uids = {0, 1000}});
  REQUIRE(config.tenants.size() == 2);
  CHECK(config.tenants[0] == TenantConfig{.name = "a",
                                          .unix_path = "/run/a",
                                          .local_path = "/run/al",
                                          .access = {.allowed_gids = {5}},
                                          .g2_share = 0.25});
  CHECK(config.tenants[1].access == AccessConfig{.socket_mode = 0666, .allowed_uids = {7, 8}});
  CHECK(config.tenants[1].local_path.empty());
  CHECK(Good("tenants: []").tenants.empty());
  CHECK(Good("tenants:\n").tenants.empty());
}

TEST_CASE(
    "each tenant's events have endpoints of their own, under the rules of the default one's") {
  const auto with = [](const std::string& more) {
    return absl::StrCat("events: {zmq: 'tcp://127.0.0.1:5557'}\n",
                        "tenants: [{name: a, unix: /a, g2_share: 25%, ", more, "}]\n");
  };
  const Config config = Good(with("zmq: 'ipc:///run/a', zmq_replay: 'ipc:///run/ar'"));
  CHECK(config.tenants[0].zmq_endpoint == "ipc:///run/a");
  CHECK(config.tenants[0].zmq_replay_endpoint == "ipc:///run/ar");
  CHECK(absl::StrContains(ErrorsOf(with("zmq: 'tcp://127.0.0.1:5557'")),
                          "tenants[0].zmq: is the same as events.zmq; a router tells tenants"));
  CHECK(absl::StrContains(ErrorsOf(with("zmq: 'ipc:///a'")),
                          "tenants[0].zmq: is the same socket as tenants[0].unix"));
  CHECK(absl::StrContains(ErrorsOf(with("zmq_replay: 'ipc:///run/ar'")),
                          "tenants[0].zmq_replay: is of no use without tenants[0].zmq; set both"));
  CHECK(absl::StrContains(ErrorsOf(with("zmq: 'tcp://0.0.0.0:5558'")),
                          "tenants[0].zmq: 'tcp://0.0.0.0:5558' is not a loopback address"));
  // Other tenants' users reach loopback too.
  CHECK(absl::StrContains(
      ErrorsOf(with("zmq: 'tcp://127.0.0.1:5558'")),
      "tenants[0].zmq: 'tcp://127.0.0.1:5558' is open to every user of this host, and whoever "
      "reaches it reads the tokens of prompts; take ipc://, or say events.zmq_insecure: true"));
  Good(
      "events: {zmq_insecure: true}\n"
      "tenants: [{name: a, unix: /a, g2_share: 25%, zmq: 'tcp://127.0.0.1:5558'}]\n");
}

TEST_CASE("what may wait for routers is enough for each tenant that tells them") {
  const auto with = [](int tenants) {
    std::string text = "events: {queued_bytes: 16MiB}\ntenants:\n";
    for (int i = 0; i < tenants; ++i) {
      absl::StrAppend(&text, "  - {name: t", i, ", unix: /u", i, ", g2_share: 10%, zmq: 'ipc:///z",
                      i, "'}\n");
    }
    return text;
  };
  Good(with(4));
  CHECK(absl::StrContains(ErrorsOf(with(5)),
                          "events.queued_bytes: 16MiB for 5 tenants' events; each wants 4MiB, so "
                          "give at least 20MiB"));
}

TEST_CASE("what is wrong with an entry, a list of numbers or a mode is told with its place") {
  CHECK(ErrorsOf("tenants: {name: a}") ==
        "kv.yaml:1:10: tenants: expected a list like [{name: a, unix: "
        "/run/kvkeep-tenants/a/kvkeep.sock, g2_share: 25%}], found a map");
  CHECK(ErrorsOf("tenants: [{name: default, unix: /a, g2_share: 25%}]") ==
        "kv.yaml:1:18: tenants[0].name: 'default' is what the default tenant is called");
  CHECK(ErrorsOf("tenants: [a]") ==
        "kv.yaml:1:11: tenants[0]: expected {name: ..., unix: ..., g2_share: ...}, found a single "
        "value");
  CHECK(ErrorsOf("tenants: [{}]") ==
        "kv.yaml:1:11: tenants[0].name: is missing; give the tenant a name\n"
        "kv.yaml:1:11: tenants[0].unix: is missing; say where this tenant's clients come in\n"
        "kv.yaml:1:11: tenants[0].g2_share: is missing; say how much of g2.capacity is this "
        "tenant's, like 25%");
  CHECK(ErrorsOf("tenants: [{name: a, unix: /a, g2_share: 25%, uids: [1]}]") ==
        "kv.yaml:1:46: unknown key 'tenants[0].uids'; known here: name, unix, local, bulk, "
        "socket_mode, socket_group, allowed_uids, allowed_gids, socket_grant, certificate_names, "
        "token_file, "
        "readers, shared, gpus, g2_share, g3_quota, g4_key_file, zmq, zmq_replay, keys_per_second, "
        "bytes_per_second, leased_bytes, staging, connections");
  CHECK(ErrorsOf("listen: {allowed_uids: 1000}") ==
        "kv.yaml:1:24: listen.allowed_uids: expected a list of numbers like [1000, 1001], found a "
        "single value");
  CHECK(ErrorsOf("listen: {allowed_uids: [[1]]}") ==
        "kv.yaml:1:24: listen.allowed_uids: expected a list of numbers like [1000, 1001], found a "
        "list");
  CHECK(ErrorsOf("listen: {allowed_gids: [1, video]}") ==
        "kv.yaml:1:24: listen.allowed_gids: 'video' is not a whole number of 32 bits");
  CHECK(ErrorsOf("listen: {socket_mode: 0680}") ==
        "kv.yaml:1:23: listen.socket_mode: '0680' is not an octal mode: write three or four octal "
        "digits, like 0660");
  CHECK(ErrorsOf("listen: {socket_mode: 4660}") ==
        "kv.yaml:1:23: listen.socket_mode: '4660' is out of range: 0000 to 0777");
  CHECK(ErrorsOf("g2: {segment_bytes: 3MiB}") ==
        "kv.yaml:1:21: g2.segment_bytes: '3MiB' is out of range: 2MiB to 1GiB, a multiple of 2MiB");
  std::vector<std::string> many(65, "{name: a, unix: /a, g2_share: 1%}");
  CHECK(ErrorsOf("tenants: [" + absl::StrJoin(many, ", ") + "]") ==
        "kv.yaml:1:10: tenants: 65 entries are out of range: 0 to 64");
}

TEST_CASE("every socket is one of its own, every name too") {
  CHECK(ErrorsOf("listen: {local: /run/kvkeep/kvkeep.sock}") ==
        "kv.yaml:1:17: listen.local: is the same socket as listen.unix; every listener needs a "
        "socket "
        "of its own");
  CHECK(ErrorsOf("listen: {local: /run/kvkeep-admin/admin.sock}") ==
        "kv.yaml:1:17: listen.admin: is the same socket as listen.local; admin calls need a socket "
        "of their own");
  CHECK(ErrorsOf("tenants: [{name: a, unix: /run/kvkeep/./kvkeep.sock, g2_share: 25%}]") ==
        "kv.yaml:1:27: tenants[0].unix: is the same socket as listen.unix; every listener needs a "
        "socket of its own");
  CHECK(ErrorsOf("tenants:\n"
                 "  - {name: a, unix: /a, local: /b, g2_share: 25%}\n"
                 "  - {name: a, unix: /b, g2_share: 25%}\n") ==
        "kv.yaml:3:12: tenants[1].name: 'a' is also tenants[0].name; names tell tenants apart\n"
        "kv.yaml:3:21: tenants[1].unix: is the same socket as tenants[0].local; every listener "
        "needs a "
        "socket of its own");
  Good("listen: {local: ''}\ntenants: [{name: a, unix: /a, local: '', g2_share: 25%}]");
}

TEST_CASE("shares become whole segments, and the default tenant has the rest") {
  using Segments = std::vector<uint64_t>;
  CHECK(TenantSegments(Good("g2: {capacity: 8GiB}")) == Segments{8});
  CHECK(TenantSegments(Good("g2: {capacity: 8704MiB}")) == Segments{9});  // the last one is short
  CHECK(TenantSegments(Good(WithShares({"25%", "50%"}))) == Segments{2, 2, 4});
  CHECK(TenantSegments(Good(WithShares({"24%", "13%"}))) == Segments{6, 1, 1});
  // 10% is no binary fraction, yet ten times a tenth of ten must not come out as nine.
  Config tenths = Good("g2: {capacity: 10GiB}");
  for (int i = 0; i < 9; ++i) tenths.tenants.push_back({.g2_share = 0.1});
  CHECK(TenantSegments(tenths) == Segments(10, 1));
  for (const double share : {0.07, 0.14, 0.28, 0.29, 0.55, 0.56, 0.57, 0.58}) {
    tenths.g2.capacity_bytes = 100 * kGiB;
    tenths.tenants = {{.g2_share = share}};
    INFO(share);
    CHECK(TenantSegments(tenths)[1] == static_cast<uint64_t>(share * 100 + 0.5));
  }
}

TEST_CASE("shares that leave nothing, or are no segment, are refused with what to do") {
  CHECK(ErrorsOf(WithShares({"50%", "50%"})) ==
        "kv.yaml:3:40: tenants: their g2_share is 100% together; leave a part of g2.capacity to "
        "the default tenant");
  CHECK(ErrorsOf(WithShares({"50%", "99%"})) ==
        "kv.yaml:3:40: tenants: their g2_share is 149% together; leave a part of g2.capacity to "
        "the default tenant");
  CHECK(ErrorsOf(WithShares({"50%", "5%"})) ==
        "kv.yaml:4:40: tenants[1].g2_share: 5% of g2.capacity, 8GiB, is less than a segment of "
        "1GiB; raise it, or lower g2.segment_bytes to 256MiB");
  Good(absl::StrCat("g2: {segment_bytes: 256MiB, capacity: 8GiB}\n",
                    WithShares({"50%", "5%"}).substr(21)));
  CHECK(ErrorsOf("g2: {capacity: 4MiB, segment_bytes: 2MiB}\n"
                 "tenants: [{name: a, unix: /a, g2_share: 40%}]") ==
        "kv.yaml:2:41: tenants[0].g2_share: 40% of g2.capacity, 4MiB, is less than a segment of "
        "2MiB; raise it");
  CHECK(ErrorsOf("g2: {capacity: 8191MiB}\ntenants: [{name: a, unix: /a, g2_share: 40%}]") ==
        "kv.yaml:1:16: g2.capacity: 8191MiB is no multiple of g2.segment_bytes, 1GiB, and tenants "
        "have whole segments; round it, or make segments smaller");
}

TEST_CASE("quotas of G3 are sizes, none by default, and together no more than there is") {
  const std::string paths = "g3: {paths: [{dir: /x, capacity: 6GiB}, {dir: /y, capacity: 4GiB}]}\n";
  const auto with = [&](const std::string& first, const std::string& second) {
    return absl::StrCat(paths, "tenants:\n  - {name: a, unix: /a, g2_share: 25%", first,
                        "}\n  - {name: b, unix: /b, g2_share: 25%", second, "}\n");
  };
  CHECK(Good(with("", "")).tenants[0].g3_quota_bytes == 0);
  const Config config = Good(with(", g3_quota: 7GiB", ", g3_quota: 3GiB"));
  CHECK(config.tenants[0].g3_quota_bytes == 7 * kGiB);
  CHECK(config.tenants[1].g3_quota_bytes == 3 * kGiB);
  CHECK(ErrorsOf(with(", g3_quota: 7GiB", ", g3_quota: 4GiB")) ==
        "kv.yaml:3:50: tenants: their g3_quota is 11GiB together, and the capacity of all g3.paths "
        "10GiB; a quota is kept free from others, so they cannot be more than there is");
  CHECK(ErrorsOf("g3: {paths: []}\n"
                 "tenants: [{name: a, unix: /a, g2_share: 25%, g3_quota: 1GiB}]") ==
        "kv.yaml:2:56: tenants: their g3_quota is 1GiB together, and the capacity of all g3.paths "
        "0; a quota is kept free from others, so they cannot be more than there is");
  CHECK(ErrorsOf(with(", g3_quota: half", "")) ==
        "kv.yaml:3:50: tenants[0].g3_quota: 'half' is not a size: write a whole number with KiB, "
        "MiB, GiB, TiB (or decimal KB, MB, GB, TB), like 64GiB");
}

TEST_CASE("limits of a tenant are read, and what promises more than there is is told") {
  const Config config = Good(
      "listen: {keys_per_second: 50k, bytes_per_second: 2GiB, connections: 9}\n"
      "g2: {capacity: 8GiB}\n"
      "tenants: [{name: a, unix: /run/a, g2_share: 25%, keys_per_second: 7, leased_bytes: 2GiB, "
      "staging: 2GiB}]\n");
  CHECK(config.listen.limits == TenantLimitsConfig{.keys_per_second = 50'000,
                                                   .bytes_per_second = 2 * kGiB,
                                                   .connections = 9});
  CHECK(config.tenants[0].limits == TenantLimitsConfig{.keys_per_second = 7,
                                                       .leased_bytes = 2 * kGiB,
                                                       .staging_bytes = 2 * kGiB});
  CHECK(ErrorsOf("g2: {capacity: 8GiB}\n"
                 "tenants: [{name: a, unix: /run/a, g2_share: 25%, leased_bytes: 3GiB}]\n") ==
        "kv.yaml:2:64: tenants[0].leased_bytes: 3GiB is more than this tenant's part of "
        "g2.capacity, 2GiB");
  CHECK(ErrorsOf("g2: {capacity: 8GiB}\nlisten: {staging: 3GiB}\n") ==
        "kv.yaml:2:19: listen.staging: 3GiB is more than limits.staging allows to all, 2GiB");
}

TEST_CASE("readers are names of other tenants") {
  const Config config = Good(
      "listen: {readers: [a]}\n"
      "g2: {capacity: 8GiB}\n"
      "tenants: [{name: a, unix: /run/a, g2_share: 25%, readers: [default, b]},\n"
      "  {name: b, unix: /run/b, g2_share: 25%}]\n");
  CHECK(config.listen.access.readers == std::vector<std::string>{"a"});
  CHECK(config.tenants[0].access.readers == std::vector<std::string>{"default", "b"});
  CHECK(config.tenants[1].access.readers.empty());
  CHECK(ErrorsOf("listen: {readers: [b]}\n") ==
        "kv.yaml:1:19: listen.readers: 'b' is no tenant's name");
  CHECK(ErrorsOf("listen: {readers: [default]}\n") ==
        "kv.yaml:1:19: listen.readers: 'default' is this tenant itself, whose clients read by "
        "their own grants");
  CHECK(ErrorsOf("g2: {capacity: 8GiB}\n"
                 "tenants: [{name: a, unix: /run/a, g2_share: 25%, readers: [default, a]}]\n") ==
        "kv.yaml:2:59: tenants[0].readers: 'a' is this tenant itself, whose clients read by their "
        "own grants");
}

}  // namespace kvkeep
