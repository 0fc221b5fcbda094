// A machine that loses its power sends nothing any more, and closes nothing: each side notices.
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <thread>

#include "tests/e2e/engine.h"
#include "tests/e2e/raw_session.h"
#include "tests/e2e/relay.h"

namespace kvkeep::e2e {
namespace {

using std::chrono::duration_cast;
using std::chrono::steady_clock;

constexpr milliseconds kPeerTimeout{9'000};  // a busy peer has to answer within a third of it
// Slack for a busy machine. A daemon that waits for gRPC's own timeouts takes 20 s and more.
constexpr milliseconds kNoticeSlack{10'000};
// gRPC by default stops asking a peer after two pings without data, so this is long enough for
// four.
constexpr milliseconds kIdle{3 * kPeerTimeout};

struct RelayedScene {
  RelayedScene() : port(FreePort()), site(SettingsFor(port)) {
    site.Start();
    relay = std::make_unique<Relay>(port);
  }
  static Settings SettingsFor(int port) {
    Settings settings;
    settings.tcp = absl::StrCat("127.0.0.1:", port);
    settings.limits = absl::StrCat("  peer_timeout: ", kPeerTimeout.count(), "ms\n");
    return settings;
  }
  const int port;
  Site site;
  std::unique_ptr<Relay> relay;
};

}  // namespace

TEST_CASE("what a client held whose machine is gone comes back within limits.peer_timeout") {
  RelayedScene scene;
  Engine engine(scene.site, {.name = "bystander"});
  const TestChunk chunk{1, 1 << 20};
  REQUIRE(engine.PutAll({chunk}));
  RawSession client(scene.relay->address(), "far away");
  client.Lease(chunk);
  client.PutHalf({2, 8 << 20});
  const auto held = [&] {
    const v1::StatusResponse status = scene.site.Status();
    return status.g2().leased_bytes() > 0 && status.g2().reserved_bytes() > 0 &&
           status.sessions_size() == 2;
  };
  REQUIRE(Eventually(held));
  std::this_thread::sleep_for(kIdle);  // it is connected, and has nothing to say
  REQUIRE(held());

  scene.relay->Vanish();
  const auto gone = steady_clock::now();
  REQUIRE(Eventually(
      [&] {
        const v1::StatusResponse status = scene.site.Status();
        return status.g2().leased_bytes() == 0 && status.g2().reserved_bytes() == 0 &&
               status.sessions_size() == 1;
      },
      milliseconds(60'000)));
  const auto took = duration_cast<milliseconds>(steady_clock::now() - gone);
  WARN("given back after " << took.count() << " ms, limits.peer_timeout is "
                           << kPeerTimeout.count());
  CHECK(took < kPeerTimeout + kNoticeSlack);
  CHECK(engine.Get(chunk) == client::GetStatus::kHit);
}

TEST_CASE("a client notices a daemon whose machine is gone, though it has nothing to ask") {
  RelayedScene scene;
  Engine engine(scene.relay->address(), {.name = "idle", .peer_timeout = kPeerTimeout});
  REQUIRE(engine.PutAll({{1, 1 << 20}}));
  std::this_thread::sleep_for(kIdle);  // it has nothing to ask
  REQUIRE(engine.client().connected());
  CHECK(scene.site.Counter("sessions_opened") == 1);  // the same connection all the time

  scene.relay->Vanish();
  const auto gone = steady_clock::now();
  REQUIRE(Eventually([&] { return !engine.client().connected(); }, milliseconds(60'000)));
  const auto took = duration_cast<milliseconds>(steady_clock::now() - gone);
  WARN("noticed after " << took.count() << " ms, peer_timeout is " << kPeerTimeout.count());
  CHECK(took < kPeerTimeout + kNoticeSlack);
  CHECK(engine.Get({1, 1 << 20}) == client::GetStatus::kUnfinished);
  CHECK(engine.error.code() == absl::StatusCode::kUnavailable);
}

}  // namespace kvkeep::e2e
