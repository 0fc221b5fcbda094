// A daemon that does not answer costs a client its deadline and no more.
#include <signal.h>

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <stdexcept>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;
using client::PutStatus;
using std::chrono::steady_clock;

constexpr milliseconds kDeadline{400};
constexpr milliseconds kSlack{kSanitized ? 3'000 : 1'000};

milliseconds TimeOf(const std::function<void()>& call) {
  const auto begin = steady_clock::now();
  call();
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin);
}

// A client with that deadline, which a busy machine may need for its first calls.
std::unique_ptr<Engine> TryConnect(const Site& site) {
  try {
    return std::make_unique<Engine>(site, Engine::Options{.deadline = kDeadline});
  } catch (const std::runtime_error&) {
    return nullptr;
  }
}

TEST_CASE("calls to a stopped daemon end by their deadline, and after SIGCONT all is well") {
  Site site;
  site.Start();
  Engine patient(site);  // for what the deadline does not concern
  const std::vector<TestChunk> chunks = Chunks(1, 4, (3 << 20) + 1);
  REQUIRE(patient.PutAll(chunks));
  REQUIRE(site.AwaitClean());
  const std::vector<ChunkKey> keys = KeysOf(chunks);
  std::unique_ptr<Engine> hasty;
  REQUIRE(Eventually([&] { return (hasty = TryConnect(site)) != nullptr; }));
  Engine& engine = *hasty;

  site.Signal(SIGSTOP);
  CHECK(TimeOf([&] { CHECK(engine.Get(chunks[0]) == GetStatus::kUnfinished); }) <
        kDeadline + kSlack);
  CHECK(engine.error.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(TimeOf([&] {
          CHECK(engine.Put({100, 3 << 20}).status == PutStatus::kUnfinished);
        }) < kDeadline + kSlack);
  CHECK(TimeOf([&] {
          CHECK_FALSE(engine.client()
                          .Lookup(engine.ns(), keys, {.lease = client::LeaseMode::kLeadingRun})
                          .ok());
        }) < kDeadline + kSlack);
  CHECK(TimeOf([&] { CHECK_FALSE(engine.client().Delete(engine.ns(), {}).ok()); }) <
        kDeadline + kSlack);
  // A client that connects meanwhile returns, too.
  CHECK(TimeOf([&] {
          auto late = client::Client::Connect(
              {.endpoint = site.endpoint(), .client_name = "late", .default_deadline = kDeadline});
          REQUIRE(late.ok());
          CHECK_FALSE((*late)->connected());
        }) < 3 * (kDeadline + kSlack));

  site.Signal(SIGCONT);
  REQUIRE(Eventually([&] { return engine.Get(chunks[0]) == GetStatus::kHit; }));
  CHECK(patient.Hits(chunks) == chunks.size());
  CHECK(patient.Put({101, 3 << 20}).status == PutStatus::kStored);
  // The given-up put left nothing behind, nor did the lookup's lease, which no client took.
  CHECK(Eventually([&] {
    const v1::StatusResponse status = site.Status();
    return status.g2().reserved_bytes() == 0 && status.g2().leased_bytes() == 0;
  }));
  const GetStatus half_put = patient.Get({100, 3 << 20});
  CHECK((half_put == GetStatus::kMiss || half_put == GetStatus::kHit));
  CHECK(engine.wrong_bytes + patient.wrong_bytes == 0);
}

TEST_CASE("a missing chunk is a miss at once, and a daemon that is away an error at once") {
  Site site;
  site.Start();
  Engine engine(site);
  CHECK(TimeOf([&] { CHECK(engine.Get({1, 4096}) == GetStatus::kMiss); }) < kSlack);
  CHECK(engine.Find(Chunks(1, 1000, 1)).any == 0);
  site.Kill();
  REQUIRE(Eventually([&] { return !engine.client().connected(); }));
  CHECK(TimeOf([&] { CHECK(engine.Get({1, 4096}) == GetStatus::kUnfinished); }) < kSlack);
  CHECK(engine.error.code() == absl::StatusCode::kUnavailable);
  site.Start();
  REQUIRE(engine.client().WaitConnected(milliseconds(20'000)));
  CHECK(engine.Get({1, 4096}) == GetStatus::kMiss);
}

}  // namespace
}  // namespace kvkeep::e2e
