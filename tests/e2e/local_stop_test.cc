// A worker that is stopped for longer than the grace period loses its leases; no other worker does.
#include <signal.h>

#include <catch2/catch.hpp>

#include "tests/e2e/worker_process.h"

namespace kvkeep::e2e {
TEST_CASE("a worker stopped beyond the grace period loses its leases, and finds that out") {
  Site site(WithShortGrace());
  site.Start();
  Engine engine(site, {.name = "bystander"});
  const std::vector<TestChunk> chunks = Chunks(1, 3, 500'000), mine = Chunks(10, 3, 500'000);
  REQUIRE(engine.PutAll(chunks));
  REQUIRE(engine.PutAll(mine));
  auto lease =
      engine.client().Lookup(engine.ns(), KeysOf(mine), {.lease = client::LeaseMode::kLeadingRun});
  REQUIRE(lease.ok());
  REQUIRE(lease->leased_keys == 3);
  // The bystander's client gives its own back when no put uses it.
  REQUIRE(Eventually([&] { return site.Counter("local_staging_bytes") == 0; }));
  const uint64_t staging = 0;
  const uint64_t leased = site.Status().g2().leased_bytes();

  WorkerProcess worker(site, {.warm = chunks, .point = "hold"});
  REQUIRE(worker.ReadLine() == "holding");
  const uint64_t with_worker = site.Counter("local_staging_bytes");
  CHECK(with_worker > staging);
  CHECK(site.Status().g2().leased_bytes() > leased);
  const auto stopped = std::chrono::steady_clock::now();
  worker.Signal(SIGSTOP);
  REQUIRE(Eventually([&] { return site.Counter("sessions_revoked") == 1; }, milliseconds(30'000)));
  CHECK(std::chrono::steady_clock::now() - stopped >= milliseconds(3'900));
  CHECK(site.Counter("leases_revoked") == 1);
  CHECK(site.Counter("local_revoked_sessions") == 1);
  CHECK(site.Status().g2().leased_bytes() == leased);
  // The stopped process may write there at any time, so the memory stays until that is over.
  CHECK(site.Counter("local_staging_bytes") == with_worker);
  CHECK(engine.Hits(mine) == 3);
  CHECK(engine.Get(mine[1], &lease->lease, 1) == client::GetStatus::kHit);
  CHECK(lease->lease.alive());

  SECTION("and goes on in a new session") {
    worker.Signal(SIGCONT);
    CHECK(worker.ReadLine() == "revoked");
    CHECK(worker.ReadLine() == "3 again, the old one not");
    CHECK(Eventually([&] { return site.Status().sessions_size() == 2; }));
    CHECK(site.Counter("sessions_revoked") == 1);
  }
  SECTION("and its memory comes back when it dies") {
    worker.Signal(SIGKILL);
    CHECK(worker.AwaitEnd() == SIGKILL);
    CHECK(Eventually([&] { return site.Counter("local_staging_bytes") == staging; }));
    // Staging comes back when the session ends, the connection a moment later.
    CHECK(Eventually([&] { return site.Counter("local_open_connections") == 1; }));
  }
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("a worker stopped for less than the grace period keeps its leases") {
  Site site(WithShortGrace());
  site.settings.limits = "  session_grace: 60s\n  staging_per_session: 2MiB\n";
  site.Start();
  Engine engine(site, {.name = "bystander"});
  const std::vector<TestChunk> chunks = Chunks(1, 3, 500'000);
  REQUIRE(engine.PutAll(chunks));
  WorkerProcess worker(site, {.warm = chunks, .point = "hold"});
  REQUIRE(worker.ReadLine() == "holding");
  worker.Signal(SIGSTOP);
  CHECK(worker.ReadLine(milliseconds(1'200)) == "");
  worker.Signal(SIGCONT);
  CHECK(worker.ReadLine(milliseconds(300)) == "");  // it would report that it lost them
  CHECK(site.Counter("sessions_revoked") == 0);
  CHECK(site.Status().g2().leased_bytes() > 0);
}

}  // namespace kvkeep::e2e
