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
  progress.step = "taking memory for G2";
  CHECK(socket.Next() == Said("taking memory for G2"));
  progress.memory_bytes += 3 << 20;
  CHECK(socket.Next() == Said("taking memory for G2: 3 MiB taken"));
  progress.memory_bytes += 3 << 20;
  CHECK(socket.Next() == Said("taking memory for G2: 6 MiB taken"));
  progress.memory_bytes = 0;
  progress.step = "recovering";
  CHECK(socket.Next() == Said("recovering"));
  for (const char* images : {"100", "200"}) {
    progress.recovered_images += 100;
    CHECK(socket.Next() == Said("recovering: " + std::string(images) + " chunks found in G2"));
  }
  progress.recovered_records = 12;
  CHECK(socket.Next() == Said("recovering: 200 chunks found in G2, 12 on devices"));
  progress.recovered_records = 13;
  CHECK(socket.Next() == Said("recovering: 200 chunks found in G2, 13 on devices"));
  CHECK_FALSE(socket.Next(milliseconds(50)).has_value());
}

}  // namespace kvkeep
