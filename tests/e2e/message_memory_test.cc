// Clients of the local path that never finish a message: what the daemon keeps of it, for how long,
// and what other clients feel of it.
#include <absl/strings/str_cat.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <algorithm>
#include <string>

#include "tests/e2e/bare_peer.h"
#include "tests/e2e/descriptors.h"
#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

using client::PathChoice;

constexpr size_t kPeers = kSanitized ? 100 : 1000;
constexpr milliseconds kMemoryPatience{60'000};  // with a busy machine
constexpr uint64_t kBudget = 64 << 20;
constexpr uint32_t kLongest = local::kMaxMessageBytes;
// A sanitizer keeps freed memory: AddressSanitizer's quarantine_size_mb is 256.
constexpr uint64_t kQuarantine = kSanitized ? 256 << 20 : 0;

// Two tenants with half of everything each; "noisy" disturbs the default one.
void WithTwoTenants(Site* site) {
  site->settings.local = true;
  site->settings.dumpable = true;
  site->settings.segment_bytes = "16MiB";
  site->settings.access = "  socket_mode: \"0666\"\n";
  site->settings.limits = "  sessions: 2100\n  local_memory: 64MiB\n  session_grace: 5s\n";
  site->settings.extra =
      absl::StrCat("tenants:\n  - {name: noisy, unix: ", site->path("noisy.sock"),
                   ", local: ", site->path("noisy-local.sock"), ", g2_share: 50%}\n");
}

// Returns the daemon's own memory: neither files nor the arena.
uint64_t PrivateBytes(const Site& site, uint64_t pid) {
  const std::string status = ReadFile(absl::StrCat("/proc/", pid, "/status"));
  const size_t at = status.find("RssAnon:");
  REQUIRE(at != std::string::npos);
  (void)site;
  return std::stoull(status.substr(at + 8)) << 10;
}

// Sends the first half of its longest message, as far as the daemon takes it.
void SayHalf(BarePeer& peer) {
  std::vector<std::byte> packet = peer.FirstPacket(kLongest);
  for (int i = 0; i < 64; ++i) {
    if (i == 1) packet.assign(local::kMaxPacketBytes, std::byte{1});
    for (int patience = 0; !peer.Send(packet) && patience < 100; ++patience) {
      pollfd room{.fd = peer.fd(), .events = POLLOUT, .revents = 0};
      if (poll(&room, 1, 100) != 1 || (room.revents & (POLLHUP | POLLERR)) != 0) return;
    }
  }
}

}  // namespace

TEST_CASE("a thousand clients with half a message each hold no more than the budget, for a while") {
  RaiseOurDescriptors();
  Site site;
  WithTwoTenants(&site);
  site.Start();
  const uint64_t pid = site.Status().pid();
  Engine other(site, {.path = PathChoice::kLocal});
  REQUIRE(other.PutAll(Chunks(1, 10, 64 << 10)));

  std::vector<std::unique_ptr<BarePeer>> peers;
  for (size_t i = 0; i < kPeers; ++i) {
    peers.push_back(std::make_unique<BarePeer>(site.path("noisy-local.sock"), SOCK_SEQPACKET));
    REQUIRE(peers.back()->Hello().ok());
  }
  const uint64_t before = PrivateBytes(site, pid);
  uint64_t most = 0, told = 0, noisy = 0;
  for (size_t i = 0; i < kPeers; ++i) {
    SayHalf(*peers[i]);
    most = std::max(most, PrivateBytes(site, pid));
    const v1::StatusResponse status = site.Status();
    told = std::max(told, status.counters().at("local_message_bytes"));
    noisy = std::max(noisy, status.tenants(1).local_message_bytes());
    CHECK(status.tenants(1).local_message_limit_bytes() == kBudget / 2);
    if (i % 100 != 0) continue;
    INFO("beside " << i << " of them: " << other.error);
    CHECK(other.PutAll(Chunks(1000 + 10 * i, 4, 64 << 10)));
  }
  WARN("messages of " << kPeers << " clients: " << ((most - std::min(most, before)) >> 20)
                      << " MiB of private memory, " << (told >> 20) << " MiB by their account");
  CHECK(most - std::min(most, before) < kBudget + kQuarantine);
  CHECK(told <= kBudget / 2);  // their tenant's part
  CHECK(noisy > 0);
  CHECK(noisy <= kBudget / 2);
  CHECK(Eventually([&] { return site.Counter("local_open_connections") <= 1; }, kMemoryPatience));
  CHECK(site.Counter("local_late_messages") > 0);
  CHECK(Eventually([&] { return site.Counter("local_message_bytes") == 0; }));
  CHECK(other.wrong_bytes == 0);
}

TEST_CASE("before Hello, and of a client that is refused, no half message is kept at all") {
  const bool refused = GENERATE(false, true);
  CAPTURE(refused);
  if (refused && !CanBeSomebodyElse()) return;
  RaiseOurDescriptors();
  Site site;
  WithTwoTenants(&site);
  if (refused) {
    absl::StrAppend(&site.settings.access, "  allowed_uids: [", geteuid(), "]\n");
  }
  site.Start();
  REQUIRE(chmod(site.path("").c_str(), 0755) == 0);
  const uint64_t pid = site.Status().pid();
  const uint64_t before = PrivateBytes(site, pid);
  uint64_t most = 0;
  std::vector<std::unique_ptr<BarePeer>> peers;
  for (size_t i = 0; i < kPeers; ++i) {
    peers.push_back(std::make_unique<BarePeer>(site.local_socket(), SOCK_SEQPACKET,
                                               refused ? kSomeUser : geteuid()));
    REQUIRE(peers.back()->connected());
    SayHalf(*peers.back());
    most = std::max(most, PrivateBytes(site, pid));
  }
  WARN(((most - std::min(most, before)) >> 10) << " KiB for " << kPeers << " of them");
  // A sanitizer has memory of its own for everything that is called for the first time.
  CHECK(most - std::min(most, before) < kBudget / (kSanitized ? 4 : 8));
  CHECK(Eventually([&] { return site.Counter("local_open_connections") == 0; }, kMemoryPatience));
  CHECK(site.Counter("local_broken_connections") > 0);
}

TEST_CASE("clients that are refused take no place of those that are let in") {
  if (!CanBeSomebodyElse()) return;
  Site site;
  site.settings.local = true;
  site.settings.access =
      absl::StrCat("  socket_mode: \"0666\"\n  allowed_uids: [", geteuid(), "]\n");
  site.settings.limits = "  sessions: 4\n";
  site.Start();
  REQUIRE(chmod(site.path("").c_str(), 0755) == 0);
  std::vector<std::unique_ptr<BarePeer>> silent, ours;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(
        std::make_unique<BarePeer>(site.local_socket(), SOCK_SEQPACKET, kSomeUser));
    REQUIRE(silent.back()->connected());
  }
  // Another user gets a place to be told the reason.
  BarePeer told(site.local_socket(), SOCK_SEQPACKET, kSomeUser + 1);
  CHECK(absl::IsPermissionDenied(told.Hello()));
  for (int i = 0; i < 4; ++i) {
    ours.push_back(std::make_unique<BarePeer>(site.local_socket(), SOCK_SEQPACKET));
    INFO("ours " << i);
    CHECK(ours.back()->Hello().ok());
  }
}

TEST_CASE("descriptors of half messages leave others theirs") {
  Site site;
  WithTwoTenants(&site);
  constexpr rlim_t kDescriptors = 4096;
  const bool kernel_takes_all = GENERATE(false, true);
  CAPTURE(kernel_takes_all);
  const OlderKernel kernel(kernel_takes_all);
  site.before_exec = [] {
    const rlimit few{.rlim_cur = kDescriptors, .rlim_max = kDescriptors};
    setrlimit(RLIMIT_NOFILE, &few);
  };
  site.Start();
  const uint64_t pid = site.Status().pid();
  Engine other(site, {.path = PathChoice::kLocal});
  REQUIRE(other.PutAll(Chunks(1, 10, 64 << 10), {.durable = true}));
  const size_t before = DescriptorsOf(pid, site.path("")).count;

  const std::vector<int> many(local::kMaxDescriptorsPerPacket, 0);
  std::vector<std::unique_ptr<BarePeer>> peers;
  for (int i = 0; i < 17; ++i) {
    REQUIRE(Eventually([&] {  // refused while the daemon still closes the one before
      peers.push_back(std::make_unique<BarePeer>(site.path("noisy-local.sock"), SOCK_SEQPACKET));
      return peers.back()->Hello().ok();
    }));
    CHECK(peers.back()->Send(peers.back()->FirstPacket(kLongest), many));
    INFO("beside " << i << ": " << other.error);
    CHECK(other.PutAll(Chunks(1000 + 100 * static_cast<uint64_t>(i), 10, 64 << 10),
                       {.durable = true}));
    Engine fresh(site, {.path = PathChoice::kLocal});
    CHECK(fresh.Find(Chunks(1, 10, 64 << 10)).any == 10);
  }
  CHECK(Eventually([&] { return site.Counter("local_open_connections") <= 1; }, kMemoryPatience));
  CHECK(site.Counter("local_passed_descriptors") == 17 * local::kMaxDescriptorsPerPacket);
  CHECK(Eventually([&] { return DescriptorsOf(pid, site.path("")).count <= before; }));
  peers.clear();
  CHECK(other.Hits(Chunks(1, 10, 64 << 10)) == 10);
}

}  // namespace kvkeep::e2e
