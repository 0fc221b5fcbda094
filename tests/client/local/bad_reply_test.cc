// A daemon that lies: every length and every offset of its replies, wrong.
#include <cstring>

#include "tests/client/local/fixture.h"
#include "tiers/base/bytes.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using Message = std::vector<std::byte>;

constexpr size_t kBody = sizeof(local::MessageHeader) + sizeof(local::ReplyHead);

template <typename T>
void Change(Message* message, size_t offset, T value) {
  StoreAt(message->data() + offset, value);
}

struct Lie {
  const char* what;
  std::function<void(Message*)> tell;
};

constexpr size_t kFound = kBody;                                     // LookupReply
constexpr size_t kPlaces = kFound + sizeof(local::LookupReply) + 2;  // one key: a byte per bitmap
constexpr size_t kRuns = kPlaces + sizeof(local::Place);

const Lie kGetLies[] = {
    {"cut", [](Message* m) { m->pop_back(); }},
    {"no head", [](Message* m) { m->resize(sizeof(local::MessageHeader)); }},
    {"no body", [](Message* m) { m->resize(kBody); }},
    {"longer", [](Message* m) { m->push_back(std::byte{0}); }},
    {"leading_keys", [](Message* m) { Change<uint32_t>(m, kFound + 16, 2); }},
    {"leased_keys", [](Message* m) { Change<uint32_t>(m, kFound + 20, 2); }},
    {"keys", [](Message* m) { Change<uint32_t>(m, kFound + 24, 2); }},
    {"row_bytes", [](Message* m) { Change<uint32_t>(m, kFound + 28, UINT32_MAX); }},
    {"places", [](Message* m) { Change<uint32_t>(m, kFound + 32, UINT32_MAX); }},
    {"runs", [](Message* m) { Change<uint32_t>(m, kFound + 36, UINT32_MAX); }},
    {"no lease", [](Message* m) { Change<uint64_t>(m, kFound, 0); }},
    {"chunk", [](Message* m) { Change<uint32_t>(m, kPlaces, 1); }},
    {"payload_bytes 0", [](Message* m) { Change<uint32_t>(m, kPlaces + 4, 0); }},
    {"payload_bytes", [](Message* m) { Change<uint32_t>(m, kPlaces + 4, 1 << 20); }},
    {"payload_bytes huge", [](Message* m) { Change<uint32_t>(m, kPlaces + 4, UINT32_MAX); }},
    {"tail_bytes", [](Message* m) { Change<uint32_t>(m, kPlaces + 8, UINT32_MAX); }},
    {"progress_word", [](Message* m) { Change<uint32_t>(m, kPlaces + 12, 4096); }},
    {"first_run", [](Message* m) { Change<uint32_t>(m, kPlaces + 16, 1); }},
    {"first_run huge", [](Message* m) { Change<uint32_t>(m, kPlaces + 16, UINT32_MAX); }},
    {"run count", [](Message* m) { Change<uint32_t>(m, kPlaces + 20, 2); }},
    {"run count 0", [](Message* m) { Change<uint32_t>(m, kPlaces + 20, 0); }},
    {"segment", [](Message* m) { Change<uint32_t>(m, kRuns, 3); }},
    {"blocks", [](Message* m) { Change<uint32_t>(m, kRuns + 4, 1); }},
    {"blocks huge", [](Message* m) { Change<uint32_t>(m, kRuns + 4, UINT32_MAX); }},
    {"offset", [](Message* m) { Change<uint64_t>(m, kRuns + 8, 16 * kMiB - 4096); }},
    {"offset huge", [](Message* m) { Change<uint64_t>(m, kRuns + 8, UINT64_MAX - 4095); }},
    {"offset unaligned", [](Message* m) { Change<uint64_t>(m, kRuns + 8, 1); }},
    {"kind", [](Message* m) { Change<uint16_t>(m, 4, 0x8001); }},
    {"id", [](Message* m) { Change<uint64_t>(m, 8, 999'999); }},
    {"id 0", [](Message* m) { Change<uint64_t>(m, 8, 0); }},
};

}  // namespace

TEST_CASE("a get's reply that makes no sense ends the session, and nothing else") {
  LocalFixture f;
  f.daemon.AddChunk("m", Key("a"), 0, Bytes(10'000, 1));
  uint64_t sessions = 1;
  for (const Lie& lie : kGetLies) {
    INFO(lie.what);
    f.daemon.SetTamper([&](Kind kind, Message* message) {
      if (kind == Kind::kGet) lie.tell(message);
    });
    const absl::Status status = f.Acquire({Key("a")}).status();
    CAPTURE(status.ToString());
    // A reply to an unknown call leaves the real call without one, until the session ends.
    CHECK((absl::IsInternal(status) || absl::IsUnavailable(status)));
    f.daemon.SetTamper(nullptr);
    ++sessions;
    REQUIRE(Eventually([&] { return f.transport->stats().sessions_opened == sessions; }));
    CHECK(f.Acquire({Key("a")}).ok());
  }
}

TEST_CASE("replies to everything else are checked too") {
  LocalFixture f;
  f.daemon.AddChunk("m", Key("a"), 0, Bytes(10, 1));
  uint64_t sessions = 1;
  std::function<void(Message*)> tell;
  for (const int change : {-1, 1}) {
    for (const Kind lied : {Kind::kLookup, Kind::kTouch, Kind::kPrefetch, Kind::kDelete, Kind::kPut,
                            Kind::kServerInfo, Kind::kStaging, Kind::kOpenNamespace}) {
      CAPTURE(static_cast<int>(lied), change);
      std::atomic<int> lies{0};
      f.daemon.SetTamper([&](Kind kind, Message* message) {
        if (kind == lied && lies++ == 0) message->resize(message->size() + change);
      });
      const std::vector<std::byte> payload = Bytes(10, 2);
      (void)f.Lookup({Key("none")});
      for (int i = 0; i < 5; ++i) {
        (void)f.Wait<absl::StatusOr<uint64_t>>([&](auto done) {
          f.transport->Touch(f.ns, {Key("none")}, {}, Deadline(0), std::move(done));
        });
        (void)f.Wait<absl::StatusOr<PrefetchResult>>([&](auto done) {
          f.transport->Prefetch(f.ns, {Key("none")}, {}, Deadline(0), std::move(done));
        });
        (void)f.Wait<absl::StatusOr<uint64_t>>([&](auto done) {
          f.transport->Delete(f.ns, {Key("none")}, {}, Deadline(0), std::move(done));
        });
        (void)f.PutOne(Key("p"), payload);
        (void)f.Wait<absl::StatusOr<ServerInfo>>(
            [&](auto done) { f.transport->GetServerInfo(Deadline(0), std::move(done)); });
        (void)f.transport->OpenNamespace(f.spec, Deadline(0));
        if (lies > 0) break;
        REQUIRE(f.transport->WaitConnected(Deadline(10'000)));
      }
      CHECK(lies > 0);
      ++sessions;
      REQUIRE(Eventually([&] { return f.transport->stats().sessions_opened == sessions; }));
      f.daemon.SetTamper(nullptr);
      CHECK(f.Lookup({Key("a")}).ok());
    }
  }
}

TEST_CASE("a handshake that makes no sense is no session, and the next one is") {
  fakes::FakeLocalDaemon daemon;
  const size_t welcome = kBody;
  const Lie lies[] = {
      {"cut", [](Message* m) { m->pop_back(); }},
      {"version", [=](Message* m) { Change<uint32_t>(m, welcome, local::kVersion + 1); }},
      {"version 0", [=](Message* m) { Change<uint32_t>(m, welcome, 0); }},
      {"first_segment", [=](Message* m) { Change<uint32_t>(m, welcome + 4, UINT32_MAX); }},
      {"segment_bytes", [=](Message* m) { Change<uint64_t>(m, welcome + 48, 4096); }},
      {"segment_bytes odd", [=](Message* m) { Change<uint64_t>(m, welcome + 48, 4097); }},
      {"segments 0", [=](Message* m) { Change<uint32_t>(m, welcome + 56, 0); }},
      {"shared_segments", [=](Message* m) { Change<uint32_t>(m, welcome + 116, UINT32_MAX); }},
      {"progress_words", [=](Message* m) { Change<uint32_t>(m, welcome + 60, 4097); }},
  };
  static_assert(offsetof(local::Welcome, segment_bytes) == 48 &&
                offsetof(local::Welcome, segments) == 56 &&
                offsetof(local::Welcome, shared_segments) == 116);
  for (const Lie& lie : lies) {
    INFO(lie.what);
    daemon.SetTamper([&](Kind kind, Message* message) {
      if (kind == Kind::kHello) lie.tell(message);
    });
    LocalTransport transport({.socket = daemon.socket(), .backoff_min = Deadline(5)});
    const absl::Status why = transport.WaitFirstAttempt(Deadline(10'000));
    CAPTURE(why.ToString());
    CHECK((absl::IsInternal(why) || absl::IsUnimplemented(why)));
    daemon.SetTamper(nullptr);
    CHECK(transport.WaitConnected(Deadline(10'000)));
  }
  daemon.SetTamper([](Kind kind, Message* message) {
    if (kind == Kind::kSegments) Change<uint32_t>(message, sizeof(local::MessageHeader), 1);
  });
  LocalTransport transport({.socket = daemon.socket(), .backoff_min = Deadline(5)});
  CHECK(absl::IsInternal(transport.WaitFirstAttempt(Deadline(10'000))));
}

}  // namespace kvkeep::client
