// The operator's verbs against the fake daemon: what they print, in words and in JSON.
#include <absl/strings/match.h>

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
  CHECK(keys({"verify"}) == Keys{"done", "checked_chunks", "checked_bytes", "damaged_chunks"});
  CHECK(keys({"config", "show"}) == Keys{"file", "hash", "values", "values[].key", "values[].value",
                                         "values[].origin", "values[].default", "values[].live"});
  CHECK(keys({"config", "reload"}) ==
        Keys{"changes", "changes[].key", "changes[].before", "changes[].after", "hash"});
  CHECK(keys({"stat", "1ms", "1"}) ==
        Keys{"seconds", "hit_ratio", "lookups_per_second", "lookup_keys_per_second",
             "put_chunks_per_second", "put_bytes_per_second", "read_chunks_per_second",
             "sent_bytes_per_second", "written_back_bytes_per_second", "promoted_bytes_per_second",
             "g2_evictions_per_second", "g3_evictions_per_second", "g2_used_bytes",
             "g2_capacity_bytes", "g3_used_bytes", "g3_capacity_bytes", "dirty_bytes", "sessions"});
  CHECK(keys({"doctor"}) == Keys{"config", "findings", "findings[].subject", "findings[].state",
                                 "findings[].found", "findings[].to_do"});
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
  // Without a terminal top is the same.
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

TEST_CASE("the screen of top shows tiers as bars, what is wrong of devices, and the sessions") {
  v1::StatusResponse now;
  now.mutable_g2()->set_capacity_bytes(100);
  now.mutable_g2()->set_used_bytes(50);
  auto* device = now.add_devices();
  device->set_path("/nvme0");
  device->set_state("offline");
  device->set_message("does not answer");
  now.add_sessions()->set_client_name("engine-1");
  const std::string plain = TopScreen({}, now, 200, false);
  CHECK(absl::StrContains(plain, "G2 [###############...............]  50.0%"));
  CHECK(absl::StrContains(plain, "/nvme0 offline: does not answer"));
  CHECK(absl::StrContains(plain, "engine-1"));
  CHECK(absl::StrContains(plain, "hit ratio - of 0 keys/s"));
  CHECK_FALSE(absl::StrContains(plain, "\033"));
  CHECK(absl::StrContains(TopScreen({}, now, 200, true), "\033[31moffline\033[0m"));
  std::istringstream narrow(TopScreen({}, now, 40, false));
  for (std::string line; std::getline(narrow, line);) CHECK(line.size() <= 40);
}

}  // namespace kvkeep::tools
