// The operator's verbs of the tool against a real daemon: evict, verify, namespaces, a lookup in
// another tenant's namespace, and top on a terminal.
#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/e2e/device_bytes.h"
#include "tests/e2e/engine.h"
#include "tests/e2e/shell.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::e2e {
namespace {

constexpr size_t kVerbChunkBytes = (1 << 20) - 4096;  // a MiB with its header

std::string Tool(const Site& site, const std::string& arguments) {
  return absl::StrCat("'" KVKEEP_PATH "' --admin unix://", site.admin_socket(), " ", arguments);
}

// Runs a verb with --json, checks its exit status, and returns its output.
nlohmann::json Json(const Site& site, const std::string& arguments, int status = 0) {
  const Outcome outcome = RunShell(Tool(site, "--json " + arguments));
  INFO(outcome.output);
  REQUIRE(outcome.status == status);
  return nlohmann::json::parse(outcome.output);
}

// Returns a program's output on a terminal of that size until it ends.
std::string OnTerminal(const std::string& command, uint16_t columns, uint16_t rows) {
  const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int master = -1;
  const pid_t child = forkpty(&master, nullptr, nullptr, &size);
  REQUIRE(child >= 0);
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  const UniqueFd terminal(master);
  std::string out;
  std::array<char, 4096> buffer;
  ssize_t got = 0;
  while ((got = read(master, buffer.data(), buffer.size())) > 0) {
    out.append(buffer.data(), static_cast<size_t>(got));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  INFO(out);
  REQUIRE(status == 0);
  return out;
}

// Returns the lines of the last screen, without colours and clearing.
std::vector<std::string> LastScreen(const std::string& out) {
  std::string screen = out.substr(out.rfind("\033[H") + 3), plain;
  for (size_t i = 0; i < screen.size(); ++i) {
    if (screen[i] == '\033') {
      while (i < screen.size() && !absl::ascii_isalpha(screen[i])) ++i;
    } else if (screen[i] != '\r') {
      plain.push_back(screen[i]);
    }
  }
  return absl::StrSplit(plain, '\n');
}

}  // namespace

TEST_CASE("namespaces tells whose chunks there are, and evict makes them go from a tier") {
  Site site;
  site.Start();
  Engine engine(site);
  REQUIRE(engine.PutAll(Chunks(1, 10, kVerbChunkBytes)));
  REQUIRE(site.AwaitClean());
  auto list = Json(site, "namespaces")["namespaces"];
  REQUIRE(list.size() == 1);
  CHECK(list[0]["model"] == "e2e");
  CHECK(list[0]["tenant"] == "default");
  CHECK(list[0]["sessions"] == 1);
  CHECK(list[0]["chunks"] == 10);
  CHECK(list[0]["g2_bytes"] == 10 << 20);
  CHECK(list[0]["g3_bytes"] == 10 << 20);

  const auto gone = Json(site, "evict 3500KiB --yes");
  CHECK(gone["chunks"] == 4);
  CHECK(gone["bytes"] == 4 << 20);
  CHECK(engine.Find(Chunks(1, 10, kVerbChunkBytes)).g2 == 6);
  CHECK(engine.Find(Chunks(1, 10, kVerbChunkBytes)).g3 == 10);
  CHECK(Json(site, "evict 2MiB --tier g3 --yes")["chunks"] == 2);
  CHECK(engine.Find(Chunks(1, 10, kVerbChunkBytes)).g3 == 8);
  CHECK(RunShell(Tool(site, "evict 1MiB --tenant nobody --yes")).status == 3);
  CHECK(RunShell(Tool(site, "evict 1MiB < /dev/null")).status == 2);  // there is no peer to ask
  list = Json(site, "namespaces")["namespaces"];
  CHECK(list[0]["g2_bytes"] == 6 << 20);
  CHECK(list[0]["g3_bytes"] == 8 << 20);
}

TEST_CASE("verify finds the byte that is damaged on the device, and the chunk is a miss") {
  Site site;
  site.Start();
  Engine engine(site);
  const auto chunks = Chunks(1, 8, kVerbChunkBytes);
  REQUIRE(engine.PutAll(chunks));
  REQUIRE(site.AwaitClean());
  CHECK(Json(site, "evict 8MiB --yes")["chunks"] == 8);
  const UniqueFd data(open(site.path("nvme0/data.000").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(data.valid());
  Overwrite(data.get(), FindPayload(data.get(), chunks[5]) + 700'000, 1);

  const auto found = Json(site, "verify --bytes-per-second 1GiB", 1);
  CHECK(found["done"] == true);
  CHECK(found["checked_chunks"] == 8);
  CHECK(found["damaged_chunks"] == 1);
  CHECK(engine.Get(chunks[5]) == client::GetStatus::kMiss);
  CHECK(engine.Find(chunks).g3 == 7);
  const auto again = Json(site, "verify --bytes-per-second 1GiB");
  CHECK(again["checked_chunks"] == 7);
  CHECK(again["damaged_chunks"] == 0);
  CHECK(engine.Hits(chunks) == 7);
  CHECK(engine.wrong_bytes == 0);
}

TEST_CASE("lookup and get name another tenant's namespace, where that one lets them read") {
  Site site({.segment_bytes = "16MiB"});
  const auto tenant = [&](const std::string& name, const std::string& more) {
    return absl::StrCat("  - {name: ", name, ", unix: ", site.path(name + ".sock"),
                        ", g2_share: 25%", more, "}\n");
  };
  site.settings.extra =
      absl::StrCat("tenants:\n", tenant("owner", ", readers: [reader]"), tenant("reader", ""));
  site.Start();
  const auto as = [&](const std::string& who, const std::string& arguments) {
    return RunShell(
        absl::StrCat("'" KVKEEP_PATH "' --endpoint unix://", site.path(who + ".sock"), " ",
                     arguments));
  };
  WriteFile(site.path("in"), "some bytes");
  REQUIRE(as("owner", "put key " + site.path("in")).status == 0);
  CHECK(as("reader", "lookup key").status == 3);
  CHECK(as("reader", "lookup key --tenant owner").status == 0);
  CHECK(as("reader", "get key --tenant owner -o " + site.path("out")).status == 0);
  CHECK(ReadFile(site.path("out")) == "some bytes");
  const Outcome refused = as("owner", "lookup key --tenant reader");
  CHECK(refused.status == 1);
  CHECK(absl::StrContains(refused.output, "there is no 'reader' that lets"));
}

TEST_CASE("top fits on the terminal that it is on, and has colours only where they are wanted") {
  Site site({.devices = {{.name = "nvme0"}, {.name = "nvme1"}}});
  site.Start();
  Engine engine(site, {.name = "engine-with-a-name-that-is-as-long-as-one-may-well-think-of"});
  REQUIRE(engine.PutAll(Chunks(1, 10, kVerbChunkBytes)));
  const std::string top = Tool(site, "top --interval 100ms --count 2");
  for (const auto& [columns, rows] : {std::pair<uint16_t, uint16_t>{80, 24}, {140, 40}, {60, 10}}) {
    INFO(columns << " by " << rows);
    const std::string out = OnTerminal("TERM=xterm " + top, columns, rows);
    CHECK(absl::StrContains(out, "\033[32m"));
    const std::vector<std::string> lines = LastScreen(out);
    CHECK(lines.size() <= rows);
    for (const std::string& line : lines) CHECK(line.size() <= columns);
    CHECK(absl::StartsWith(lines[0], "kvkeepd "));
    CHECK(absl::StartsWith(lines[2], "hit ratio "));
    CHECK(absl::StartsWith(lines[5], "G2 [##"));
    CHECK(absl::StartsWith(lines[columns < 132 ? 7 : 6], "G3 ["));
    if (rows < 24) continue;
    CHECK(absl::StrContains(lines[columns < 132 ? 9 : 7], "ok         read "));
    CHECK(absl::StrContains(lines[columns < 132 ? 12 : 10], "1 session"));
    CHECK(absl::StartsWith(lines[columns < 132 ? 14 : 12], "engine-with-a-name"));
  }
  const std::string plain = OnTerminal("TERM=xterm NO_COLOR=1 " + top, 80, 24);
  CHECK_FALSE(absl::StrContains(plain, "\033[32m"));
  CHECK_FALSE(absl::StrContains(plain, "\033[1m"));
  CHECK(absl::StrContains(plain, "\033[H"));
}

TEST_CASE("three gets of a chunk are three hits, by whatever paths, in status, top and metrics") {
  const TestChunk chunk{.number = 7, .bytes = 100'000};
  const auto by_grpc = [&](Engine& engine) { return engine.Get(chunk) == client::GetStatus::kHit; };
  const auto by_copy = by_grpc;  // an engine of the local path
  // Leased, then read twice in place: one hit, as the daemon is asked once.
  const auto in_place = [&](Engine& engine) {
    const auto found = engine.client().Lookup(engine.ns(), std::vector{Key(7), Key(8)},
                                              {.lease = client::LeaseMode::kLeadingRun});
    return found.ok() && found->leased_keys == 1 &&
           engine.Get(chunk, &found->lease) == client::GetStatus::kHit &&
           engine.Get(chunk, &found->lease) == client::GetStatus::kHit;
  };
  for (const std::string paths : {"lll", "ggg", "lpg", "ppp", "pgl"}) {
    INFO(paths);
    const int port = FreePort();
    Site site({.metrics = absl::StrCat("127.0.0.1:", port), .local = true});
    site.Start();
    Engine local(site), grpc(site, {.path = client::PathChoice::kGrpc});
    REQUIRE(local.client().path().path == client::Path::kLocal);
    REQUIRE(local.PutAll({chunk}));
    REQUIRE(site.AwaitClean());
    CHECK(local.Find({chunk}).any == 1);  // hands out nothing
    for (const char path : paths) {
      CHECK((path == 'l' ? by_copy(local) : path == 'g' ? by_grpc(grpc) : in_place(local)));
    }
    CHECK(local.Get({.number = 9, .bytes = 1}) == client::GetStatus::kMiss);
    CHECK(grpc.Get({.number = 9, .bytes = 1}) == client::GetStatus::kMiss);
    CHECK(Json(site, "status")["g2"]["hits"] == 3);
    CHECK(Json(site, "status")["g3"]["hits"] == 0);
    CHECK(Json(site, "top --interval 1ms --count 1")["g2_hits"] == 3);
    const std::string top = Tool(site, "top --interval 1ms --count 1");
    CHECK(absl::StrContains(OnTerminal("TERM=xterm " + top, 80, 24), " dirty, 3 hits"));
    const std::string metrics = HttpGet(port, "/metrics");
    CHECK(absl::StrContains(metrics, "read_chunks_total{result=\"hit\",tier=\"g2\"} 3\n"));
    // Each asks for 9; of what is leased with its place, 8 is not there.
    const auto leases = std::count(paths.begin(), paths.end(), 'p');
    CHECK(site.Counter("read_misses") == 2 + static_cast<uint64_t>(leases));

    // From G3, likewise. Leases are given back in the background.
    REQUIRE(Eventually([&] { return site.Status().g2().leased_bytes() == 0; }));
    REQUIRE(Json(site, "evict 1MiB --yes")["chunks"] == 1);
    CHECK((paths[0] == 'l'   ? by_copy(local)
           : paths[0] == 'g' ? by_grpc(grpc)
                             : in_place(local)));
    CHECK(Json(site, "status")["g2"]["hits"] == 3);
    CHECK(Json(site, "status")["g3"]["hits"] == 1);
  }
}

}  // namespace kvkeep::e2e
