// The real daemon's gRPC sockets against a peer that sends HTTP/2's preface and then anything:
// bytes, frames of every type, calls of every method (streams and an operator's, too) with messages
// made up or cut. The daemon lives, serves whole chunks to other clients meanwhile, and keeps
// nothing of it.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "tests/e2e/engine.h"
#include "tests/fakes/sanitized.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

constexpr int kConnections = kSanitized ? 150 : 400;
constexpr char kHello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum FrameType : uint8_t { kData = 0, kHeaders = 1, kSettings = 4 };

// All calls but Drain, for which an empty message is valid too.
const std::vector<std::string> kClientCalls = {
    "GetServerInfo", "OpenSession", "OpenNamespace", "Lookup", "Get",   "Put",
    "Touch",         "Prefetch",    "Release",       "Delete", "Watch", "NoSuchCall"};
const std::vector<std::string> kAdminCalls = {"Status",     "Clear",          "ReloadConfig",
                                              "ShowConfig", "ListNamespaces", "Evict",
                                              "Verify",     "ShowReuse",      "NoSuchCall"};

std::string HttpFrame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& body) {
  std::string frame(9, '\0');
  const uint32_t sizes[] = {htonl(static_cast<uint32_t>(body.size()) << 8), htonl(stream)};
  std::memcpy(frame.data(), &sizes[0], 3);
  frame[3] = static_cast<char>(type);
  frame[4] = static_cast<char>(flags);
  std::memcpy(frame.data() + 5, &sizes[1], 4);
  return frame + body;
}

class Stranger {
 public:
  Stranger(const std::string& socket_path, bool admin, uint64_t seed)
      : admin_(admin),
        random_(seed),
        polite_(random_.Chance(0.7)),
        fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(socket_path.size() < sizeof(address.sun_path));
    std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
    REQUIRE(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }

  void Speak() {
    std::string said = kHello;
    if (polite_ || random_.Chance(0.9)) said += HttpFrame(kSettings, 0, 0, "");
    for (uint64_t i = random_.Between(1, 12); i > 0; --i) said += Something();
    if (!polite_ && random_.Chance(0.2)) said[random_.Below(said.size())] ^= 1 << random_.Below(8);
    if (!polite_ && random_.Chance(0.2)) said.resize(random_.Below(said.size()));
    size_t sent = 0;
    while (sent < said.size()) {
      const size_t part = std::min<size_t>(said.size() - sent, random_.Between(1, 60'000));
      const ssize_t wrote = send(fd_.get(), said.data() + sent, part, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (wrote <= 0) break;  // closed, or taking no more
      sent += static_cast<size_t>(wrote);
      Hear(0);
    }
    if (!polite_ && random_.Chance(0.5)) shutdown(fd_.get(), SHUT_WR);
    // A valid call gets an answer, on a busy machine late.
    Hear(!polite_ ? 0 : answered() ? 20 : 5'000);
  }
  bool answered() const { return heard_ > 0; }

 private:
  std::string Something() {
    const uint64_t kind = polite_ ? 9 : random_.Below(10);
    if (kind == 0) return Bytes(random_.Between(1, 200));
    if (kind < 4) {
      return HttpFrame(static_cast<uint8_t>(random_.Below(12)),
                       static_cast<uint8_t>(random_.Below(256)),
                       random_.Chance(0.3) ? 0 : static_cast<uint32_t>(random_.Below(2 * stream_)),
                       Bytes(random_.Below(60)));
    }
    return SomeCall();
  }
  std::string SomeCall() {
    const std::vector<std::string>& calls = admin_ ? kAdminCalls : kClientCalls;
    const std::string method = std::string(admin_ ? "/kvkeep.v1.Admin/" : "/kvkeep.v1.KvCache/") +
                               calls[random_.Below(calls.size())];
    const auto text = [](const std::string& value) {
      return std::string(1, static_cast<char>(value.size())) + value;
    };
    const std::string literal(1, '\0');
    // HPACK with the static table only.
    const std::string headers = "\x83\x86\x04" + text(method) + "\x01" + text("x") + literal +
                                text("te") + text("trailers") + literal + text("content-type") +
                                text("application/grpc");
    const uint32_t stream = stream_;
    stream_ += 2;
    std::string said = HttpFrame(kHeaders, 4, stream, headers);
    for (uint64_t i = polite_ ? 1 : random_.Below(3); i > 0; --i) {
      const std::string message = Message();
      const uint32_t size = htonl(static_cast<uint32_t>(
          !polite_ && random_.Chance(0.2) ? random_.Below(uint64_t{1} << 32) : message.size()));
      std::string body(1, static_cast<char>(!polite_ && random_.Chance(0.1)));  // compressed
      body.append(reinterpret_cast<const char*>(&size), sizeof(size));
      said += HttpFrame(kData, !polite_ && random_.Chance(0.3), stream, body + message);
    }
    if (polite_ || random_.Chance(0.4)) said += HttpFrame(kData, 1, stream, "");
    return said;
  }
  // Often fields as protobuf has them: numbers, and bytes of any length.
  std::string Message() {
    if (random_.Chance(0.3)) return Bytes(random_.Below(100));
    std::string message;
    for (uint64_t i = random_.Below(6); i > 0; --i) {
      const bool number = random_.Chance(0.4);
      message.push_back(static_cast<char>(random_.Between(1, 8) << 3 | (number ? 0 : 2)));
      const size_t bytes = random_.Chance(0.5) ? 16u << random_.Below(2) : random_.Below(100);
      message.push_back(static_cast<char>(number ? random_.Below(128) : bytes));
      if (!number) message += Bytes(bytes);
    }
    return message;
  }
  std::string Bytes(size_t count) {
    std::string bytes(count, '\0');
    random_.Fill(std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }
  // Discards the daemon's bytes: waits up to `wait_ms` for the first, then reads up to a pause.
  void Hear(int wait_ms) {
    char buffer[65536];
    pollfd readable{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    while (poll(&readable, 1, wait_ms) > 0) {
      const ssize_t got = recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
      if (got <= 0) return;
      heard_ += static_cast<uint64_t>(got);
      wait_ms = std::min(wait_ms, 20);
    }
  }

  const bool admin_;
  SeededRandom random_;
  const bool polite_;  // its frames are valid, so that it gets to the calls themselves
  const UniqueFd fd_;
  uint32_t stream_ = 1;
  uint64_t heard_ = 0;
};

}  // namespace

TEST_CASE("whatever is said to the gRPC sockets after the preface, the daemon lives and serves") {
  e2e::Site site;
  site.Start();
  e2e::Engine engine(site, {.name = "bystander", .path = client::PathChoice::kGrpc});
  const std::vector<e2e::TestChunk> chunks = e2e::Chunks(1, 8, 100'000);
  uint64_t answered = 0;
  for (int i = 0; i < kConnections; ++i) {
    const bool admin = i % 3 == 0;
    INFO("connection " << i);
    Stranger stranger(admin ? site.admin_socket() : site.socket(), admin,
                      static_cast<uint64_t>(i) + 1);
    stranger.Speak();
    answered += stranger.answered();
    if (i % 25 != 0) continue;
    REQUIRE(site.running());
    // A Clear or an Evict may have got through, or may do so just now.
    CHECK(e2e::Eventually([&] {
      return engine.PutAll(chunks) &&
             engine.Get(chunks[static_cast<size_t>(i / 25) % chunks.size()]) ==
                 client::GetStatus::kHit;
    }));
  }
  CHECK(engine.wrong_bytes == 0);
  CHECK(answered > kConnections / 2);
  CHECK(site.Counter("invalid_requests") > 50);
  CHECK(site.Counter("sessions_opened") > 10);
  CHECK(site.Counter("admin_calls") > 50);
  // The bystander's own session stays.
  CHECK(e2e::Eventually([&] {
    return site.Status().sessions_size() == 1 && site.Counter("open_get_streams") == 0 &&
           site.Counter("open_put_streams") == 0 && site.Counter("open_watch_streams") == 0 &&
           site.Counter("open_session_streams") == 1;
  }));
  const e2e::Ending end = site.Stop();
  INFO(end.err);
  CHECK(end.exit_status == 0);
}

}  // namespace kvkeep
