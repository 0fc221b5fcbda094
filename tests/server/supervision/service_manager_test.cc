#include "server/supervision/service_manager.h"

#include <absl/strings/str_cat.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>

#include "tests/fakes/manager_socket.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scoped_variable.h"
#include "tests/fakes/scratch_dir.h"
#include "tiers/base/unique_fd.h"

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

TEST_CASE("the service manager may listen in the abstract namespace") {
  const std::string name = absl::StrCat("kvkeep-notify-", getpid());
  const UniqueFd listening(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  name.copy(address.sun_path + 1, name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0);
  const ScopedVariable set("NOTIFY_SOCKET", absl::StrCat("@", name));
  ManualClock clock;
  ServiceManager(&clock).Status("here");
  char text[64];
  const ssize_t length = recv(listening.get(), text, sizeof(text), 0);
  REQUIRE(length > 0);
  CHECK(std::string(text, static_cast<size_t>(length)) == "STATUS=here");
}

TEST_CASE("a service manager that cannot be reached costs nothing but the message") {
  const ScratchDir dir;
  ManualClock clock;
  for (const std::string& nowhere :
       {dir / "nobody", std::string("relative"), std::string(""), "/" + std::string(200, 'x')}) {
    const ScopedVariable set("NOTIFY_SOCKET", nowhere);
    ServiceManager(&clock).Ready("serving");
  }
}

TEST_CASE("a watchdog's period that is no time asks for nothing") {
  for (const char* const period : {"", "0", "-5", "soon", "99999999999999999999"}) {
    const ScopedVariable set("WATCHDOG_USEC", period);
    ManualClock clock;
    CHECK_FALSE(ServiceManager(&clock).watchdog().has_value());
  }
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
