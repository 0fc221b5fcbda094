#include "server/supervision/start_reporter.h"

#include <catch2/catch.hpp>

#include "tests/fakes/manager_socket.h"
#include "tests/fakes/scoped_variable.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using Message = ManagerSocket::Message;

Message Said(const std::string& status) {
  return {{"STATUS", status}, {"EXTEND_TIMEOUT_USEC", "60000000"}};
}

}  // namespace

TEST_CASE("a start that gets on is spoken for; one that does not is not") {
  ManagerSocket socket;
  const ScopedVariable set("NOTIFY_SOCKET", socket.path());
  const ServiceManager manager(RealClock());
  StartProgress progress;
  const StartReporter reporter(&manager, &progress, milliseconds(1));
  CHECK(socket.Next() == Said("starting"));
  CHECK_FALSE(socket.Next(milliseconds(50)).has_value());
  progress.step = "recovering";
  CHECK(socket.Next() == Said("recovering"));
  progress.recovered_records = 12;
  CHECK(socket.Next() == Said("recovering: 12 chunks found so far"));
  progress.recovered_records = 13;
  CHECK(socket.Next() == Said("recovering: 13 chunks found so far"));
  CHECK_FALSE(socket.Next(milliseconds(50)).has_value());
}

}  // namespace kvkeep
