// A config that changes while the daemon serves.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "tests/e2e/engine.h"
#include "tests/e2e/shell.h"
#include "tests/fakes/manager_socket.h"
#include "tests/fakes/scoped_variable.h"

namespace kvkeep::e2e {
namespace {

// The default tenant, and "a" with these `limits`.
std::string Tenants(const Site& site, const std::string& limits) {
  return absl::StrCat("tenants:\n  - {name: a, unix: ", site.path("a.sock"), ", g2_share: 25%",
                      limits, "}\n");
}

Settings WithTenants() { return {.segment_bytes = "16MiB", .devices = {{.capacity = "256MiB"}}}; }

std::string Value(const Site& site, const std::string& key) {
  const auto config = site.admin()->ShowConfig();
  REQUIRE(config.ok());
  for (const v1::ConfigValue& value : config->values()) {
    if (value.key() == key) return value.value();
  }
  return "none";
}

std::string Reload(const Site& site) {
  const auto reloaded = site.admin()->ReloadConfig();
  return reloaded.ok() ? "ok" : std::string(reloaded.status().message());
}

// Puts and gets until it is destroyed; counts wrong answers.
class Load {
 public:
  explicit Load(const Site& site)
      : thread_([this, &site] {
          Engine engine(site);
          for (uint64_t round = 0; !stop_; ++round) {
            const auto chunks = Chunks(1 + round % 4 * 8, 8, 64 << 10);
            failed_ += !engine.PutAll(chunks);
            for (const TestChunk& chunk : chunks) {
              failed_ += engine.Get(chunk) == client::GetStatus::kUnfinished;
            }
            failed_ += engine.wrong_bytes;
            ++rounds_;
          }
        }) {}
  ~Load() { Stop(); }
  uint64_t Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return failed_;
  }
  uint64_t rounds() const { return rounds_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> failed_{0}, rounds_{0};
  std::thread thread_;
};

}  // namespace

TEST_CASE("SIGHUP takes a quota, a rate and the log level over, under load") {
  Site site(WithTenants());
  site.settings.extra = Tenants(site, "");
  site.Start();
  {
    Engine engine("unix://" + site.path("a.sock"), {.name = "a"});
    REQUIRE(engine.PutAll(Chunks(1000, 64, (256 << 10) - 4096)));
    REQUIRE(site.AwaitClean());
  }
  REQUIRE(site.TenantStatus("a").g3_used_bytes() == 16 << 20);
  Load load(site);
  REQUIRE(Eventually([&] { return load.rounds() > 2; }));
  CHECK(Value(site, "log.level") == "info");

  site.settings.extra =
      Tenants(site, ", g3_quota: 4MiB, keys_per_second: 5") + "log: {level: error}\n";
  site.WriteConfig();
  site.Signal(SIGHUP);
  REQUIRE(site.AwaitLog("config reloaded"));
  CHECK(site.AwaitLog("log.level: info -> error"));
  REQUIRE(Eventually([&] { return site.TenantStatus("a").g3_used_bytes() <= 4 << 20; }));
  CHECK(site.TenantStatus("a").g3_quota_bytes() == 4 << 20);
  CHECK(site.TenantStatus("a").g3_used_bytes() == 4 << 20);
  CHECK(site.TenantStatus("a").keys_per_second() == 5);
  Engine engine("unix://" + site.path("a.sock"), {.name = "a"});
  engine.Find(Chunks(1000, 64, 1));
  engine.Find(Chunks(1000, 64, 1));
  CHECK(Eventually([&] { return site.TenantStatus("a").key_rate_refusals() > 0; }));
  CHECK(Value(site, "log.level") == "error");
  CHECK(Value(site, "tenants[0].g3_quota") == "4MiB");

  // Back again, by an admin call.
  const uint64_t rounds = load.rounds();
  site.settings.extra = Tenants(site, "");
  site.WriteConfig();
  CHECK(Reload(site) == "ok");
  CHECK(site.TenantStatus("a").keys_per_second() == 0);
  CHECK(absl::StrContains(site.Log(), "call=ReloadConfig"));
  REQUIRE(Eventually([&] { return load.rounds() > rounds; }));
  CHECK(load.Stop() == 0);
  CHECK(site.Stop().exit_status == 0);
}

TEST_CASE("a config that is wrong, or needs a restart, changes nothing of what runs") {
  Site site(WithTenants());
  const int port = FreePort();
  site.settings.metrics = absl::StrCat("127.0.0.1:", port);
  site.settings.extra = Tenants(site, ", keys_per_second: 100");
  site.Start();
  const auto metric = [&](const std::string& line) {
    return absl::StrContains(HttpGet(port, "/metrics"), line);
  };
  CHECK(metric("kvkeep_config_last_reload_successful 1"));
  const std::string hash = site.admin()->ShowConfig()->hash();
  CHECK(metric(absl::StrCat("kvkeep_config_hash_info{hash=\"", hash, "\"} 1")));

  const std::string good = ReadFile(site.config_file());
  WriteFile(site.config_file(), good + "log: {level: loud}\n");
  site.Signal(SIGHUP);
  REQUIRE(site.AwaitLog("config not reloaded; the previous one stays in use"));
  CHECK(site.AwaitLog("log.level: 'loud' is not one of"));
  CHECK(metric("kvkeep_config_last_reload_successful 0"));
  CHECK(Value(site, "log.level") == "info");

  // The level alone could change, but not together with the rest.
  site.settings.segment_bytes = "8MiB";
  site.settings.extra = Tenants(site, ", keys_per_second: 7") + "log: {level: debug}\n";
  site.WriteConfig();
  const std::string refused = Reload(site);
  CHECK(absl::StrContains(refused, "needs a restart, so nothing was changed: "));
  CHECK(absl::StrContains(refused, "g2.segment_bytes: 16MiB -> 8MiB"));
  CHECK_FALSE(absl::StrContains(refused, "log.level"));
  CHECK(Value(site, "log.level") == "info");
  CHECK(site.TenantStatus("a").keys_per_second() == 100);
  CHECK(site.admin()->ShowConfig()->hash() == hash);

  WriteFile(site.config_file(), good);
  CHECK(Reload(site) == "ok");
  CHECK(metric("kvkeep_config_last_reload_successful 1"));

  // By the tool: the changes, and the exit code of a refusal.
  const std::string tool = absl::StrCat("'" KVKEEP_PATH "' --admin unix://", site.admin_socket());
  const Outcome same = RunShell(tool + " config reload");
  CHECK(same.status == 0);
  CHECK(same.output == "nothing changed\n");
  site.WriteConfig();
  CHECK(RunShell(tool + " config reload").status == 1);
  const Outcome shown = RunShell(tool + " config show --effective");
  CHECK(shown.status == 0);
  CHECK(absl::StrContains(shown.output, absl::StrCat(site.config_file(), ":")));
  CHECK(absl::StrContains(shown.output, "limits.stall_timeout"));
}

TEST_CASE(
    "capacities shrink while it serves, down to what is leased, and grow back to what was built") {
  Site site({.devices = {{.capacity = "256MiB"}}});
  site.Start();
  Engine engine(site);
  const auto chunks = Chunks(1, 40, (1 << 20) - 4096);
  REQUIRE(engine.PutAll(chunks));
  REQUIRE(site.AwaitClean());
  REQUIRE(site.Status().g2().used_bytes() == 40 << 20);
  REQUIRE(site.Status().g3().used_bytes() > 40 << 20);

  site.settings.g2 = "16MiB";
  site.settings.devices[0].capacity = "64MiB";
  site.WriteConfig();
  site.Signal(SIGHUP);
  REQUIRE(site.AwaitLog("config reloaded"));
  CHECK(Value(site, "g2.capacity") == "16MiB");
  const v1::StatusResponse now = site.Status();
  CHECK(now.g2().capacity_bytes() == 16 << 20);
  CHECK(now.g2().used_bytes() == 16 << 20);
  CHECK(now.devices(0).built_bytes() == 256 << 20);
  CHECK(now.devices(0).directory_bytes() <= 256 << 20);
  // A chunk has left the device when its index has forgotten it.
  CHECK(Eventually([&] { return site.Status().g3().capacity_bytes() == 64 << 20; }));
  CHECK(site.Status().g3().used_bytes() <= 64 << 20);
  CHECK(engine.Get(chunks[39]) == client::GetStatus::kHit);
  CHECK(engine.PutAll(Chunks(1000, 40, (1 << 20) - 4096)));
  REQUIRE(site.AwaitClean());
  CHECK(site.Status().g2().used_bytes() <= 16 << 20);
  CHECK(site.Status().g3().used_bytes() <= 64 << 20);

  // A value below what a lease holds: nothing is taken over.
  {
    const auto found =
        engine.client().Lookup(engine.ns(), KeysOf(Chunks(1032, 8, (1 << 20) - 4096)),
                               {.lease = client::LeaseMode::kLeadingRun});
    REQUIRE(found.ok());
    site.settings.g2 = "4MiB";
    site.settings.extra = "log: {level: debug}\n";
    site.WriteConfig();
    const std::string refused = Reload(site);
    CHECK(
        absl::StrContains(refused, "not taken over, so nothing was changed: g2.capacity: 16MiB "));
    CHECK(absl::StrContains(refused, "of which 4194304 bytes would be tenant default's"));
    CHECK(Value(site, "log.level") == "info");
  }
  site.settings.g2 = "64MiB";
  site.settings.devices[0].capacity = "256MiB";
  site.WriteConfig();
  CHECK(Reload(site) == "ok");
  CHECK(engine.PutAll(Chunks(2000, 40, (1 << 20) - 4096)));
  CHECK(site.Status().g2().used_bytes() > 40 << 20);
  site.settings.g2 = "128MiB";
  site.WriteConfig();
  CHECK(absl::StrContains(Reload(site), "more than the 67108864 that were mapped at the start"));

  // A smaller capacity holds over a restart, whatever the device was made for.
  site.settings.g2 = "64MiB";
  site.settings.devices[0].capacity = "64MiB";
  site.WriteConfig();
  REQUIRE(site.Stop().exit_status == 0);
  site.Start();
  CHECK(Eventually([&] { return site.Status().g3().used_bytes() <= 64 << 20; }));
  CHECK(site.Status().g3().chunks() > 0);
}

TEST_CASE("variables stand above the file, after a reload too") {
  const ScopedVariable level("KVKEEP_LOG_LEVEL", "warn");
  Site site;
  site.settings.extra = "log: {level: debug}\n";
  site.Start();
  CHECK(Value(site, "log.level") == "warn");
  CHECK(Reload(site) == "ok");
  CHECK(Value(site, "log.level") == "warn");
  CHECK_FALSE(absl::StrContains(site.Log(), "msg=serving"));
}

TEST_CASE("another token file is taken over, and the one of before lets nobody in any more") {
  Site site;
  const auto write_private = [&](const std::string& name, const std::string& text) {
    WriteFile(site.path(name), text);
    std::filesystem::permissions(
        site.path(name), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  };
  for (const char* name : {"old", "new"}) {
    const std::string token = absl::StrCat("a-token-that-is-long-enough-", name);
    write_private(name, token);
    const Outcome hashed = RunShell(absl::StrCat("printf %s '", token, "' | sha256sum"));
    write_private(absl::StrCat(name, "-hashes"), hashed.output.substr(0, 64) + "\n");
  }
  const int port = FreePort();
  site.settings.tcp = absl::StrCat("127.0.0.1:", port);
  site.settings.access = absl::StrCat("  token_file: ", site.path("old-hashes"), "\n");
  site.Start();
  const auto may_come_in = [&](const char* name) {
    Engine engine(site.settings.tcp,
                  {.deadline = milliseconds(20'000), .security = {.token_file = site.path(name)}});
    return engine.client().connected();
  };
  CHECK(may_come_in("old"));
  CHECK_FALSE(may_come_in("new"));
  // A file that cannot be read refuses the rest as well.
  site.settings.access = absl::StrCat("  token_file: ", site.path("none"), "\n");
  site.settings.extra = "log: {level: debug}\n";
  site.WriteConfig();
  CHECK(absl::StrContains(Reload(site), "none"));
  CHECK(Value(site, "log.level") == "info");
  CHECK(may_come_in("old"));
  site.settings.access = absl::StrCat("  token_file: ", site.path("new-hashes"), "\n");
  site.WriteConfig();
  CHECK(Reload(site) == "ok");
  CHECK(may_come_in("new"));
  CHECK_FALSE(may_come_in("old"));
}

TEST_CASE("the service manager is told that a reload begins and ends, whatever comes of it") {
  ManagerSocket socket;
  const ScopedVariable notify("NOTIFY_SOCKET", socket.path());
  Site site;
  site.Start();
  const auto next_with = [&](const std::string& field) {
    std::optional<ManagerSocket::Message> message;
    while ((message = socket.Next(milliseconds(20'000))).has_value() && !message->contains(field)) {
    }
    return message;
  };
  REQUIRE(next_with("READY").has_value());
  for (const bool good : {true, false}) {
    if (!good) WriteFile(site.config_file(), "g2: {capacity: huge}\n");
    timespec before{};
    clock_gettime(CLOCK_MONOTONIC, &before);
    site.Signal(SIGHUP);
    auto message = next_with("RELOADING");
    REQUIRE(message.has_value());
    const uint64_t us = static_cast<uint64_t>(before.tv_sec) * 1'000'000 +
                        static_cast<uint64_t>(before.tv_nsec) / 1000;
    CHECK(std::stoull(message->at("MONOTONIC_USEC")) >= us);
    CHECK(std::stoull(message->at("MONOTONIC_USEC")) < us + 60'000'000);
    message = next_with("READY");
    REQUIRE(message.has_value());
    CHECK(absl::StartsWith(message->at("STATUS"),
                           good ? "serving; config reloaded" : "serving; config not reloaded: "));
  }
}

}  // namespace kvkeep::e2e
