// Changes that a reload may take over.
#include "config/change.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "config/schema.h"
#include "tests/config/loaded.h"

namespace kvkeep {
namespace {

constexpr char kTwoTenants[] =
    "tenants:\n"
    "  - {name: a, unix: /a, g2_share: 25%, g3_quota: 1GiB}\n"
    "  - {name: b, unix: /b, g2_share: 25%}\n";

std::vector<ConfigDifference> Diff(const std::string& before, const std::string& after) {
  return DiffConfigs(Good(before), Good(after));
}

}  // namespace

TEST_CASE("every key says once whether a reload takes it over, and no other path does") {
  std::vector<std::string> classified = ClassifiedPaths(), paths;
  for (const ConfigKey& key : ConfigKeys()) {
    INFO(key.path);
    CHECK(ChangeOf(key.path).has_value());
    paths.push_back(key.path);
  }
  std::sort(classified.begin(), classified.end());
  std::sort(paths.begin(), paths.end());
  CHECK(classified == paths);
  CHECK_FALSE(ChangeOf("g2.capacty").has_value());
}

TEST_CASE("what shares memory, sockets or formats with others needs a restart") {
  for (const char* path :
       {"g2.segment_bytes", "g3.paths[].dir", "listen.unix", "listen.tcp", "state.dir",
        "tenants[].name", "tenants[].g2_share", "g2.policy", "g3.policy", "limits.max_chunks",
        "metrics.listen", "listen.readers", "g4.url", "g4.epoch", "fleet.key_file"}) {
    INFO(path);
    CHECK(ChangeOf(path) == ConfigChange::kRestart);
  }
  for (const char* path :
       {"log.level", "tenants[].g3_quota", "listen.keys_per_second", "limits.sessions",
        "g3.scrub_bytes_per_second", "g3.write_budget_bytes_per_second", "g3.endurance_tbw",
        "g2.capacity", "g3.paths[].capacity", "g3.admission", "g4.write_bytes_per_second",
        "remote.probes_per_second", "drain.timeout", "drain.to_peers"}) {
    INFO(path);
    CHECK(ChangeOf(path) == ConfigChange::kLive);
  }
}

TEST_CASE("configs that say the same in other words do not differ") {
  CHECK(Diff("g2: {capacity: 2GiB}\nlog: {level: info}", "g2:\n  capacity: 2048MiB\n").empty());
  CHECK(Diff(kTwoTenants, kTwoTenants).empty());
}

TEST_CASE("a difference names key, entry, both values and what it takes") {
  const auto log = Diff("", "log: {level: debug}\ng2: {segment_bytes: 2MiB}");
  REQUIRE(log.size() == 2);
  CHECK(log[0].key == "g2.segment_bytes");
  CHECK(log[0].before == "1GiB");
  CHECK(log[0].after == "2MiB");
  CHECK(log[0].change == ConfigChange::kRestart);
  CHECK(log[1].key == "log.level");
  CHECK(log[1].change == ConfigChange::kLive);

  const auto quota = Diff(kTwoTenants,
                          "tenants:\n"
                          "  - {name: a, unix: /a, g2_share: 25%, g3_quota: 1GiB}\n"
                          "  - {name: b, unix: /b, g2_share: 25%, g3_quota: 2GiB}\n");
  REQUIRE(quota.size() == 1);
  CHECK(quota[0].key == "tenants[1].g3_quota");
  CHECK(quota[0].before == "0");
  CHECK(quota[0].change == ConfigChange::kLive);
}

TEST_CASE("a tenant or a path more, fewer or in another order needs a restart") {
  const auto more = Diff("", "tenants: [{name: a, unix: /a, g2_share: 25%, keys_per_second: 7}]");
  REQUIRE(more.size() == 1);  // not each of its keys
  CHECK(more[0].key == "tenants");
  CHECK(more[0].before == "0 entries");
  CHECK(more[0].after == "1 entry");
  CHECK(more[0].change == ConfigChange::kRestart);
  CHECK(Diff("", "g3: {paths: []}")[0].key == "g3.paths");
  bool named = false;
  for (const ConfigDifference& difference :
       Diff(kTwoTenants,
            "tenants:\n"
            "  - {name: b, unix: /b, g2_share: 25%}\n"
            "  - {name: a, unix: /a, g2_share: 25%, g3_quota: 1GiB}\n")) {
    named = named ||
            (difference.key == "tenants[0].name" && difference.change == ConfigChange::kRestart);
  }
  CHECK(named);
}

}  // namespace kvkeep
