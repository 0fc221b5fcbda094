#include <absl/strings/match.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "tests/server/local/socket_client.h"

namespace kvkeep {
namespace {

using local::Kind;

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// The first packet of the longest message.
void SendHalf(SocketClient& client) {
  std::vector<std::byte> packet(local::kMaxPacketBytes);
  const local::MessageHeader header{.bytes = local::kMaxMessageBytes,
                                    .kind = static_cast<uint16_t>(Kind::kPut),
                                    .id = 1};
  std::memcpy(packet.data(), &header, sizeof(header));
  REQUIRE(local::SendPacket(client.socket.get(), packet, {}, 0).ok());
}

}  // namespace

TEST_CASE("what one client puts another reads in place from the segments it was given") {
  EndpointTester t;
  t.Start();
  SocketClient writer(t.path()), reader(t.path());
  writer.Open();
  reader.Open();
  for (const uint64_t name : {1, 2, 3}) {
    CHECK(writer.Put(name, MakePayload(name, 1, name * kMiB + 3)) == "stored");
  }
  const TestFound found = reader.Get({1, 2, 3, 4});
  CHECK(found.head.leading_keys == 3);
  REQUIRE(found.places.size() == 3);
  for (const uint64_t name : {1, 2, 3}) {
    CHECK(reader.Payload(found.places[name - 1]) == MakePayload(name, 1, name * kMiB + 3));
  }
  CHECK(t.snapshot().sessions.size() == 2);
}

TEST_CASE("the socket has the mode asked for and is gone after the stop") {
  EndpointTester t;
  t.Start();
  struct stat info {};
  REQUIRE(stat(t.path().c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  t.endpoint->Stop();
  CHECK(stat(t.path().c_str(), &info) != 0);
  t.endpoint->Stop();
}

TEST_CASE("an endpoint that stops leaves the socket of its successor") {
  EndpointTester first;
  first.Start();
  REQUIRE(std::filesystem::remove(first.path()));
  EndpointTester second(
      [&](LocalEndpoint::Options* options) { options->listeners[0].socket.path = first.path(); });
  second.Start();
  first.endpoint->Stop();
  SocketClient client(first.path());
  client.Open();
}

TEST_CASE("a socket whose file was removed is reached by its path again, and by who has it") {
  SocketWatch watch;
  EndpointTester t;
  t.sockets = &watch;
  t.Start();
  SocketClient before(t.path());
  before.Open();
  for (int i = 0; i < 2; ++i) {
    REQUIRE(std::filesystem::remove(t.path()));
    watch.Look();
    SocketClient after(t.path());
    after.Open();
    CHECK(after.Put(7, MakePayload(7, 1, kMiB)) == (i == 0 ? "stored" : "present"));
  }
  CHECK(before.Get({7}).places.size() == 1);
  watch.ForgetAll();
}

TEST_CASE("a peer that is not allowed is told who it is and what would let it in") {
  EndpointTester t([](LocalEndpoint::Options* options) {
    options->listeners[0].socket.policy.uids = {geteuid() + 1};
  });
  t.Start();
  SocketClient client(t.path());
  const SentMessage reply = client.Ask(Kind::kHello, HelloBody());
  CHECK(absl::IsPermissionDenied(reply.status));
  CHECK(absl::StrContains(std::string(reply.status.message()), absl::StrCat("uid=", geteuid())));
  CHECK(absl::StrContains(std::string(reply.status.message()), "allowed_uids"));
  CHECK(client.Receive().kind == 0);  // and closed
  CHECK(t.counters.refused_connections == 1);
  CHECK(t.snapshot().counters.sessions_opened == 0);
}

TEST_CASE("connections over the limit are refused with the reason, one that ends makes room") {
  EndpointTester t([](LocalEndpoint::Options* options) { options->limits.max_connections = 2; });
  t.Start();
  auto first = std::make_unique<SocketClient>(t.path());
  first->Open();
  SocketClient second(t.path());
  second.Open();
  SocketClient third(t.path());
  const SentMessage reply = third.Ask(Kind::kHello, HelloBody());
  CHECK(absl::IsResourceExhausted(reply.status));
  CHECK(absl::StrContains(std::string(reply.status.message()), "connections"));
  first.reset();
  CHECK(Eventually([&] { return t.counters.open_connections == 1; }));
  SocketClient fourth(t.path());
  fourth.Open();
}

TEST_CASE("a socket's connections are its own: one that is full locks nobody out of another") {
  std::string other;
  EndpointTester t([&](LocalEndpoint::Options* options) {
    options->listeners[0].max_connections = 2;
    other = options->listeners[0].socket.path + "2";
    options->listeners.push_back(options->listeners[0]);
    options->listeners[1].socket.path = other;
    options->listeners[1].max_connections = 3;
    options->limits.max_connections = 1;  // a listener that limits connections to this many
  });
  t.Start();
  // One refused client after the other, all of which wait for the reason.
  std::vector<std::unique_ptr<SocketClient>> crowd;
  for (int i = 0; i < 80; ++i) crowd.push_back(std::make_unique<SocketClient>(t.path()));
  crowd[1]->Open();
  CHECK(absl::IsResourceExhausted(crowd[2]->Ask(Kind::kHello, HelloBody()).status));
  SocketClient first(other), second(other), third(other), fourth(other);
  first.Open();
  second.Open();
  third.Open();
  CHECK(absl::IsResourceExhausted(fourth.Ask(Kind::kHello, HelloBody()).status));
}

TEST_CASE("a thousand connections come and go and leave no descriptor") {
  EndpointTester t;
  t.Start();
  size_t before = 0;
  for (int i = 0; i < 1000; ++i) {
    SocketClient client(t.path());
    if (i % 3 == 0) client.Open();
    if (i % 5 == 0) client.Send(Kind::kHello, HelloBody());  // and leaves without the answer
    if (i == 100) {
      CHECK(Eventually([&] { return t.counters.open_connections <= 1; }));
      before = OpenDescriptors();
    }
  }
  CHECK(Eventually([&] { return t.counters.open_connections == 0; }));
  CHECK(Eventually([&] { return OpenDescriptors() <= before; }));  // another thread closes them
  CHECK(t.counters.connections == 1000);
  CHECK(t.snapshot().sessions.empty());
}

TEST_CASE("garbage is answered with the reason or cut off, and others do not notice") {
  EndpointTester t;
  t.Start();
  SocketClient good(t.path());
  good.Open();
  SeededRandom random(7);
  for (int i = 0; i < 300; ++i) {
    SocketClient client(t.path());
    if (i % 2 == 0) client.Open();
    std::vector<std::byte> packet(random.Below(3000) + 1);
    random.Fill(packet);
    if (i % 4 >= 2 && packet.size() >= 16) {  // framed correctly: the body is wrong
      const local::MessageHeader header{.bytes = static_cast<uint32_t>(packet.size()),
                                        .kind = static_cast<uint16_t>(random.Below(20)),
                                        .id = random.Below(3)};
      std::memcpy(packet.data(), &header, sizeof(header));
    }
    const UniqueFd event(eventfd(0, EFD_CLOEXEC));
    const std::vector<int> fds(random.Below(4), event.get());
    if (!local::SendPacket(client.socket.get(), packet, fds, 0).ok()) {
      CHECK(i % 2 == 1);  // the kernel takes no descriptors before Hello
      CHECK_FALSE(fds.empty());
      continue;
    }
    const SentMessage reply = client.Receive();
    CHECK_FALSE(reply.status.ok());
  }
  CHECK(good.Ask(Kind::kServerInfo, {}).status.ok());
}

TEST_CASE("a message that is not whole holds nothing up, and its client may leave in between") {
  EndpointTester t;
  t.Start();
  SocketClient half(t.path());
  half.Open();
  std::vector<std::byte> packet(local::kMaxPacketBytes);
  const local::MessageHeader header{.bytes = 2 * local::kMaxPacketBytes, .kind = 8, .id = 1};
  std::memcpy(packet.data(), &header, sizeof(header));
  REQUIRE(local::SendPacket(half.socket.get(), packet, {}, 0).ok());
  SocketClient other(t.path());
  other.Open();
  half.socket.Reset();
  CHECK(Eventually([&] { return t.counters.open_connections == 1; }));
}

TEST_CASE("a message for which there is no memory is refused, and its session goes on") {
  EndpointTester t([](LocalEndpoint::Options* options) {
    options->listeners[0].messages = std::make_shared<MessageAccount>(3 * local::kMaxMessageBytes);
  });
  t.Start();
  std::vector<std::unique_ptr<SocketClient>> halves;
  for (uint64_t held = 1; held <= 3; ++held) {
    halves.push_back(std::make_unique<SocketClient>(t.path()));
    halves.back()->Open();
    SendHalf(*halves.back());
    CHECK(Eventually([&] { return t.counters.message_bytes == held * local::kMaxMessageBytes; }));
  }
  SocketClient client(t.path());
  client.Open();
  const auto keys = std::vector<uint64_t>(10'000, 1);
  const auto body = KeysBody(client.ns, keys, LeaseMode::kNone, {}, 0, {});
  const SentMessage refused = client.Ask(Kind::kLookup, body);
  CHECK(absl::IsResourceExhausted(refused.status));
  CHECK(absl::StrContains(std::string(refused.status.message()), "local_memory"));
  CHECK(t.counters.refused_messages == 1);
  CHECK(client.Ask(Kind::kServerInfo, {}).status.ok());
  halves.clear();
  CHECK(Eventually([&] { return t.counters.message_bytes == 0; }));
  const SentMessage served = client.Ask(Kind::kLookup, body);
  INFO(served.status);
  CHECK(served.status.ok());
  CHECK(Eventually([&] { return t.counters.message_bytes == 0; }));
}

TEST_CASE("a descriptor that comes with anything but a registration ends the connection") {
  EndpointTester t;
  t.Start();
  SocketClient client(t.path());
  client.Open();
  const std::vector<int> fds = {0};
  SECTION("another request") { client.Send(Kind::kServerInfo, {}, fds); }
  SECTION("two of them") {
    const local::RegisterMemory body{.bytes = 1};
    client.Send(Kind::kRegisterMemory, std::as_bytes(std::span(&body, 1)), std::vector<int>{0, 0});
  }
  SECTION("half a registration") {
    std::vector<std::byte> packet(local::kMaxPacketBytes);
    const local::MessageHeader header{
        .bytes = 2 * local::kMaxPacketBytes,
        .kind = static_cast<uint16_t>(Kind::kRegisterMemory),
        .id = 1};
    std::memcpy(packet.data(), &header, sizeof(header));
    REQUIRE(local::SendPacket(client.socket.get(), packet, fds, 0).ok());
  }
  SECTION("on the event socket") {
    // The kernel may refuse it; the message without it would be a Pong.
    local::MessageWriter pong(static_cast<uint16_t>(Kind::kPong), 0);
    if (!local::SendPacket(client.events.get(), pong.Finish(), fds, 0).ok()) return;
  }
  CHECK(Eventually([&] { return t.counters.open_connections == 0; }));
  CHECK(t.counters.passed_descriptors > 0);
  CHECK(t.counters.broken_connections == 1);
}

TEST_CASE("before Hello a message is short") {
  EndpointTester t;
  t.Start();
  SocketClient client(t.path());
  SendHalf(client);
  const SentMessage told = client.Receive();
  CHECK(absl::IsInvalidArgument(told.status));
  CHECK(absl::StrContains(std::string(told.status.message()), "before Hello"));
  CHECK(client.Receive().kind == 0);  // and closed
  CHECK(t.counters.message_bytes == 0);
}

TEST_CASE("a client that does not read its replies is not read from, then served on, losing none") {
  EndpointTester t;
  t.Start();
  SocketClient client(t.path());
  client.Open();
  constexpr int kRequests = 500;  // some thirty of them fit into sockets and the daemon
  const auto body =
      KeysBody(client.ns, std::vector<uint64_t>(2000, 1), LeaseMode::kNone, {}, 0, {});
  // Reads nothing until the sender blocks: the daemon has stopped reading.
  std::atomic<int> sent{0};
  std::thread sender([&] {
    for (; sent < kRequests; ++sent) client.Send(Kind::kLookup, body);
  });
  int last = -1;
  CHECK(Eventually([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for the sender to be stuck
    return std::exchange(last, sent) == sent;
  }));
  CHECK(sent < kRequests);
  const uint64_t lookups = t.counters.lookups;
  CHECK(lookups <= static_cast<uint64_t>(kRequests));
  SocketClient other(t.path());
  other.Open();  // other clients are served meanwhile
  for (int i = 0; i < kRequests; ++i) REQUIRE(client.Receive().status.ok());
  sender.join();
  CHECK(t.counters.lookups == kRequests);
  CHECK(t.counters.broken_connections == 0);
}

TEST_CASE("a client that lets too much pile up unread is cut off") {
  EndpointTester t([](LocalEndpoint::Options* options) { options->limits.max_unsent_bytes = 1; });
  t.Start();
  SocketClient client(t.path());
  client.Open();
  const auto body =
      KeysBody(client.ns, std::vector<uint64_t>(65536, 1), LeaseMode::kNone, {}, 0, {0});
  std::thread sender([&] {
    for (int i = 0; i < 50 && t.counters.broken_connections == 0; ++i) {
      client.Send(Kind::kLookup, body);
    }
  });
  CHECK(Eventually([&] { return t.counters.broken_connections == 1; }));
  sender.join();
  CHECK(Eventually([&] { return t.counters.open_connections == 0; }));
}

TEST_CASE("without a descriptor to be had connections wait, without spinning, until there is one") {
  EndpointTester t;
  t.Start();
  SocketClient warm(t.path());
  warm.Open();
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  rlimit low = limit;
  const UniqueFd next(dup(0));
  SocketClient waiting;
  waiting.socket = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  low.rlim_cur = static_cast<rlim_t>(waiting.socket.get()) + 1;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  std::vector<UniqueFd> rest;  // the free ones below
  for (int fd = dup(0); fd >= 0; fd = dup(0)) rest.emplace_back(fd);
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  REQUIRE(getpeername(warm.socket.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  REQUIRE(connect(waiting.socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  CHECK(Eventually([&] { return t.counters.accept_pauses >= 2; }));
  const uint64_t pauses = t.counters.accept_pauses;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) REQUIRE(warm.Ask(Kind::kServerInfo, {}).status.ok());
  const auto passed = std::chrono::steady_clock::now() - start;
  // One try a tick (250 ms), whatever else is going on.
  CHECK(t.counters.accept_pauses - pauses <=
        static_cast<uint64_t>(passed / std::chrono::milliseconds(200)) + 1);
  rest.clear();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  waiting.Open();
}

TEST_CASE("sessions are told when the daemon drains") {
  EndpointTester t;
  t.Start();
  SocketClient client(t.path());
  client.Open();
  t.endpoint->NotifyDraining();
  CHECK(client.NextEvent(std::chrono::seconds(10)) == static_cast<uint16_t>(Kind::kDraining));
}

TEST_CASE("a stop with puts under way closes connections, ends copies and frees all") {
  EndpointTester t;
  t.Start();
  std::vector<std::unique_ptr<SocketClient>> clients;
  for (uint64_t i = 0; i < 4; ++i) {
    SocketClient& client = *clients.emplace_back(std::make_unique<SocketClient>(t.path()));
    client.Open();
    client.Stage(MakePayload(i, 1, 3 * kMiB));
    client.Send(Kind::kPut, PutBody(client.ns, {{.name = i, .bytes = 3 * kMiB}}));
  }
  t.endpoint->Stop();
  CHECK(t.counters.open_connections == 0);
  CHECK(Eventually([&] { return t.counters.puts_copying == 0; }));
  CHECK(t.snapshot().sessions.empty());
  CHECK(t.snapshot().g2.reserved_bytes == 0);
}

}  // namespace kvkeep
