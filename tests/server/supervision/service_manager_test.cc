#include "server/supervision/service_manager.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/fakes/manager_socket.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scoped_variable.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Message = ManagerSocket::Message;

constexpr milliseconds kAtOnce{0};

}  // namespace

TEST_CASE("without a service manager nothing is told and nothing is asked for") {
  ManualClock clock;
  ServiceManager manager(&clock);
  CHECK_FALSE(manager.watchdog().has_value());
  manager.Ready("serving");
  manager.Alive();
}

TEST_CASE("the service manager hears what systemd's protocol has words for") {
  ManagerSocket socket;
  const ScopedVariable set("NOTIFY_SOCKET", socket.path());
  ManualClock clock;
  ServiceManager manager(&clock);
  manager.Status("one\ntwo");
  CHECK(socket.Next(kAtOnce) == Message{{"STATUS", "one two"}});
  manager.TakesLonger("recovering", seconds(60));
  CHECK(socket.Next(kAtOnce) ==
        Message{{"STATUS", "recovering"}, {"EXTEND_TIMEOUT_USEC", "60000000"}});
  manager.Ready("serving");
  CHECK(socket.Next(kAtOnce) == Message{{"READY", "1"}, {"STATUS", "serving"}});
  manager.Stopping("draining", seconds(2));
  CHECK(socket.Next(kAtOnce) ==
        Message{{"STOPPING", "1"}, {"STATUS", "draining"}, {"EXTEND_TIMEOUT_USEC", "2000000"}});
  manager.Alive();  // not asked for
  CHECK_FALSE(socket.Next(kAtOnce).has_value());
}

TEST_CASE(
    "a sign of life is sent four times in the period that was asked for, however often told") {
  ManagerSocket socket;
  const ScopedVariable notify("NOTIFY_SOCKET", socket.path());
  const ScopedVariable period("WATCHDOG_USEC", "4000000");
  ManualClock clock;
  ServiceManager manager(&clock);
  REQUIRE(manager.watchdog() == seconds(4));
  int told = 0;
  for (int tick = 0; tick < 40; ++tick) {
    manager.Alive();
    while (const std::optional<Message> message = socket.Next(kAtOnce)) {
      CHECK(*message == Message{{"WATCHDOG", "1"}});
      ++told;
    }
    clock.Advance(milliseconds(100));
  }
  CHECK(told == 4);
}

TEST_CASE("a watchdog that was set for another process is not this one's") {
  const ScopedVariable period("WATCHDOG_USEC", "4000000");
  const ScopedVariable other("WATCHDOG_PID", std::to_string(getppid()));
  ManualClock clock;
  CHECK_FALSE(ServiceManager(&clock).watchdog().has_value());
}

}  // namespace kvkeep
