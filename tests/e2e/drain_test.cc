// A daemon's stop, and what it says about itself: health, reflection, metrics.
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <map>

#include "tests/e2e/engine.h"
#include "tests/e2e/raw_session.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;
using client::PutStatus;
using std::chrono::steady_clock;

constexpr char kService[] = "kvkeep.v1.KvCache";
constexpr char kServing[] = "\x08\x01";  // grpc.health.v1.HealthCheckResponse{status}
constexpr char kNotServing[] = "\x08\x02";

std::string Health(const std::string& endpoint, const std::string& service) {
  std::string request;  // HealthCheckRequest{service}
  if (!service.empty())
    request = absl::StrCat("\x0a", std::string(1, char(service.size())), service);
  const auto reply = RawCall(endpoint, "/grpc.health.v1.Health/Check", request);
  // Not found, before the daemon names the service.
  return reply.ok() ? *reply : reply.status().ToString();
}

// Series, labels included, to value.
std::map<std::string, double> Metrics(int port) {
  std::map<std::string, double> series;
  for (const auto line : absl::StrSplit(HttpGet(port, "/metrics"), '\n')) {
    if (!absl::StartsWith(line, "kvkeep_")) continue;
    const size_t space = line.rfind(' ');
    double value = -1;
    REQUIRE(absl::SimpleAtod(absl::StripTrailingAsciiWhitespace(line.substr(space + 1)), &value));
    series[std::string(line.substr(0, space))] = value;
  }
  return series;
}

TEST_CASE(
    "SIGTERM writes back what is dirty and ends with 0; after the restart all of it is a hit") {
  Site site({.g2 = "128MiB", .devices = {{.capacity = "256MiB"}}, .drain_timeout = "45s"});
  site.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 50, (1 << 20) + 9);
  Engine engine(site);
  REQUIRE(engine.PutAll(chunks));
  const Ending end = site.Stop();  // while most of them are dirty
  INFO(end.err);
  CHECK(end.exit_status == 0);
  CHECK(absl::StrContains(end.err, "msg=draining"));
  CHECK(absl::StrContains(end.err, "msg=stopped"));
  CHECK_FALSE(absl::StrContains(end.err, "level=error"));
  CHECK_FALSE(absl::StrContains(end.err, "not everything was written back"));
  site.Start();
  Engine after(site);
  CHECK(after.Find(chunks).g3 == chunks.size());  // at once: a drained device needs no second check
  CHECK(after.Hits(chunks) == chunks.size());
  CHECK(after.wrong_bytes == 0);
}

TEST_CASE("SIGINT stops in the same way, also with nothing to do") {
  Site site;
  site.Start();
  site.Signal(SIGINT);
  CHECK(site.AwaitEnd().exit_status == 0);
}

TEST_CASE("a second signal stops at once") {
  Site site;
  site.Start();
  RawSession holder(site.endpoint());
  holder.PutHalf({1, 8 << 20});  // delays the first signal's stop
  REQUIRE(Eventually([&] { return site.Status().g2().reserved_bytes() > 0; }));
  site.Signal(SIGTERM);
  REQUIRE(site.AwaitLog("msg=draining"));
  const auto begin = steady_clock::now();
  site.Signal(SIGTERM);
  CHECK(site.AwaitEnd().exit_status == 1);
  CHECK((kSanitized || steady_clock::now() - begin < milliseconds(8'000)));  // of 15 s
  site.Start();  // and nothing of it hinders the next start
  CHECK(Engine(site).Put({1, 1000}).status == PutStatus::kStored);
}

TEST_CASE(
    "while draining, puts and sessions are refused by name, gets are served, health says so") {
  Site site;
  site.Start();
  // The line comes after the listeners opened.
  CHECK(Eventually([&] { return Health(site.endpoint(), kService) == kServing; }));
  CHECK(Eventually([&] { return Health(site.endpoint(), "") == kServing; }));
  Engine engine(site);
  const std::vector<TestChunk> chunks = Chunks(1, 5, 100'000);
  REQUIRE(engine.PutAll(chunks));

  const auto drained = site.admin()->Drain(milliseconds(20'000));
  REQUIRE(drained.ok());
  CHECK(drained->dirty_chunks_left() == 0);
  CHECK(site.Status().state() == v1::SERVING_STATE_DRAINING);
  CHECK(site.Status().g2().dirty_bytes() == 0);
  CHECK(Health(site.endpoint(), kService) == kNotServing);

  const client::PutOutcome put = engine.Put({10, 1000});
  CHECK(put.status != PutStatus::kStored);
  INFO(put.message << engine.error.ToString());
  CHECK(absl::StrContains(put.message + engine.error.ToString(), "draining"));
  auto late = client::Client::Connect({.endpoint = site.endpoint(),
                                       .client_name = "late",
                                       .default_deadline = milliseconds(20'000)});
  REQUIRE(late.ok());
  CHECK_FALSE((*late)->connected());
  const auto refused = (*late)->GetServerInfo();
  CHECK(refused.status().code() == absl::StatusCode::kUnavailable);
  INFO(refused.status().ToString());
  CHECK(absl::StrContains(refused.status().ToString(), "draining"));
  CHECK(engine.Hits(chunks) == chunks.size());
  CHECK(site.Stop().exit_status == 0);
}

TEST_CASE("reflection lists the service") {
  Site site;
  site.Start();
  // ServerReflectionRequest{list_services: "*"}
  const auto reply =
      RawCall(site.endpoint(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
              "\x3a\x01*");
  REQUIRE(reply.ok());
  CHECK(absl::StrContains(*reply, kService));
  CHECK_FALSE(absl::StrContains(*reply, "kvkeep.v1.Admin"));  // which is on the admin socket only
}

TEST_CASE("every metric is there from the start, every counter at zero") {
  const int port = FreePort();
  Site site({.metrics = absl::StrCat("127.0.0.1:", port)});
  site.Start();
  const std::map<std::string, double> first = Metrics(port);
  CHECK(first.size() > 60);
  for (const auto& [name, value] : first) {
    const absl::string_view family = absl::string_view(name).substr(0, name.find('{'));
    if (!absl::EndsWith(family, "_total")) continue;
    // Counters of the daemon's own work while it starts: its lock, its devices.
    const bool own = absl::StrContains(name, "lock") || absl::StrContains(name, "_io_") ||
                     absl::StrContains(name, "index_commits") || absl::StrContains(name, "syncs") ||
                     absl::StrContains(name, "buffered_opens") ||
                     // Our connection, to see that it is up.
                     absl::StrContains(name, "connections_total") ||
                     absl::StrContains(name, "admin_calls_total{answer=\"allowed\"}");
    INFO(name);
    if (!own) CHECK(value == 0);
  }
  {
    Engine engine(site);
    REQUIRE(engine.PutAll(Chunks(1, 20, 50'000)));
    REQUIRE(engine.Hits(Chunks(1, 20, 50'000)) == 20);
    CHECK(engine.Get({99, 1}) == GetStatus::kMiss);
    REQUIRE(site.AwaitClean());
  }
  const std::map<std::string, double> later = Metrics(port);
  for (const auto& [name, value] : later) {
    // A namespace's series come with it; "other" has named them from the start.
    if (absl::StrContains(name, "namespace=")) continue;
    INFO(name << " came only with traffic");
    CHECK(first.contains(name));
  }
  CHECK(later.at("kvkeep_put_chunks_total{result=\"stored\"}") == 20);
  CHECK(later.at("kvkeep_read_chunks_total{result=\"hit\",tier=\"g2\"}") == 20);
  CHECK(later.at("kvkeep_read_chunks_total{result=\"miss\",tier=\"none\"}") == 1);
  CHECK(later.at("kvkeep_write_backs_total{result=\"done\"}") == 20);
}

}  // namespace
}  // namespace kvkeep::e2e
