#include <absl/strings/match.h>
#include <linux/sockios.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "tests/fakes/shared_clock.h"
#include "tests/server/local/socket_client.h"

namespace kvkeep {
namespace {

using local::Kind;
using std::chrono::milliseconds;

void QuickGrace(LocalEndpoint::Options* options) { options->limits.grace = milliseconds(200); }
// For tests that move the time.
void FairGrace(LocalEndpoint::Options* options) { options->limits.grace = milliseconds(1000); }

// A process that runs `body` and then waits for its end. Make it before any thread.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    int fds[2];
    REQUIRE(pipe(fds) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      body();
      if (write(fds[1], "x", 1) == 1) pause();
      _exit(0);
    }
    close(fds[1]);
    ready_ = UniqueFd(fds[0]);
  }
  ~Child() { Kill(); }
  void AwaitReady() {
    char byte;
    REQUIRE(read(ready_.get(), &byte, 1) == 1);
  }
  void Signal(int number) { REQUIRE(kill(pid_, number) == 0); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
  UniqueFd ready_;
};

// Puts a chunk, gets it and keeps the lease.
void HoldALease(SocketClient& client) {
  client.Open();
  if (client.Put(1, MakePayload(1, 1, 100'000)) != "stored") _exit(1);
  if (client.Get({1}).places.size() != 1) _exit(1);
}

// Returns how much of what was sent by a socket its peer has not read.
int Unread(const UniqueFd& socket) {
  int bytes = 0;
  REQUIRE(ioctl(socket.get(), SIOCOUTQ, &bytes) == 0);
  return bytes;
}

bool Freed(EndpointTester& t) {
  return t.snapshot().g2.leased_bytes == 0 && t.counters.open_connections == 0 &&
         t.counters.staging_bytes == 0;
}

}  // namespace

TEST_CASE("what a killed client held is back at once") {
  EndpointTester t([](LocalEndpoint::Options* options) {
    options->limits.grace = std::chrono::hours(1);  // so it comes back for another reason
  });
  Child child([&] { HoldALease(*new SocketClient(t.path())); });
  t.Start();
  child.AwaitReady();
  CHECK(t.snapshot().g2.leased_bytes > 0);
  child.Kill();
  CHECK(Eventually([&] { return Freed(t); }));
  CHECK(t.snapshot().sessions.empty());
}

TEST_CASE("a forked child that still holds the socket does not keep a dead client's leases") {
  EndpointTester t;
  Child child([&] {
    HoldALease(*new SocketClient(t.path()));
    if (fork() != 0) return;
    prctl(PR_SET_PDEATHSIG, 0);
    alarm(20);  // it outlives its parent
    pause();
  });
  t.Start();
  child.AwaitReady();
  CHECK(t.snapshot().g2.leased_bytes > 0);
  child.Kill();
  CHECK(Eventually([&] { return Freed(t); }));
  CHECK(t.counters.dead_processes == 1);
}

TEST_CASE("a stopped client loses its leases after the grace period, and only it") {
  SharedClock clock;
  EndpointTester t(FairGrace);
  t.clock = &clock;
  Child child([&] { HoldALease(*new SocketClient(t.path())); });
  t.Start();
  child.AwaitReady();
  SocketClient other(t.path());
  other.Open();
  child.Signal(SIGSTOP);
  REQUIRE(other.Get({1}).places.size() == 1);
  while (t.counters.revoked_sessions == 0) {
    clock.Advance(milliseconds(250));
    REQUIRE(other.Ask(Kind::kServerInfo, {}).status.ok());
  }
  CHECK(Eventually([&] { return t.snapshot().counters.leases_revoked == 1; }));
  CHECK(t.snapshot().g2.leased_bytes > 0);  // the other's
  CHECK_FALSE(other.revoked());
  CHECK(t.counters.staging_bytes > 0);  // the stopped one's, until it dies
  child.Signal(SIGCONT);
  child.Kill();
  CHECK(Eventually([&] { return t.counters.staging_bytes == 0; }));
}

TEST_CASE("a silent client is pinged, told that it is revoked, and refused from then on") {
  EndpointTester t(QuickGrace);
  t.Start();
  SocketClient client(t.path());
  client.Open();
  REQUIRE(client.Put(1, MakePayload(1, 1, 1000)) == "stored");
  REQUIRE(client.Get({1}).places.size() == 1);
  CHECK(client.NextEvent(milliseconds(10'000)) == static_cast<uint16_t>(Kind::kPing));
  CHECK(client.NextEvent(milliseconds(10'000)) == static_cast<uint16_t>(Kind::kRevoked));
  CHECK(client.revoked());
  CHECK(t.snapshot().g2.leased_bytes == 0);
  const auto body = KeysBody(client.ns, {1}, LeaseMode::kNone);
  CHECK(absl::IsFailedPrecondition(client.Ask(Kind::kLookup, body).status));
}

TEST_CASE("a client that answers pings keeps its lease for many grace periods") {
  SharedClock clock;
  EndpointTester t(FairGrace);
  t.clock = &clock;
  t.Start();
  SocketClient client(t.path());
  client.Open();
  REQUIRE(client.Put(1, MakePayload(1, 1, 1000)) == "stored");
  REQUIRE(client.Get({1}).places.size() == 1);
  for (int pings = 0; pings < 14; ++pings) {
    uint16_t event = 0;
    while ((event = client.NextEvent(milliseconds(10))) == 0) clock.Advance(milliseconds(50));
    REQUIRE(event == static_cast<uint16_t>(Kind::kPing));
    client.Pong();
    REQUIRE(Eventually([&] { return Unread(client.events) == 0; }));
  }
  CHECK_FALSE(client.revoked());
  CHECK(t.snapshot().g2.leased_bytes > 0);
}

TEST_CASE("a client that asks needs to answer no ping, one that holds nothing gets none") {
  SharedClock clock;
  EndpointTester t(FairGrace);
  t.clock = &clock;
  t.Start();
  SocketClient busy(t.path()), idle(t.path());
  busy.Open();
  idle.Open();
  REQUIRE(busy.Put(1, MakePayload(1, 1, 1000)) == "stored");
  REQUIRE(busy.Get({1}).places.size() == 1);
  for (int i = 0; i < 10; ++i) {
    clock.Advance(milliseconds(600));
    REQUIRE(busy.Ask(Kind::kServerInfo, {}).status.ok());
  }
  CHECK_FALSE(busy.revoked());
  CHECK(idle.NextEvent(milliseconds(0)) == 0);
}

TEST_CASE("what is no Pong on the event socket ends the connection, as does closing it") {
  EndpointTester t;
  t.Start();
  SocketClient client(t.path());
  client.Open();
  SECTION("another message") {
    local::MessageWriter other(static_cast<uint16_t>(Kind::kPing), 0);
    REQUIRE(local::SendMessage(client.events.get(), other.Finish()).ok());
  }
  SECTION("garbage") {
    REQUIRE(local::SendPacket(client.events.get(), std::vector<std::byte>(5000), {}, 0).ok());
  }
  SECTION("closed") { client.events.Reset(); }
  CHECK(Eventually([&] { return t.counters.open_connections == 0; }));
}

TEST_CASE("half a message is cut off after the time of grace, however its client goes on with it") {
  EndpointTester t(QuickGrace);
  t.Start();
  SocketClient half(t.path()), other(t.path());
  half.Open();
  other.Open();
  std::vector<std::byte> packet(local::kMaxPacketBytes);
  const local::MessageHeader header{.bytes = local::kMaxMessageBytes,
                                    .kind = static_cast<uint16_t>(Kind::kPut),
                                    .id = 1};
  std::memcpy(packet.data(), &header, sizeof(header));
  int sent = 0;
  while (t.counters.late_messages == 0 && sent < 120) {
    if (!local::SendPacket(half.socket.get(), packet, {}, 0).ok()) break;
    ++sent;
    other.NextEvent(milliseconds(50));  // a while
  }
  CHECK(t.counters.late_messages == 1);
  CHECK(sent < 120);
  CHECK(absl::IsDeadlineExceeded(half.Receive().status));
  CHECK(Eventually([&] { return t.counters.open_connections == 1; }));
  CHECK(t.counters.message_bytes == 0);
  CHECK(other.Ask(Kind::kServerInfo, {}).status.ok());
}

TEST_CASE("who is cut off while requests of its are unread still sees what it was answered") {
  EndpointTester t(QuickGrace);
  t.Start();
  SocketClient client(t.path());
  client.Open();
  // It reads no reply, so at some point the daemon reads no request either.
  uint64_t id = client.next_id();
  CHECK(Eventually([&] {
    local::MessageWriter request(static_cast<uint16_t>(Kind::kServerInfo), id);
    id += local::SendPacket(client.socket.get(), request.Finish(), {}, MSG_DONTWAIT).ok();
    return t.counters.late_messages == 1 && t.counters.open_connections == 0;
  }));
  int answered = 0;
  SentMessage next = client.Receive();
  for (; next.kind != 0; next = client.Receive()) ++answered;
  CHECK(answered > 0);
  INFO(next.status);
  CHECK(absl::StrContains(next.status.message(), "the peer closed the connection"));
}

TEST_CASE("a connection without a Hello ends after a while") {
  SharedClock clock;
  EndpointTester t([](LocalEndpoint::Options* options) {
    QuickGrace(options);
    options->limits.handshake_timeout = milliseconds(1000);
  });
  t.clock = &clock;
  t.Start();
  SocketClient silent(t.path()), open(t.path());
  open.Open();
  REQUIRE(Eventually([&] {
    clock.Advance(milliseconds(100));
    return t.counters.open_connections == 1;
  }));
  const SentMessage told = silent.Receive();
  CHECK(told.id == 0);
  CHECK(absl::IsDeadlineExceeded(told.status));
  CHECK(open.Ask(Kind::kServerInfo, {}).status.ok());
}

}  // namespace kvkeep
