// The daemon's messages to its service manager, and their order.
#include <signal.h>

#include <catch2/catch.hpp>

#include "tests/e2e/engine.h"
#include "tests/fakes/manager_socket.h"
#include "tests/fakes/scoped_variable.h"

namespace kvkeep::e2e {
namespace {

using Message = ManagerSocket::Message;

// Returns the next message that has the field; skips others.
std::optional<Message> NextWith(ManagerSocket& socket, const std::string& field,
                                milliseconds patience = milliseconds(20'000)) {
  while (std::optional<Message> message = socket.Next(patience)) {
    if (message->contains(field)) return message;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("the service manager is told of the start, of life, and of the stop") {
  ManagerSocket socket;
  const ScopedVariable notify("NOTIFY_SOCKET", socket.path());
  const ScopedVariable period("WATCHDOG_USEC", "2000000");
  Site site;
  site.Start();
  {
    Engine engine(site);
    REQUIRE(engine.PutAll(Chunks(1, 40, 64 << 10)));
    REQUIRE(site.AwaitClean());
  }
  std::optional<Message> message = socket.Next();
  REQUIRE(message.has_value());
  CHECK(message->contains("EXTEND_TIMEOUT_USEC"));
  CHECK_FALSE(message->contains("READY"));
  REQUIRE(NextWith(socket, "READY").has_value());
  for (int i = 0; i < 3; ++i) REQUIRE(NextWith(socket, "WATCHDOG").has_value());

  // A daemon that does not run sends nothing.
  site.Signal(SIGSTOP);
  while (socket.Next(milliseconds(600)).has_value()) {
  }
  CHECK_FALSE(socket.Next(milliseconds(1'000)).has_value());
  site.Signal(SIGCONT);
  REQUIRE(NextWith(socket, "WATCHDOG").has_value());

  REQUIRE(site.Stop().exit_status == 0);
  message = NextWith(socket, "STOPPING");
  REQUIRE(message.has_value());
  CHECK(std::stoull(message->at("EXTEND_TIMEOUT_USEC")) >= 15'000'000);  // the drain timeout

  site.Start();
  message = NextWith(socket, "READY");
  REQUIRE(message.has_value());
  CHECK(message->at("STATUS") == "serving; recovered 0 chunks of G2");
}

TEST_CASE("a start that fails is never ready") {
  ManagerSocket socket;
  const ScopedVariable notify("NOTIFY_SOCKET", socket.path());
  Site site({.devices = {{.required = true}}});  // so that the start waits for it
  WriteFile(site.path("nvme0"), "not a directory");
  CHECK(site.StartAndAwaitEnd().exit_status == 78);
  while (const std::optional<Message> message = socket.Next(milliseconds(0))) {
    CHECK_FALSE(message->contains("READY"));
  }
}

}  // namespace kvkeep::e2e
