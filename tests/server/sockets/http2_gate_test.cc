// Limits on what a gRPC client may send, tested without gRPC and without a clock.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <random>

#include "server/sockets/frame_reader.h"
#include "server/sockets/http2_connection.h"
#include "server/sockets/http2_gate.h"
#include "server/sockets/http2_rules.h"
#include "server/sockets/refusals.h"
#include "tests/server/soon.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kAck = 1;

std::string Frame(FrameType type, uint8_t flags, uint32_t stream, size_t payload_bytes) {
  std::string out;
  for (const int shift : {16, 8, 0}) out.push_back(static_cast<char>(payload_bytes >> shift));
  out.push_back(static_cast<char>(type));
  out.push_back(static_cast<char>(flags));
  for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<char>(stream >> shift));
  return out + std::string(payload_bytes, 'p');
}

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string TextOf(const FrameHead& head) {
  return absl::StrFormat("%d:%d:%d:%d ", static_cast<int>(head.type), head.flags, head.stream,
                         head.payload_bytes);
}

// A connection whose preface and SETTINGS have been read.
struct Tester {
  explicit Tester(Http2Connection::Wire wire = Http2Connection::Wire::kPlain,
                  std::shared_ptr<ResetBudget> budget = std::make_shared<ResetBudget>())
      : connection(-1, wire, {.socket = "s", .name = "n", .owner = "o"}, std::move(budget)) {
    Send(std::string(kPreface) + Frame(FrameType::kSettings, 0, 0, 0));
    Send(Frame(FrameType::kSettings, kAck, 0, 0));
    Yield();
  }
  Http2Fault Send(const std::string& bytes, uint64_t call_bytes = 0) {
    return connection.Read(Bytes(bytes), limits, call_bytes, now);
  }
  Http2Fault Headers(int count, uint64_t call_bytes = 0) {
    Http2Fault fault = Http2Fault::kNone;
    for (int i = 0; i < count && fault == Http2Fault::kNone; ++i) {
      fault = Send(Frame(FrameType::kHeaders, 4, 1, 10), call_bytes);
    }
    return fault;
  }
  Http2Connection::Turn Turn(uint64_t call_bytes = 0) {
    return connection.NextTurn(limits, call_bytes, now);
  }
  // gRPC processes what it has.
  void Yield() {
    while (Turn().kind == Http2Connection::Turn::Kind::kRead &&
           Turn().bytes < Http2Connection::kReadBytes) {
      connection.Received(Turn().bytes);
    }
  }
  Http2Limits limits;
  MonotonicTime now = seconds(1000);
  Http2Connection connection;
};

using Kind = Http2Connection::Turn::Kind;

}  // namespace

TEST_CASE("frames are found alike however their bytes are split") {
  std::minstd_rand random(Catch::rngSeed());
  const auto below = [&random](uint32_t most) { return static_cast<uint32_t>(random() % most); };
  for (int round = 0; round < 200; ++round) {
    std::string bytes(kPreface), wanted;
    for (int i = 0; i < 20; ++i) {
      const size_t payload = below(3) == 0 ? 0 : below(400);
      const FrameHead head{.payload_bytes = static_cast<uint32_t>(payload),
                           .type = static_cast<FrameType>(below(12)),
                           .flags = static_cast<uint8_t>(below(256)),
                           .stream = below(1000)};
      bytes += Frame(head.type, head.flags, head.stream, payload);
      wanted += TextOf(head);
    }
    FrameReader reader;
    std::string found;
    for (size_t at = 0; at < bytes.size();) {
      const size_t taken = std::min<size_t>(bytes.size() - at, 1 + below(round % 2 == 0 ? 3 : 500));
      CHECK(reader.Read(Bytes(bytes).subspan(at, taken), [&](const FrameHead& head) {
        found += TextOf(head);
        return true;
      }));
      at += taken;
    }
    REQUIRE(found == wanted);
  }
}

TEST_CASE("a frame reader tells what is to come of a DATA frame, and of no other") {
  FrameReader reader;
  const auto any = [](const FrameHead&) { return true; };
  reader.Read(Bytes(std::string(kPreface)), any);
  const std::string data = Frame(FrameType::kData, 0, 1, 1000);
  reader.Read(Bytes(data).first(9 + 100), any);
  CHECK(reader.data_to_come() == 900);
  reader.Read(Bytes(data).subspan(9 + 100), any);
  CHECK(reader.data_to_come() == 0);
  reader.Read(Bytes(Frame(FrameType::kHeaders, 0, 1, 1000)).first(100), any);
  CHECK(reader.data_to_come() == 0);
}

TEST_CASE("of a peer that speaks something else nothing is read") {
  for (const size_t at : {size_t{0}, size_t{23}}) {
    std::string bytes(kPreface);
    bytes[at] = '\x16';
    bytes += Frame(FrameType{200}, 0, 0, 1 << 20);
    FrameReader reader;
    CHECK(reader.Read(Bytes(bytes), [](const FrameHead&) { return false; }));
  }
}

TEST_CASE("who breaks a rule of HTTP/2 is cut off; at the limit nobody is") {
  const auto check = [](const std::string& frame, int times) {
    Http2Rules rules;
    FrameReader reader;
    Http2Fault fault = Http2Fault::kNone;
    std::string bytes(kPreface);
    for (int i = 0; i < times; ++i) bytes += frame;
    reader.Read(Bytes(bytes), [&](const FrameHead& head) {
      fault = rules.Check(head, seconds(1));
      return fault == Http2Fault::kNone;
    });
    return fault;
  };
  const std::string headers = Frame(FrameType::kHeaders, 0, 1, 10);
  CHECK(check(headers, 100) == Http2Fault::kNone);
  CHECK(check(headers, 101) == Http2Fault::kBeforeAck);
  const std::string ack = Frame(FrameType::kSettings, kAck, 0, 0);
  CHECK(check(ack + headers, 1000) == Http2Fault::kNone);
  CHECK(check(Frame(FrameType::kHeaders, 0, 1, 32 << 10), 1) == Http2Fault::kNone);
  CHECK(check(Frame(FrameType::kHeaders, 0, 1, (32 << 10) + 1), 1) == Http2Fault::kHeaderBlock);
  const std::string next = Frame(FrameType::kContinuation, 0, 1, 10);
  CHECK(check(next, 8) == Http2Fault::kNone);
  CHECK(check(next, 9) == Http2Fault::kHeaderBlock);
  CHECK(check(headers + Frame(FrameType::kContinuation, 0, 1, 32 << 10), 1) ==
        Http2Fault::kHeaderBlock);
  CHECK(check(Frame(FrameType::kSettings, 0, 0, 6), 100) == Http2Fault::kNone);
  CHECK(check(Frame(FrameType::kSettings, 0, 0, 6), 101) == Http2Fault::kSettings);
  CHECK(check(ack, 1000) == Http2Fault::kNone);
  CHECK(check(Frame(FrameType{200}, 0, 0, (16 << 10) + 1), 1) == Http2Fault::kFrame);
  CHECK(check(Frame(FrameType::kData, 0, 1, 4 << 20), 3) == Http2Fault::kNone);
}

TEST_CASE("gRPC gets the rest of a DATA payload and 16 KiB, then works off what it has") {
  Tester t;
  CHECK(t.Turn().bytes == Http2Connection::kReadBytes);
  t.Send(Frame(FrameType::kData, 0, 1, 4 << 20).substr(0, 9 + 1000));
  CHECK(t.Turn().bytes == (4 << 20) - 1000 + Http2Connection::kReadBytes - 9);
  t.Send(std::string((4 << 20) - 1000, 'p'));
  CHECK(t.Turn().bytes == Http2Connection::kReadBytes - 9);
  t.Headers(static_cast<int>(Http2Connection::kReadBytes / 19));
  CHECK(t.Turn().kind == Kind::kYield);
  CHECK(t.Turn().bytes == Http2Connection::kReadBytes);
}

TEST_CASE("what came encrypted counts until it is decrypted") {
  Tester t(Http2Connection::Wire::kTls);
  t.connection.Decrypted();
  t.connection.Received(Http2Connection::kReadBytes - 1);
  CHECK(t.Turn().bytes == 1);
  t.connection.Received(1);
  CHECK(t.Turn().kind == Kind::kYield);
  t.connection.Received(1000);
  t.connection.Decrypted();
  CHECK(t.Turn().bytes == Http2Connection::kReadBytes);
}

TEST_CASE("an owner that resets too many calls is held, its connections that do not are read") {
  const auto budget = std::make_shared<ResetBudget>();
  Tester flooding(Http2Connection::Wire::kPlain, budget);
  Tester other(Http2Connection::Wire::kPlain, budget);
  CHECK(flooding.Turn().kind == Kind::kRead);
  for (int i = 0; i < 1000; ++i) flooding.Send(Frame(FrameType::kReset, 0, 1, 4));
  const auto turn = flooding.Turn();
  CHECK(turn.kind == Kind::kWait);
  CHECK(turn.hold == Http2Hold::kResets);
  CHECK(other.Turn().kind == Kind::kRead);
  CHECK_FALSE(flooding.connection.MayResume(flooding.limits, 0, flooding.now));
  CHECK(flooding.connection.MayResume(flooding.limits, 0, flooding.now + milliseconds(2)));
  Http2Limits none = flooding.limits;
  none.resets_per_second = 0;
  CHECK(flooding.connection.NextTurn(none, 0, flooding.now).kind != Kind::kWait);
}

TEST_CASE("while calls hold much, who began many of them waits, for 100 ms at most") {
  Tester t;
  const uint64_t much = t.limits.call_memory_bytes / 2, little = t.limits.call_memory_bytes / 5;
  CHECK(t.Headers(64, much) == Http2Fault::kNone);
  CHECK(t.Turn(much).kind == Kind::kRead);
  t.Headers(1, much);
  CHECK(t.Turn(much).hold == Http2Hold::kMemory);
  CHECK_FALSE(t.connection.MayResume(t.limits, much, t.now + milliseconds(99)));
  CHECK(t.connection.MayResume(t.limits, much, t.now + milliseconds(100)));
  CHECK(t.Turn(much).kind == Kind::kRead);
  t.Headers(65, much);
  CHECK(t.Turn(much).kind == Kind::kWait);
  CHECK(t.connection.MayResume(t.limits, little, t.now));
}

TEST_CASE("when calls hold all of their memory, who begins more is cut off, the quiet ones last") {
  const uint64_t all = Http2Limits().call_memory_bytes;
  CHECK(Tester().Headers(1000, all) == Http2Fault::kNone);
  CHECK(Tester().Headers(8, all + 1) == Http2Fault::kNone);
  CHECK(Tester().Headers(9, all + 1) == Http2Fault::kMemory);
  CHECK(Tester().Headers(1, all / 2 * 3 + 1) == Http2Fault::kMemory);
  Tester slow;  // a call in a read
  for (int i = 0; i < 50; ++i) {
    CHECK(slow.Headers(1, all + 1) == Http2Fault::kNone);
    CHECK(slow.Turn(all + 1).kind == Kind::kRead);
  }
  CHECK(Tester().Send(Frame(FrameType::kData, 0, 1, 10), 2 * all) == Http2Fault::kNone);
}

TEST_CASE("frames that carry nothing have a rate, and a PING is many of them") {
  const auto until_held = [](FrameType type, size_t payload_bytes) {
    Tester t;
    int sent = 0;
    for (; sent < 100'000 && t.Turn().kind != Kind::kWait; ++sent) {
      CHECK(t.Send(Frame(type, 0, 0, payload_bytes)) == Http2Fault::kNone);
    }
    return sent;
  };
  constexpr int kBefore = 2;  // SETTINGS, and the acknowledgement of ours
  CHECK(until_held(FrameType::kWindowUpdate, 4) == 50'000 - kBefore);
  CHECK(until_held(FrameType::kData, 0) == 50'000 - kBefore);
  CHECK(until_held(FrameType::kPing, 8) == 1000);
  CHECK(until_held(FrameType::kData, 1) == 100'000);
}

namespace {

// A socket at the gate, in an epoll, as gRPC has it.
struct AtGate {
  AtGate() {
    std::array<int, 2> ends;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    peer = UniqueFd(ends[0]);
    ours = UniqueFd(ends[1]);
    gate.Add(ours.get(), Http2Connection::Wire::kPlain, {"s", "n", "o"});
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.fd = ours.get()}};
    REQUIRE(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, ours.get(), &event) == 0);
    gate.EnteredEpoll(ours.get(), epoll.get(), event);
  }
  ~AtGate() { Http2Gate::Closing(ours.get()); }
  int Events() const {
    epoll_event event;
    return epoll_wait(epoll.get(), &event, 1, 0);
  }
  Http2Connection* connection() const { return Http2Gate::Find(ours.get()); }

  Http2Gate& gate = Http2Gate::OfProcess();
  UniqueFd epoll{epoll_create1(EPOLL_CLOEXEC)};
  UniqueFd peer, ours;
};

}  // namespace

TEST_CASE("a connection that is held is told of again, and one that yields at once") {
  AtGate t;
  REQUIRE(send(t.peer.get(), "x", 1, 0) == 1);
  CHECK(t.Events() == 1);
  CHECK(t.Events() == 0);  // edge-triggered
  std::string resets(kPreface);
  for (int i = 0; i < 3000; ++i) resets += Frame(FrameType::kReset, 0, 1, 4);
  CHECK(t.gate.BeginRead(t.connection()) > 0);
  REQUIRE(t.gate.Pass(t.connection(), Bytes(resets)));
  const uint64_t before = t.gate.holds(Http2Hold::kResets);
  CHECK(t.gate.BeginRead(t.connection()) == 0);
  CHECK(errno == EAGAIN);
  CHECK(t.gate.holds(Http2Hold::kResets) == before + 1);
  int events = 0;
  CHECK(Soon([&] { return (events += t.Events()) == 1; }));
  int yields = 0;  // 3,000 resets are more than one read
  for (; yields < 10 && t.gate.BeginRead(t.connection()) == 0; ++yields) CHECK(t.Events() == 1);
  CHECK(yields > 0);
  CHECK(t.gate.BeginRead(t.connection()) > 0);
}

TEST_CASE("what is cut off gets no byte more, and its number is free for another") {
  AtGate t;
  std::string headers(kPreface);
  for (int i = 0; i < 101; ++i) headers += Frame(FrameType::kHeaders, 0, 1, 10);
  CHECK_FALSE(t.gate.Pass(t.connection(), Bytes(headers)));
  CHECK(t.gate.BeginRead(t.connection()) == 0);
  CHECK(errno == ECONNRESET);
  char byte;
  CHECK(recv(t.peer.get(), &byte, 1, 0) == 0);  // shut down
  Http2Gate::Closing(t.ours.get());
  CHECK(t.connection() == nullptr);
  t.gate.Add(t.ours.get(), Http2Connection::Wire::kPlain, {"s", "n", "o"});
  CHECK(t.gate.BeginRead(t.connection()) > 0);
}

TEST_CASE("a refusal says why to the first call, and ends the connection") {
  const absl::Status why = absl::PermissionDeniedError("50% of uid 7 \xc3\xa9");
  const std::string answer = RefusalOf(3, why);
  FrameReader reader;
  std::string found;
  std::string bytes = std::string(kPreface) + answer;
  CHECK(reader.Read(Bytes(bytes), [&](const FrameHead& head) {
    found += TextOf(head);
    return true;
  }));
  CHECK(found.starts_with("1:5:3:"));                      // HEADERS that end the stream
  CHECK(found.find(" 7:0:0:") != std::string::npos);       // GOAWAY
  CHECK(answer.find("50%25 of uid 7 %C3%A9") != std::string::npos);
  CHECK(RefusalOf(1, absl::PermissionDeniedError(std::string(9999, 'x'))).size() < 1200);
}

}  // namespace kvkeep
