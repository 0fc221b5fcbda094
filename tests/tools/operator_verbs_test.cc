// The operator's verbs against the fake daemon: their output, in words and in JSON.
#include <absl/strings/match.h>
#include <absl/strings/str_replace.h>

#include <catch2/catch.hpp>

#include "tests/tools/cli_run.h"
#include "tests/tools/json_keys.h"
#include "tools/kvkeep/flow.h"

namespace kvkeep::tools {

TEST_CASE("the JSON of each operator's verb has these keys, which scripts rely on") {
  fakes::FakeDaemon daemon;
  using Keys = std::set<std::string>;
  const auto keys = [&](std::vector<std::string> verb) {
    verb.insert(verb.begin(), "--json");
    return KeysOf(Run(daemon, std::move(verb)));
  };
  CHECK(keys({"sessions"}) == Keys{"sessions", "leased_bytes", "sessions[].client_name",
                                   "sessions[].peer", "sessions[].leases",
                                   "sessions[].leased_bytes", "sessions[].reserved_bytes",
                                   "sessions[].age_ms"});
  CHECK(keys({"quota"}).count("tenants[].g3_quota_bytes") == 1);
  CHECK(keys({"namespaces"}) == Keys{"namespaces", "namespaces[].digest", "namespaces[].tenant",
                                     "namespaces[].model", "namespaces[].sessions",
                                     "namespaces[].chunks", "namespaces[].g2_bytes",
                                     "namespaces[].g3_bytes"});
  CHECK(keys({"evict", "1MiB", "--yes"}) == Keys{"chunks", "bytes"});
  CHECK(keys({"wait", "--devices"}) == Keys{"done", "devices", "devices[].path", "devices[].state",
                                            "devices[].message", "devices[].chunks"});
  CHECK(keys({"verify"}) == Keys{"done", "checked_chunks", "checked_bytes", "damaged_chunks"});
  CHECK(keys({"config", "show"}) == Keys{"file", "hash", "values", "values[].key", "values[].value",
                                         "values[].origin", "values[].default", "values[].live"});
  CHECK(keys({"config", "reload"}) ==
        Keys{"changes", "changes[].key", "changes[].before", "changes[].after", "hash"});
  CHECK(keys({"stat", "1ms", "1"}) ==
        Keys{"seconds", "hit_ratio", "lookups_per_second", "lookup_keys_per_second",
             "put_chunks_per_second", "put_bytes_per_second", "served_chunks_per_second",
             "served_bytes_per_second", "written_back_bytes_per_second",
             "promoted_bytes_per_second", "g2_evictions_per_second", "g3_evictions_per_second",
             "g2_hits", "g3_hits", "g2_used_bytes", "g2_capacity_bytes", "g3_used_bytes",
             "g3_capacity_bytes", "dirty_bytes", "sessions"});
  CHECK(keys({"doctor"}) == Keys{"config", "findings", "findings[].subject", "findings[].state",
                                 "findings[].found", "findings[].to_do", "disk_speeds"});
}

TEST_CASE("wait ends when the daemon serves, or when the devices asked for have joined") {
  fakes::FakeDaemon daemon;
  daemon.admin.joining_answers = 2;
  CHECK(Run(daemon, {"wait"}).out == "serving\n");
  const CliResult joined = Run(daemon, {"wait", "--devices"});
  CHECK(joined.code == kOk);
  CHECK(joined.out == "serving\n/fake: ok\n");
  CHECK(daemon.admin.joining_answers == 0);
  CHECK(Run(daemon, {"wait", "--device", "/fake"}).code == kOk);
  const CliResult unknown = Run(daemon, {"wait", "--device", "/other"});
  CHECK(unknown.code == kUsage);
  CHECK(absl::StrContains(unknown.err, "/other"));
}

TEST_CASE("wait tells how far a device is that has not joined in time") {
  fakes::FakeDaemon daemon;
  daemon.admin.joining_answers = 1'000'000;
  const CliResult late = Run(daemon, {"wait", "--device", "/fake", "--for", "2s"});
  CHECK(late.code == kUnavailable);
  CHECK(late.out == "not yet:\n/fake: joining, its index is read: 7 records so far\n");
}

TEST_CASE("drain --g4 asks the daemon to wait for G4, and drain alone does not") {
  fakes::FakeDaemon daemon;
  const CliResult none = Run(daemon, {"drain", "--g4"});
  CHECK(none.code == kOk);
  CHECK(absl::StrContains(none.err, "has no G4"));
  daemon.admin.g4_state = v1::G4_STATE_WELL;
  CHECK(Run(daemon, {"drain"}).out == "drained, 0 dirty chunks left\n");
  CHECK_FALSE(daemon.admin.drain_waited_for_g4);
  const CliResult waited = Run(daemon, {"drain", "--g4"});
  CHECK(waited.code == kOk);
  CHECK(waited.out == "drained, 0 dirty chunks left, 0 chunks not written to G4\n");
  CHECK(daemon.admin.drain_waited_for_g4);
}

TEST_CASE("drain --to-peers says what peers have, and fails if chunks are left") {
  fakes::FakeDaemon daemon;
  const CliResult old = Run(daemon, {"drain", "--to-peers"});
  CHECK(old.code == kFailed);
  CHECK(absl::StrContains(old.err, "too old for this kvkeep: it gave peers no chunks"));
  uint64_t left = 0;
  daemon.admin.hand_over_at_drain = [&left](v1::DrainResponse* response) {
    response->set_handed_chunks(12);
    response->set_unhanded_chunks(left);
  };
  const CliResult all = Run(daemon, {"drain", "--to-peers"});
  CHECK(all.code == kOk);
  CHECK(all.out == "drained, 0 dirty chunks left, 12 chunks handed to peers, 0 left\n");
  left = 5;
  const CliResult some = Run(daemon, {"--json", "drain", "--to-peers"});
  CHECK(some.code == kFailed);
  CHECK(absl::StrContains(some.err, "no peer had room for 5 chunks within --timeout"));
  const Json json = Json::parse(some.out);
  CHECK(json["handed_chunks"] == 12);
  CHECK(json["unhanded_chunks"] == 5);
  CHECK(Run(daemon, {"drain"}).out == "drained, 0 dirty chunks left\n");
}

TEST_CASE("drain --g4 says what was not written to G4 in time, and why") {
  fakes::FakeDaemon daemon;
  daemon.admin.g4_state = v1::G4_STATE_AWAY;
  daemon.admin.g4_left_at_drain = 3;
  const CliResult late = Run(daemon, {"--json", "--timeout", "10s", "drain", "--g4"});
  CHECK(late.code == kFailed);
  CHECK(late.json()["g4_chunks_left"] == 3);
  CHECK(late.json()["dirty_chunks_left"] == 0);
  CHECK(late.err == "kvkeep: 3 chunks were not written to G4 (away) within --timeout 10s\n");
  CHECK(Run(daemon, {"drain"}).code == kOk);  // it was not requested
}

TEST_CASE("leases lists the sessions that have some") {
  fakes::FakeDaemon daemon;  // every other status has one
  const size_t first = Run(daemon, {"--json", "leases"}).json()["sessions"].size();
  const size_t second = Run(daemon, {"--json", "leases"}).json()["sessions"].size();
  CHECK(first + second == 1);
  CHECK(Run(daemon, {"--json", "sessions"}).json()["sessions"].size() == 1);
}

TEST_CASE("what cannot be undone asks, or wants --yes") {
  fakes::FakeDaemon daemon;
  const CliResult refused = Run(daemon, {"evict", "1MiB"});
  CHECK(refused.code == kUsage);
  CHECK(absl::StrContains(refused.err, "say --yes"));
  CHECK(Run(daemon, {"clear"}).code == kUsage);
  CHECK(Run(daemon, {"evict", "lots", "--yes"}).code == kUsage);
  CHECK(Run(daemon, {"evict", "0", "--yes"}).code == kUsage);
  CHECK(Run(daemon, {"evict", "1MiB", "--tier", "g4", "--yes"}).code == kUsage);
  CHECK(Run(daemon, {"evict", "1MiB", "--tenant", "x", "--yes"}).code == kNotFound);
  CHECK(Run(daemon, {"evict", "1MiB", "--yes"}).out == "evicted 1 chunks, 1.0 MiB\n");
}

TEST_CASE("verify says what it checked, and fails when something was damaged") {
  fakes::FakeDaemon daemon;
  const CliResult clean = Run(daemon, {"verify", "--bytes-per-second", "8MiB"});
  CHECK(clean.code == kOk);
  CHECK(absl::StartsWith(clean.out, "checked 5 chunks, "));
  CHECK(daemon.admin.verify_rate == 8 << 20);
  daemon.admin.damaged = 2;
  const CliResult damaged = Run(daemon, {"verify"});
  CHECK(damaged.code == kFailed);
  CHECK(absl::StrContains(damaged.out, "2 damaged"));
  Run(daemon, {"verify", "--stop"});
  CHECK(daemon.admin.verify_rate == 0);
}

TEST_CASE("config show leaves out what nobody said, and a refused reload says why") {
  fakes::FakeDaemon daemon;
  CHECK(Run(daemon, {"--json", "config", "show"}).json()["values"].size() == 1);
  CHECK(Run(daemon, {"--json", "config", "show", "--effective"}).json()["values"].size() == 2);
  CHECK(Run(daemon, {"config", "reload"}).out == "log.level: info -> debug\n");
  daemon.admin.refuse_reload = true;
  const CliResult refused = Run(daemon, {"config", "reload"});
  CHECK(refused.code == kFailed);
  CHECK(absl::StrContains(refused.err, "g2.capacity: 1GiB -> 2GiB"));
}

TEST_CASE("stat prints a head and rows as wide as it, of what happened between two looks") {
  fakes::FakeDaemon daemon;
  const CliResult result = Run(daemon, {"stat", "1ms", "2"});
  REQUIRE(result.code == kOk);
  std::istringstream lines(result.out);
  std::string head, first, second;
  std::getline(lines, head);
  std::getline(lines, first);
  std::getline(lines, second);
  CHECK(head.size() == first.size());
  CHECK(absl::StrContains(first, "    40.0%        10       100 "));
  CHECK(absl::StrContains(first, " 1.0MiB "));
  CHECK(second == first);
  // Without a terminal top prints the same.
  CHECK(Run(daemon, {"top", "--interval", "1ms", "--count", "1"}).out ==
        head + "\n" + first + "\n");
  CHECK(Run(daemon, {"stat", "soon"}).code == kUsage);
}

TEST_CASE("a daemon that was started anew between two looks did nothing in between") {
  v1::StatusResponse before, after;
  before.set_incarnation(1);
  after.set_incarnation(2);
  before.set_uptime_ms(1000);
  after.set_uptime_ms(3000);
  (*before.mutable_counters())["put_bytes"] = 100;
  (*after.mutable_counters())["put_bytes"] = 300;
  CHECK(FlowBetween(before, after).put_bytes == 0);
  after.set_incarnation(1);
  CHECK(FlowBetween(before, after).put_bytes == 100);
  CHECK(FlowBetween(after, before).put_bytes == 0);
}

namespace {

// A daemon that is busy enough for every part of the screen of top.
v1::StatusResponse BusyDaemon() {
  v1::StatusResponse now;
  now.set_version("1.2.3");
  now.set_pid(4242);
  now.set_uptime_ms(98'765'000);
  for (auto* tier : {now.mutable_g2(), now.mutable_g3()}) {
    tier->set_capacity_bytes(100 << 20);
    tier->set_used_bytes(50 << 20);
    tier->set_chunks(1'234'567);
    tier->set_hits(7);
  }
  for (int i = 0; i < 3; ++i) {
    auto* device = now.add_devices();
    device->set_path("/nvme" + std::to_string(i));
    device->set_state(i == 2 ? "offline" : "ok");
    device->set_capacity_bytes(100);
    device->set_used_bytes(25);
  }
  now.mutable_devices(2)->set_message("no answer");
  for (int i = 0; i < 40; ++i) {
    auto* session = now.add_sessions();
    session->set_client_name("engine-" + std::to_string(i));
    session->set_peer("unix:pid=" + std::to_string(i) + " uid=1000 and as long as it may be");
    session->set_leased_bytes(i);
  }
  return now;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

const Flow kBusyFlow{.seconds = 2,
                     .keys = 1000,
                     .found_keys = 400,
                     .lookups = 10,
                     .put_chunks = 3,
                     .served_chunks = 4,
                     .put_bytes = 1 << 20,
                     .served_bytes = 2 << 20,
                     .from_g3_bytes = 3 << 20,
                     .to_g3_bytes = 4 << 20,
                     .g2_evictions = 5,
                     .g3_evictions = 6,
                     .devices = {{"/nvme0", {.read_seconds = 0.0001, .write_seconds = 0.002}},
                                 {"/nvme1", {.read_seconds = 0.004}}}};

}  // namespace

TEST_CASE("on a terminal of 80 by 24 the screen of top is this") {
  const std::vector<std::string> lines =
      Lines(TopScreen(kBusyFlow, BusyDaemon(), {.columns = 80, .rows = 24}, false));
  REQUIRE(lines.size() == 23);
  const std::vector<std::string> head = {
      "kvkeepd 1.2.3  pid 4242, up 98765 s, over 2.0 s",
      "",
      "hit ratio 40.0% of 1000 keys/s in 10 lookups/s",
      "put 3 chunks/s, 1.0 MiB/s   served 4 chunks/s, 2.0 MiB/s",
      "",
      "G2 [############............]  50.0%  50.0 MiB of 100.0 MiB, 1234567 chunks",
      "   5 evicted/s, 0 B dirty, 7 hits",
      "G3 [############............]  50.0%  50.0 MiB of 100.0 MiB, 1234567 chunks",
      "   in 4.0 MiB/s, out 3.0 MiB/s, 6 evicted/s, 7 hits",
      "   [###.......] ok         read 4.00 ms   write -         /nvme1",
      "   [###.......] ok         read 0.10 ms   write 2.00 ms   /nvme0",
      "   [###.......] offline    read -         write -         /nvme2: no answer",
      "",
      "40 sessions"};
  for (size_t i = 0; i < head.size(); ++i) CHECK(lines[i] == head[i]);
  CHECK(absl::StartsWith(lines[14], "SESSION    PEER "));
  CHECK(absl::StartsWith(lines[15], "engine-39  unix:pid=39 "));
  CHECK(absl::StartsWith(lines[22], "engine-32 "));
}

TEST_CASE("top and stat show a G4 where there is one: how it is, and what moves") {
  Flow flow = kBusyFlow;
  flow.g4_hits = 8;
  flow.from_g4_bytes = 5 << 20;
  flow.to_g4_bytes = 6 << 20;
  flow.g4_drops = 9;
  v1::StatusResponse now = BusyDaemon();
  const auto screen = [&] {
    return Lines(TopScreen(flow, now, {.columns = 80, .rows = 24}, false));
  };
  const size_t lines = screen().size();
  CHECK(FlowHead(now).size() == FlowRow(flow, now).size());
  const std::string without = FlowLine(FlowRow(flow, now));
  CHECK_FALSE(FlowJson(flow, now).contains("g4"));
  now.mutable_g4()->set_state(v1::G4_STATE_WELL);
  now.mutable_g4()->set_takes_puts(true);
  CHECK(screen().size() == lines);
  CHECK(screen()[9] == "G4 well, in 6.0 MiB/s, out 5.0 MiB/s, 9 dropped/s, 8 hits/s");
  CHECK(absl::StartsWith(screen()[10], "   ["));
  now.mutable_g4()->set_state(v1::G4_STATE_MISCONFIGURED);
  CHECK(absl::StartsWith(screen()[9], "G4 misconfigured, in "));
  for (const bool takes : {true, false}) {
    now.mutable_g4()->set_state(v1::G4_STATE_WELL);
    now.mutable_g4()->set_takes_puts(takes);
    const std::string row = FlowLine(FlowRow(flow, now));
    CHECK(FlowLine(FlowHead(now)).size() == row.size());
    CHECK(absl::StartsWith(row, without.substr(0, without.size() - 1)));
    CHECK(absl::EndsWith(row, takes ? " well\n" : " takes-no-writes\n"));
    CHECK(absl::StrContains(row, "    6.0MiB    5.0MiB         8         9 "));
  }
  CHECK(FlowJson(flow, now)["g4"] == Json{{"state", "takes no writes"},
                                          {"hits_per_second", 8.0},
                                          {"recalled_bytes_per_second", 5242880.0},
                                          {"written_bytes_per_second", 6291456.0},
                                          {"dropped_writes_per_second", 9.0}});
}

TEST_CASE("what moved to and from G4 between two looks is told by the second") {
  v1::StatusResponse before, after;
  before.set_uptime_ms(1'000);
  after.set_uptime_ms(3'000);
  after.mutable_g4()->set_recalled_chunks(10);
  after.mutable_g4()->set_recalled_bytes(2'000);
  after.mutable_g4()->set_written_bytes(4'000);
  after.mutable_g4()->set_dropped_writes(6);
  CHECK(FlowBetween(before, after).g4_hits == 0);  // there was none before
  before.mutable_g4();
  const Flow flow = FlowBetween(before, after);
  CHECK(flow.g4_hits == 5);
  CHECK(flow.from_g4_bytes == 1'000);
  CHECK(flow.to_g4_bytes == 2'000);
  CHECK(flow.g4_drops == 3);
}

TEST_CASE("a wide screen of top has a line a tier, a small one what fits") {
  const auto lines = [](size_t columns, size_t rows) {
    return Lines(TopScreen(kBusyFlow, BusyDaemon(), {.columns = columns, .rows = rows}, false));
  };
  const std::vector<std::string> wide = lines(140, 40);
  CHECK(wide.size() == 39);
  CHECK(wide[5] ==
        "G2 [###############...............]  50.0%  50.0 MiB of 100.0 MiB, 1234567 "
        "chunks, 5 evicted/s, 0 B dirty, 7 hits");
  CHECK(absl::StartsWith(wide[6], "G3 ["));
  for (const size_t columns : {1, 20, 40, 79, 110, 300}) {
    for (const size_t rows : {1, 2, 5, 12, 15, 24, 100}) {
      INFO(columns << " by " << rows);
      const std::vector<std::string> shown = lines(columns, rows);
      CHECK(shown.size() <= std::max<size_t>(1, rows - 1));
      for (const std::string& line : shown) CHECK(line.size() <= columns);
    }
  }
  // Half of the rest belongs to the devices.
  v1::StatusResponse many = BusyDaemon();
  for (int i = 0; i < 60; ++i) *many.add_devices() = many.devices(0);
  CHECK(absl::StrContains(TopScreen(kBusyFlow, many, {.columns = 80, .rows = 24}, false),
                          "   and 56 more\n"));
}

TEST_CASE("colours take no columns of the screen of top, and are ended where lines are cut") {
  const std::string plain = TopScreen(kBusyFlow, BusyDaemon(), {}, false);
  CHECK_FALSE(absl::StrContains(plain, "\033"));
  const std::string colored = TopScreen(kBusyFlow, BusyDaemon(), {}, true);
  CHECK(absl::StrContains(colored, "\033[31moffline  \033[0m"));
  const auto without = [](std::string text) {
    for (const char* code : {"\033[0m", "\033[1m", "\033[31m", "\033[32m", "\033[33m"}) {
      text = absl::StrReplaceAll(text, {{code, ""}});
    }
    return text;
  };
  CHECK(without(colored) == plain);
  CHECK(CutLines("\033[31mred\033[0m and more\nx", 2) == "\033[31mre\033[0m\nx");
}

TEST_CASE("a screen of top that has room left ends with its last line") {
  v1::StatusResponse now = BusyDaemon();
  now.clear_sessions();
  const std::vector<std::string> lines =
      Lines(TopScreen(kBusyFlow, now, {.columns = 80, .rows = 24}, false));
  REQUIRE(lines.size() == 14);
  CHECK(lines[13] == "0 sessions");
}

TEST_CASE("what clients call themselves does nothing to the terminal") {
  v1::StatusResponse now;
  now.add_sessions()->set_client_name("evil\033[2J\nname\xc2\x9b\x7f \xc3\x84");
  CHECK(absl::StrContains(TopScreen({}, now, {}, false), "evil?[2J?name?\x9b? \xc3\x84"));
  CHECK(Printable("plain text") == "plain text");
}

TEST_CASE("a device's operations are told with what they took on average between two looks") {
  v1::StatusResponse before = BusyDaemon(), after = BusyDaemon();
  after.set_uptime_ms(before.uptime_ms() + 1000);
  before.mutable_devices(0)->set_reads(10);
  before.mutable_devices(0)->set_read_ns(1'000'000);
  after.mutable_devices(0)->set_reads(14);
  after.mutable_devices(0)->set_read_ns(9'000'000);
  const Flow flow = FlowBetween(before, after);
  CHECK(flow.devices.at("/nvme0").read_seconds == Approx(0.002));
  CHECK(flow.devices.at("/nvme0").write_seconds == 0);
  CHECK(FlowBetween(after, after).devices.empty());
}

}  // namespace kvkeep::tools
