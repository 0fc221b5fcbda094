// The reload of a config: values that components are asked to take over, and values that are
// refused before.
#include "server/life/config_keeper.h"

#include <absl/strings/match.h>
#include <pthread.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "config/effective.h"
#include "tests/fakes/scratch_dir.h"

namespace kvkeep {
namespace {

constexpr char kStart[] = "g2: {capacity: 2GiB, policy: lru}\nlog: {level: info}\n";

// A keeper over a file, and the values taken over.
class Kept {
 public:
  Kept() : Kept(Starting{}) { Listen(); }
  // As during the daemon's start.
  struct Starting {};
  explicit Kept(Starting) : keeper_(Start(), &state_, &log_) {}
  void Listen() {
    keeper_.OnReload([this](const DaemonOptions& now) {
      if (refusal.ok()) taken.push_back(now);
      return refusal;
    });
  }
  void Write(const std::string& text) const { std::ofstream(file()) << text; }
  std::string file() const { return dir_ / "kv.yaml"; }
  // Returns "ok", or the reason.
  std::string Reload() {
    const auto reloaded = keeper_.Reload();
    if (reloaded.ok()) changes = *reloaded;
    return reloaded.ok() ? "ok" : std::string(reloaded.status().message());
  }
  // Puts its answer into `answers`.
  void Ask() {
    keeper_.Ask([this](const absl::StatusOr<ConfigKeeper::Changes>& reloaded) {
      answers.push_back(reloaded.ok() ? "ok" : std::string(reloaded.status().message()));
    });
  }
  bool successful() const { return state_.config.last_reload_ok.load(); }
  std::string hash() const { return state_.config.hash(); }
  std::string level() {
    for (const EffectiveValue& value : EffectiveValues(*keeper_.current())) {
      if (value.key == "log.level") return value.value;
    }
    return "";
  }
  ConfigKeeper& keeper() { return keeper_; }

  absl::Status refusal;  // of the component that takes over
  std::vector<DaemonOptions> taken;
  ConfigKeeper::Changes changes;
  std::vector<std::string> answers;

 private:
  StartedConfig Start() const {
    Write(kStart);
    ConfigSources sources{.file = file()};
    LoadResult loaded = LoadConfigSources(sources);
    return {std::move(sources), std::move(loaded)};
  }

  const ScratchDir dir_;
  const Log log_{LogFormat::kLogfmt, spdlog::level::off};
  ServerState state_{"test", RealClock()};
  ConfigKeeper keeper_;
};

sigset_t BlockHangup() {
  sigset_t hangup;
  sigemptyset(&hangup);
  sigaddset(&hangup, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &hangup, nullptr);
  return hangup;
}

}  // namespace

TEST_CASE("what may change is taken over, and told with its values") {
  Kept kept;
  CHECK(kept.successful());
  const std::string before = kept.hash();
  kept.Write("g2: {capacity: 2GiB, policy: lru}\nlog: {level: debug}\nlimits: {sessions: 7}\n");
  REQUIRE(kept.Reload() == "ok");
  REQUIRE(kept.taken.size() == 1);
  CHECK(kept.taken[0].log_level == spdlog::level::debug);
  CHECK(kept.taken[0].storage.store.max_sessions == 7);
  CHECK(DescribeChanges(kept.changes) == "limits.sessions: 1024 -> 7, log.level: info -> debug");
  CHECK(kept.level() == "debug");
  CHECK(kept.hash() != before);
  CHECK(kept.Reload() == "ok");
  CHECK(kept.changes.empty());
}

TEST_CASE("capacities and the admission are taken over, with the limits that are shares of them") {
  Kept kept;
  kept.Write(
      "g2: {capacity: 1GiB, policy: lru}\nlimits: {leased_bytes: 25%}\n"
      "g3: {admission: second_use, paths: [{dir: /var/lib/kvkeep/nvme0, capacity: 1GiB}]}\n");
  REQUIRE(kept.Reload() == "ok");
  REQUIRE(kept.taken.size() == 1);
  CHECK(kept.taken[0].storage.store.g2_capacity_bytes == kGiB);
  CHECK(kept.taken[0].storage.store.max_leased_bytes == kGiB / 4);
  CHECK(kept.taken[0].storage.store.g3_admission == "second_use");
  CHECK(kept.taken[0].storage.devices[0].capacity_bytes == kGiB);
  CHECK(DescribeChanges(kept.changes) ==
        "g2.capacity: 2GiB -> 1GiB, g3.paths[0].capacity: 1TiB -> 1GiB, g3.admission: all -> "
        "second_use, limits.leased_bytes: 50% -> 25%");
}

TEST_CASE("one key that needs a restart keeps everything as it was, and each such key is named") {
  Kept kept;
  const std::string before = kept.hash();
  kept.Write(
      "g2: {capacity: 2GiB, policy: reuse}\nlog: {level: debug}\nlimits: {max_chunks: 1M}\n");
  CHECK(kept.Reload() ==
        "needs a restart, so nothing was changed: g2.policy: lru -> reuse, limits.max_chunks: "
        "4M -> 1M");
  CHECK(kept.taken.empty());
  CHECK(kept.level() == "info");
  CHECK(kept.hash() == before);
  CHECK_FALSE(kept.successful());
  kept.Write(kStart);
  CHECK(kept.Reload() == "ok");
  CHECK(kept.successful());
}

TEST_CASE("a file that is wrong or gone changes nothing, and all its errors are told") {
  Kept kept;
  kept.Write("log: {level: loud}\nlimits: {sesions: 3}\n");
  const std::string errors = kept.Reload();
  CHECK(absl::StrContains(errors, "kv.yaml:1:14: log.level: 'loud' is not one of"));
  CHECK(absl::StrContains(errors, "\n"));
  CHECK(absl::StrContains(errors, "kv.yaml:2:10: unknown key 'limits.sesions'"));
  // Valid by itself, but a component refuses it.
  kept.Write("listen: {tcp: '127.0.0.1:0'}\n");
  CHECK(absl::StrContains(kept.Reload(), "listen.tcp"));
  unlink(kept.file().c_str());
  CHECK(absl::StrContains(kept.Reload(), "cannot be read"));
  CHECK(kept.taken.empty());
  CHECK(kept.level() == "info");
  CHECK_FALSE(kept.successful());
}

TEST_CASE("what the daemon cannot take over is not what it runs by") {
  Kept kept;
  kept.refusal = absl::InvalidArgumentError("the token file is not one");
  kept.Write("g2: {capacity: 4GiB, policy: lru}\nlog: {level: debug}\n");
  CHECK(kept.Reload() ==
        "not taken over, so nothing was changed: g2.capacity: 2GiB -> 4GiB, log.level: info -> "
        "debug: the token file is not one");
  CHECK(kept.level() == "info");
  CHECK_FALSE(kept.successful());
}

TEST_CASE("who asks wakes the main thread by its signal and is answered once") {
  const sigset_t hangup = BlockHangup();
  Kept kept;
  kept.Ask();
  kept.Ask();
  CHECK(kept.answers.empty());
  int number = 0;
  REQUIRE(sigwait(&hangup, &number) == 0);
  CHECK(kept.Reload() == "ok");
  CHECK(kept.answers == std::vector<std::string>{"ok", "ok"});

  kept.Ask();
  REQUIRE(sigwait(&hangup, &number) == 0);
  kept.keeper().EndWaits();
  kept.Ask();
  REQUIRE(kept.answers.size() == 4);
  CHECK(kept.answers[2] == "the daemon stops");
}

TEST_CASE("who asks amid a reload, which may have read the files already, waits for the next one") {
  const sigset_t hangup = BlockHangup();
  Kept kept;
  kept.keeper().OnReload([&kept](const DaemonOptions&) {
    if (kept.answers.empty()) kept.Ask();
    return absl::OkStatus();
  });
  kept.Ask();
  int number = 0;
  REQUIRE(sigwait(&hangup, &number) == 0);
  CHECK(kept.Reload() == "ok");
  CHECK(kept.answers.size() == 1);
  REQUIRE(sigwait(&hangup, &number) == 0);
  CHECK(kept.Reload() == "ok");
  CHECK(kept.answers.size() == 2);
}

TEST_CASE("who asks before the main thread listens is answered when it does") {
  const sigset_t hangup = BlockHangup();
  Kept kept{Kept::Starting{}};
  kept.Ask();
  CHECK(kept.answers.empty());
  kept.Listen();
  int number = 0;
  REQUIRE(sigwait(&hangup, &number) == 0);
  CHECK(kept.Reload() == "ok");
  CHECK(kept.answers == std::vector<std::string>{"ok"});

  // A failed start does not forget it either.
  Kept failed{Kept::Starting{}};
  failed.Ask();
  REQUIRE(sigwait(&hangup, &number) == 0);
  failed.keeper().EndWaits();
  CHECK(failed.answers == std::vector<std::string>{"the daemon stops"});
}

TEST_CASE("a daemon that was started without a config has none to read again") {
  const Log log{LogFormat::kLogfmt, spdlog::level::off};
  ServerState state{"test", RealClock()};
  ConfigKeeper keeper({}, &state, &log);
  keeper.OnReload([](const DaemonOptions&) { return absl::OkStatus(); });
  CHECK(absl::IsFailedPrecondition(keeper.Reload().status()));
  bool answered = false;
  keeper.Ask([&](const auto& reloaded) { answered = !reloaded.ok(); });
  CHECK(answered);
  CHECK_FALSE(keeper.current().has_value());
}

}  // namespace kvkeep
