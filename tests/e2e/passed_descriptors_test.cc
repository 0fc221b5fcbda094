// Descriptors whose last close waits, passed to the daemon with any message, by peers that are
// admitted, refused, or one too many: what other clients feel of it.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "server/sockets/descriptor_closer.h"
#include "tests/e2e/bare_peer.h"
#include "tests/e2e/descriptors.h"
#include "tests/e2e/engine.h"
#include "tests/e2e/silent_fuse.h"
#include "tests/fakes/free_port.h"
#include "tests/fakes/lingering_sockets.h"

namespace kvkeep::e2e {
namespace {

using client::PathChoice;
using local::Kind;
using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr int kPasses = kSanitized ? 100 : 1000;
constexpr int kLookups = kSanitized ? 300 : 1500;  // before and after the passes
constexpr milliseconds kPromised{10};  // p99 of a lookup
constexpr milliseconds kAnswered{2'000};  // any answer, on a machine that is busy otherwise too

enum class Peers { kAdmitted, kRefused, kTooMany };

Settings PassedSettings(Peers peers, int metrics_port) {
  Settings settings;
  settings.local = true;
  settings.dumpable = true;  // its descriptors are counted
  settings.metrics = absl::StrCat("127.0.0.1:", metrics_port);
  settings.metrics_socket = "metrics.sock";
  settings.access = "  socket_mode: \"0666\"\n";
  if (peers == Peers::kRefused) {
    absl::StrAppend(&settings.access, "  allowed_uids: [", geteuid(), "]\n");
  }
  if (peers == Peers::kTooMany) absl::StrAppend(&settings.access, "  connections: 3\n");
  return settings;
}

// Returns whether the daemon says that all its threads make progress. Makes no assertion, so any
// thread may call it.
bool Healthy(int port) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  constexpr absl::string_view kRequest = "GET /healthz HTTP/1.0\r\n\r\n";
  std::array<char, 64> reply{};
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
         write(fd.get(), kRequest.data(), kRequest.size()) > 0 &&
         read(fd.get(), reply.data(), reply.size() - 1) > 0 &&
         absl::StrContains(reply.data(), "200 OK");
}

// A client at work while others act, on a thread of its own.
class OtherClient {
 public:
  // `joins`: it also reconnects now and then.
  OtherClient(const Site& site, int metrics_port, bool joins)
      : site_(site),
        metrics_port_(metrics_port),
        joins_(joins),
        local_(site, {.path = PathChoice::kLocal}),
        grpc_(site, {.path = PathChoice::kGrpc}) {
    REQUIRE(local_.PutAll(chunks_));
    thread_ = std::thread([this] { Run(); });
  }
  ~OtherClient() { End(); }

  void End() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Call it after End. Returns the times of all lookups so far, sorted, and forgets them.
  std::vector<microseconds> Times() {
    std::sort(took_.begin(), took_.end());
    return std::exchange(took_, {});
  }
  std::atomic<bool> found_all{true}, healthy{true};
  std::atomic<int> lookups{0};

 private:
  void Run() {
    while (!stop_) {
      const auto begin = steady_clock::now();
      Engine& engine = lookups % 4 == 3 ? grpc_ : local_;
      if (engine.Find(chunks_).g2 != chunks_.size()) found_all = false;
      took_.push_back(std::chrono::duration_cast<microseconds>(steady_clock::now() - begin));
      if (++lookups % 500 != 0) continue;
      const auto joined = steady_clock::now();
      if (!Healthy(metrics_port_)) healthy = false;
      if (joins_) {
        Engine fresh(site_, {.path = lookups % 1000 == 0 ? PathChoice::kLocal : PathChoice::kGrpc});
        if (fresh.Find(chunks_).g2 != chunks_.size()) found_all = false;
      }
      if (steady_clock::now() - joined > kAnswered) healthy = false;
    }
  }

  const Site& site_;
  const int metrics_port_;
  const bool joins_;
  Engine local_, grpc_;
  const std::vector<TestChunk> chunks_ = Chunks(1, 8, 64 << 10);
  std::vector<microseconds> took_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Sends it and closes ours, so that the daemon's close is the last. Ours would wait as well.
template <typename... Message>
bool Pass(BarePeer& peer, UniqueFd passed, const Message&... message) {
  const std::array<int, 1> fds{passed.get()};
  const bool sent = peer.Send(message..., fds);
  DescriptorCloser::OfProcess().Close(std::move(passed), 0);
  return sent;
}

// Passes a descriptor as one peer, in another way each time.
void PassByLocal(const Site& site, int round, uid_t user, UniqueFd passed) {
  BarePeer peer(site.local_socket(), SOCK_SEQPACKET, user);
  if (!peer.connected()) return;
  const bool before_hello = round % 5 < 2 || !peer.Hello().ok();
  std::vector<std::byte> packet(local::kMaxPacketBytes);
  switch (round % 5) {
    case 0:  // no message at all
      packet.resize(3);
      break;
    case 1:
      return static_cast<void>(Pass(peer, std::move(passed), Kind::kHello, local::Hello{}));
    case 2:  // half a message
      packet = peer.FirstPacket(1 << 20);
      break;
    case 3:
      packet = peer.FirstPacket(local::kMaxPacketBytes);
      break;
    default:  // where one is expected
      if (Pass(peer, std::move(passed), Kind::kRegisterMemory,
               local::RegisterMemory{.bytes = 4096}) &&
          !before_hello) {
        peer.Receive().IgnoreError();
      }
      return;
  }
  Pass(peer, std::move(passed), packet);
}

void PassByGrpc(const Site& site, int round, uid_t user, UniqueFd passed) {
  BarePeer peer(site.socket(), SOCK_STREAM, user);
  if (!peer.connected()) return;
  constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const auto bytes = std::as_bytes(std::span(kPreface.data(), kPreface.size()));
  if (round % 2 == 0) peer.Send(bytes);
  Pass(peer, std::move(passed), bytes.first(round % 2 == 0 ? 1 : 10));
}

uid_t UserOf(Peers peers) { return peers == Peers::kTooMany ? geteuid() : kSomeUser; }

// As Pass, for a socket that lingers, to a daemon that may read it before a thread of ours closes
// ours: a process that ends waits for no lingering socket.
void PassAtOnce(BarePeer& peer, UniqueFd passed, std::span<const std::byte> bytes) {
  std::array<int, 2> go;
  REQUIRE(pipe2(go.data(), O_CLOEXEC) == 0);
  const UniqueFd wait(go[0]);
  UniqueFd begin(go[1]);
  const pid_t child = fork();
  if (child == 0) {
    begin.Reset();
    char none;
    const std::array<int, 1> fds{passed.get()};
    const bool sent = read(wait.get(), &none, 1) == 0 && peer.Send(bytes, fds);
    _exit(sent ? 0 : 1);
  }
  REQUIRE(child > 0);
  passed.Reset();  // the child has it
  begin.Reset();
  waitpid(child, nullptr, 0);
}

void PassByMetrics(const Site& site, int round, UniqueFd passed) {
  BarePeer peer(site.path("metrics.sock"), SOCK_STREAM);
  if (!peer.connected()) return;
  constexpr absl::string_view kRequest = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  const auto bytes = std::as_bytes(std::span(kRequest.data(), kRequest.size()));
  if (round % 3 == 1) peer.Send(bytes);  // then what is passed may be read or not
  PassAtOnce(peer, std::move(passed), round % 3 == 0 ? bytes : bytes.first(1));
}

// A daemon whose places are taken, so that further peers are one too many, and its victim.
struct Rig {
  Rig(Peers peers, bool by_grpc) : site(PassedSettings(peers, port)) {
    RaiseOurDescriptors();
    site.Start();
    REQUIRE(chmod(site.path("").c_str(), 0755) == 0);
    victim.emplace(site, port, peers != Peers::kTooMany);
    for (int i = 0; peers == Peers::kTooMany && i < 3; ++i) {  // until none is left
      places.push_back(by_grpc ? std::make_unique<BarePeer>(site.socket(), SOCK_STREAM)
                               : std::make_unique<BarePeer>(site.local_socket(), SOCK_SEQPACKET));
      if (!by_grpc) places.back()->Hello().IgnoreError();
    }
  }

  const int port = FreePort();
  Site site;
  std::optional<OtherClient> victim;
  std::vector<std::unique_ptr<BarePeer>> places;
};

// A daemon at work; then `pass` this many times. Measures what is felt of it meanwhile and left
// after it, and after `end`, until which the passed descriptor may wait.
void PassStorm(Site& site, OtherClient& victim, const std::function<void(int)>& pass,
           const std::function<void()>& end = [] {}) {
  const uint64_t pid = site.Status().pid();
  const bool began = Eventually([&] { return victim.lookups > kLookups; });
  // Descriptors that are opened once are open now.
  const bool settled = Eventually([&] { return site.Counter("local_closing_descriptors") == 0; });
  const size_t before = DescriptorsOf(pid, site.path("")).count;
  for (int i = 0; i < kPasses; ++i) pass(i);
  const int passed = victim.lookups;
  const bool went_on = Eventually([&] { return victim.lookups > passed + kLookups; });
  end();
  victim.End();  // no assertion until here, as another thread may make one
  Descriptors after;
  const bool closed = Eventually([&] {
    after = DescriptorsOf(pid, site.path(""));
    return after.count <= before;
  });
  CHECK(began);
  CHECK(went_on);
  CHECK(settled);
  INFO(after.names);
  CHECK(closed);
  const std::vector<microseconds> times = victim.Times();
  const microseconds p99 = times[times.size() * 99 / 100];
  WARN(times.size() << " lookups meanwhile: p99 " << p99.count() << " us, max "
                    << times.back().count() << " us; descriptors " << before << ", then "
                    << after.count);
  CHECK((kSanitized || p99 < kPromised));
  CHECK(times.back() < kAnswered);
  CHECK(victim.found_all);
  CHECK(victim.healthy);
}

}  // namespace

TEST_CASE("sockets that linger, passed to the local path, are felt by nobody else", "[times]") {
  const Peers peers = GENERATE(Peers::kAdmitted, Peers::kRefused, Peers::kTooMany);
  const bool kernel_takes_all = GENERATE(false, true);
  CAPTURE(static_cast<int>(peers), kernel_takes_all);
  const OlderKernel kernel(kernel_takes_all);
  if (peers != Peers::kTooMany && !CanBeSomebodyElse()) return;
  LingeringSockets lingering;
  Rig rig(peers, false);
  PassStorm(rig.site, *rig.victim, [&](int i) {
    PassByLocal(rig.site, i, UserOf(peers), lingering.Make());
  });
  if (kernel_takes_all) CHECK(rig.site.Counter("local_passed_descriptors") >= kPasses / 5);
}

TEST_CASE("sockets that linger, passed to gRPC's sockets, are felt by nobody else", "[times]") {
  const Peers peers = GENERATE(Peers::kAdmitted, Peers::kRefused, Peers::kTooMany);
  const bool kernel_takes_all = GENERATE(false, true);
  CAPTURE(static_cast<int>(peers), kernel_takes_all);
  const OlderKernel kernel(kernel_takes_all);
  if (peers != Peers::kTooMany && !CanBeSomebodyElse()) return;
  LingeringSockets lingering;
  Rig rig(peers, true);
  PassStorm(rig.site, *rig.victim, [&](int i) {
    PassByGrpc(rig.site, i, UserOf(peers), lingering.Make());
  });
}

TEST_CASE("sockets that linger, passed to the metrics socket, keep no health from anybody",
          "[times]") {
  const bool kernel_takes_all = GENERATE(false, true);
  CAPTURE(kernel_takes_all);
  const OlderKernel kernel(kernel_takes_all);
  LingeringSockets lingering;
  Rig rig(Peers::kAdmitted, false);
  PassStorm(rig.site, *rig.victim, [&](int i) { PassByMetrics(rig.site, i, lingering.Make()); });
}

TEST_CASE("a file of a FUSE server that answers nothing is felt by nobody else", "[times]") {
  const bool by_grpc = GENERATE(false, true);
  const Peers peers = GENERATE(Peers::kAdmitted, Peers::kRefused, Peers::kTooMany);
  const bool kernel_takes_all = GENERATE(false, true);
  CAPTURE(by_grpc, static_cast<int>(peers), kernel_takes_all);
  const OlderKernel kernel(kernel_takes_all);
  if (!CanBeSomebodyElse()) return;
  SilentFuse fuse;
  if (!fuse.mounted()) return;
  Rig rig(peers, by_grpc);
  const auto pass = by_grpc ? PassByGrpc : PassByLocal;
  PassStorm(
      rig.site, *rig.victim, [&](int i) { pass(rig.site, i, UserOf(peers), fuse.Make()); },
      [&] {
        // It can take three threads at most for each of its users and listeners.
        const int64_t waiting = rig.site.Counter("local_closing_descriptors");
        WARN(waiting << " descriptors wait");
        fuse.End();
      });
}

}  // namespace kvkeep::e2e
