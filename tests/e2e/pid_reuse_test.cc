// A worker on the local path dies, and another one gets its process number: a session is identified
// by its connection, never by that number.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <signal.h>

#include <catch2/catch.hpp>

#include "tests/e2e/worker_process.h"
#include "tests/fakes/fork_as.h"

namespace kvkeep::e2e {
namespace {

constexpr milliseconds kBacklog{100}, kRevocation{30'000};

struct Holdings {
  size_t sessions = 0;
  uint64_t leases = 0, leased_bytes = 0, staging_bytes = 0;
  bool operator==(const Holdings&) const = default;
};

Holdings HoldingsNow(const Site& site) {
  const v1::StatusResponse status = site.Status();
  Holdings held{.sessions = static_cast<size_t>(status.sessions_size()),
            .leased_bytes = status.g2().leased_bytes(),
            .staging_bytes = status.counters().at("local_staging_bytes")};
  for (const auto& session : status.sessions()) held.leases += session.leases();
  return held;
}

std::string Describe(const Holdings& held) {
  return absl::StrCat(held.sessions, " sessions, ", held.leases, " leases, ", held.leased_bytes,
                      " bytes leased, ", held.staging_bytes, " bytes of staging memory");
}

// Returns the leased bytes of a worker's sessions, found by their name: "local:pid=N uid=..".
std::vector<uint64_t> LeasedBySessionsOf(const Site& site, int pid) {
  std::vector<uint64_t> leased;
  const v1::StatusResponse status = site.Status();
  for (const auto& session : status.sessions()) {
    if (absl::StrContains(session.peer(), absl::StrCat("pid=", pid, " "))) {
      leased.push_back(session.leased_bytes());
    }
  }
  return leased;
}

}  // namespace

TEST_CASE("a worker with the process number of a dead one has a session of its own") {
  if (const std::string forbidden = WhyNoForkAs(); !forbidden.empty()) {
    WARN("skipped: " << forbidden);
    return;
  }
  Site site(WithShortGrace());
  site.Start();
  Engine engine(site, {.name = "bystander"});
  const std::vector<TestChunk> old_ones = Chunks(1, 3, 500'000), new_ones = Chunks(11, 2, 100'000);
  REQUIRE(engine.PutAll(old_ones));
  REQUIRE(engine.PutAll(new_ones));
  // The client gives its staging memory back when no put uses it.
  REQUIRE(Eventually([&] { return HoldingsNow(site).staging_bytes == 0; }));
  const Holdings before = HoldingsNow(site);

  WorkerProcess first(site, {.warm = old_ones, .point = "hold"});
  REQUIRE(first.ReadLine() == "holding");
  const int number = first.pid();
  const Holdings with_first = HoldingsNow(site);
  REQUIRE(with_first.sessions == before.sessions + 1);
  REQUIRE(with_first.leased_bytes - before.leased_bytes >= 3 * 500'000);
  REQUIRE(with_first.staging_bytes > before.staging_bytes);
  REQUIRE(LeasedBySessionsOf(site, number).size() == 1);
  const uint64_t closed = site.Counter("sessions_closed");

  bool daemon_stopped = false;
  SECTION("while the daemon looks on") {}
  SECTION("while the daemon is stopped, so that it hears of both at once") {
    site.Signal(SIGSTOP);
    daemon_stopped = true;
  }
  SECTION("when the dead one was stopped first, for longer than the grace period") {
    first.Signal(SIGSTOP);
    REQUIRE(Eventually([&] { return site.Counter("sessions_revoked") == 1; }, kRevocation));
    // Its staging memory stays while the process may write to it.
    REQUIRE(HoldingsNow(site).staging_bytes == with_first.staging_bytes);
  }
  first.Signal(SIGKILL);
  REQUIRE(first.AwaitEnd() == SIGKILL);
  WorkerProcess second(site, {.warm = new_ones, .point = "hold", .pid = number});
  REQUIRE(second.pid() == number);
  if (daemon_stopped) {
    CHECK(second.ReadLine(kBacklog) == "");  // it waits at the listener, or will soon
    site.Signal(SIGCONT);
  }
  REQUIRE(second.ReadLine() == "holding");

  // Only the second one's leases are held.
  Holdings now;
  const auto only_its_own = [&] {
    now = HoldingsNow(site);
    return now.sessions == with_first.sessions && now.leases == with_first.leases &&
           now.staging_bytes == with_first.staging_bytes && now.leased_bytes < 500'000;
  };
  const bool alone = Eventually(only_its_own);
  INFO("before: " << Describe(before) << "; with the first: " << Describe(with_first)
                  << "; with the second: " << Describe(now));
  CHECK(alone);
  CHECK(now.leased_bytes - before.leased_bytes >= 2 * 100'000);
  CHECK(LeasedBySessionsOf(site, number) == std::vector{now.leased_bytes - before.leased_bytes});
  CHECK(site.Counter("sessions_closed") == closed + 1);
  // The first one's end is not the second one's, which still has everything after the grace period.
  CHECK(second.ReadLine(milliseconds(4'500)) == "");
  CHECK(HoldingsNow(site) == now);
  second.Signal(SIGKILL);
  REQUIRE(second.AwaitEnd() == SIGKILL);
  CHECK(Eventually([&] { return HoldingsNow(site) == before; }));
  CHECK(engine.Hits(old_ones) + engine.Hits(new_ones) == old_ones.size() + new_ones.size());
  CHECK(engine.wrong_bytes == 0);
}

}  // namespace kvkeep::e2e
