// The objects of a peer, each without the peer: which one answers when, and what ends together.
#include <catch2/catch.hpp>

#include "server/local/peer_gpu.h"
#include "server/local/peer_keys.h"
#include "server/local/peer_memory.h"
#include "server/local/peer_puts.h"
#include "tests/server/local/gpu_tester.h"

namespace kvkeep {
namespace {

using local::Kind;

// A session over the store of a PeerTester that has no peer of its own.
struct BareSession {
  explicit BareSession(PeerTester* tester, PeerIdentity identity = {.peer = "bare"})
      : t(*tester),
        replies(std::make_shared<PeerReplies>(t.context, identity.peer, &sink)),
        session(std::make_shared<PeerSession>(t.context, std::move(identity), replies)) {}
  ~BareSession() { session->End(); }

  local::Message Message(Kind kind, std::vector<std::byte> of) {
    body = std::move(of);
    return {.kind = static_cast<uint16_t>(kind), .id = ++id, .body = body};
  }
  absl::Status Hello() { return session->Open(Message(Kind::kHello, HelloBody("bare"))); }
  // Sends Hello, and opens the namespace of PeerTester; no earlier message is left.
  void Open() {
    REQUIRE(Hello().ok());
    REQUIRE(session->OpenNamespace(Message(Kind::kOpenNamespace, NamespaceBody())).ok());
    ns.bytes = sink.sent.back().As<local::NamespaceReply>().digest;
    sink.sent.clear();
  }
  SentMessage Take() {
    REQUIRE_FALSE(sink.sent.empty());
    SentMessage first = std::move(sink.sent.front());
    sink.sent.pop_front();
    return first;
  }

  PeerTester& t;
  FakeSink sink;
  std::shared_ptr<PeerReplies> replies;
  std::shared_ptr<PeerSession> session;
  NamespaceDigest ns;
  std::vector<std::byte> body;
  uint64_t id = 0;
};

}  // namespace

TEST_CASE("replies: a reply has its head, a bare message has none, an error is counted") {
  PeerTester t;
  BareSession bare(&t);
  bare.replies->Start(Kind::kTouch, 7).Append(local::CountReply{.chunks = 3});
  bare.replies->Send();
  CHECK(bare.Take().As<local::CountReply>().chunks == 3);
  bare.replies->StartBare(Kind::kPutCopied, 8);
  bare.replies->Send();
  SentMessage notice = bare.Take();
  CHECK(notice.kind == static_cast<uint16_t>(Kind::kPutCopied));
  CHECK(notice.id == 8);
  bare.replies->SendError(Kind::kTouch, 9, absl::NotFoundError("none"));
  CHECK(absl::IsNotFound(bare.Take().status));
  CHECK(t.counters.errors == 1);
  bare.replies->SendEvent(Kind::kRevoked, "why");
  CHECK(bare.sink.events.size() == 1);
}

TEST_CASE("session: it opens once, is revoked or ended, and tells which it is") {
  PeerTester t;
  BareSession bare(&t);
  CHECK(bare.session->fresh());
  bare.Open();
  CHECK(bare.session->open());
  CHECK(bare.session->leases().empty());
  CHECK(t.store().snapshot().sessions.size() == 1);
  SECTION("revoked, and ended then") {
    bare.session->Revoke();
    CHECK(bare.session->revoked());
    CHECK(t.store().snapshot().sessions.size() == 0);
    bare.session->End();
  }
  SECTION("ended, twice") {
    bare.session->End();
    bare.session->End();
  }
  CHECK(bare.session->ended());
  t.Settle();
  CHECK(t.store().snapshot().sessions.size() == 0);
}

TEST_CASE("session: a Hello that is refused opens nothing") {
  PeerTester t;
  BareSession bare(&t, {.peer = "bare", .refusal = absl::ResourceExhaustedError("full")});
  CHECK(absl::IsResourceExhausted(bare.Hello()));
  CHECK(bare.session->fresh());
  CHECK(bare.sink.sent.empty());
}

TEST_CASE("session: it knows its namespaces alone, and holds memory for what is answered later") {
  PeerTester t;
  const auto messages = std::make_shared<MessageAccount>(kMiB);
  BareSession bare(&t, {.peer = "bare", .messages = messages});
  CHECK(absl::IsFailedPrecondition(bare.session->PartsOf(bare.ns).status()));
  bare.Open();
  CHECK(*bare.session->PartsOf(bare.ns) == 4);
  CHECK(bare.session->LargestChunk() == 0);  // its sizes vary
  {
    const absl::StatusOr<MessageHold> hold = bare.session->HoldFor(1000);
    REQUIRE(hold.ok());
    CHECK(messages->bytes == 3 * 1000 + kKiB);
    CHECK(absl::IsResourceExhausted(bare.session->HoldFor(kMiB).status()));
  }
  CHECK(messages->bytes == 0);
}

TEST_CASE("keys: most are answered at once, a delete once a kill could not bring it back") {
  PeerTester t;
  t.Open();
  t.PutPayload(1, MakePayload(1, 1, 5000));
  BareSession bare(&t);
  bare.Open();
  const auto keys = std::make_shared<PeerKeys>(t.context, bare.session, bare.replies);
  const auto serve = [&](Kind kind) {
    return keys->Serve(bare.Message(kind, t.KeysBody({1}, LeaseMode::kNone)));
  };
  CHECK(*serve(Kind::kLookup) == PeerKeys::Answered::kNow);
  CHECK(bare.sink.sent.size() == 1);
  bare.sink.sent.clear();
  CHECK(*serve(Kind::kDelete) == PeerKeys::Answered::kLater);
  CHECK(keys->keys() == 1);
  CHECK(keys->in_flight() == 1);
  CHECK(bare.sink.sent.empty());
  SECTION("the connection stays") {
    t.RunAll();
    t.Settle();
    CHECK(bare.Take().As<local::CountReply>().chunks == 1);
  }
  SECTION("the connection ends first") {
    keys->End();
    t.RunAll();
    t.Settle();
    CHECK(bare.sink.sent.empty());
  }
  CHECK(keys->in_flight() == 0);
}

TEST_CASE("memory: what is made for a connection that ended is given back, unanswered") {
  PeerTester t;
  BareSession bare(&t);
  bare.Open();
  auto memory = std::make_shared<PeerMemory>(t.context, bare.session, bare.replies);
  const local::StagingRequest request{.bytes = kMiB};
  const auto bytes = std::as_bytes(std::span(&request, 1));
  REQUIRE(memory->Staging(bare.Message(Kind::kStaging, {bytes.begin(), bytes.end()})).ok());
  SECTION("ended") { bare.session->End(); }
  SECTION("gone") { memory.reset(); }
  SECTION("neither") {
    t.RunAll();
    CHECK(bare.Take().As<local::StagingReply>().bytes == kMiB);
    CHECK(memory->regions().staging()->bytes() == kMiB);
    memory.reset();
  }
  t.RunAll();
  CHECK(bare.sink.sent.empty());
  CHECK(t.counters.staging_bytes == 0);
}

TEST_CASE("gpu: a registration that ends after its session is given back, unanswered") {
  GpuTester t;
  BareSession bare(&t);
  bare.Open();
  const auto gpu = std::make_shared<PeerGpu>(t.context, bare.session, bare.replies);
  const auto request =
      GpuTester::Registration(t.device().Allocate(std::vector<std::byte>(kMiB)), kMiB);
  const auto bytes = std::as_bytes(std::span(&request, 1));
  local::Message message = bare.Message(Kind::kRegisterGpuMemory, {bytes.begin(), bytes.end()});
  REQUIRE(gpu->Register(message).ok());
  SECTION("revoked") {
    gpu->Cancel();
    bare.session->Revoke();
    t.RunAll();
    CHECK(absl::IsFailedPrecondition(bare.Take().status));
  }
  SECTION("ended") {
    gpu->Cancel();
    bare.session->End();
    gpu->End();
    t.RunAll();
  }
  CHECK(bare.sink.sent.empty());
  CHECK(t.device().stats().registrations == 0);
}

namespace {

// Puts of one session, each chunk of which takes all the space that sessions may reserve.
struct SessionPuts : BareSession {
  explicit SessionPuts(PeerTester* tester) : BareSession(tester) {
    Open();
    memory = std::make_shared<PeerMemory>(t.context, session, replies);
    puts = std::make_shared<PeerPuts>(t.context, session, replies);
    const local::StagingRequest request{.bytes = 2 * kMiB};
    const auto bytes = std::as_bytes(std::span(&request, 1));
    REQUIRE(memory->Staging(Message(Kind::kStaging, {bytes.begin(), bytes.end()})).ok());
    t.RunAll();
    sink.sent.clear();
  }
  void Put(uint64_t name) {
    const local::Message message =
        Message(Kind::kPut, PutBody(ns, {{.name = name, .bytes = 2 * kMiB - 8192}}));
    absl::StatusOr<PutPlan> plan =
        PutPlan::Parse(Kind::kPut, message.body, t.context->limits, memory->regions(), gpu);
    REQUIRE(plan.ok());
    REQUIRE(puts->Start(message, *std::move(plan)).ok());
  }

  SessionGpu gpu{t.context, nullptr};
  std::shared_ptr<PeerMemory> memory;
  std::shared_ptr<PeerPuts> puts;
};

WorldOptions SpaceForOne() {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = 2 * kMiB;
  return options;
}

}  // namespace

TEST_CASE("puts: one that waits for another session's goes on when that one ends") {
  PeerTester t(SpaceForOne());
  SessionPuts first(&t), second(&t), third(&t);
  first.Put(1);
  second.Put(2);
  third.Put(3);
  CHECK(t.counters.waited_puts == 2);
  SECTION("answered") { t.RunAll(); }
  SECTION("the connection ends") {
    first.puts->Cancel();
    first.session->End();
    first.puts->End();
    second.puts->End();  // it leaves the line
    t.RunAll();
    third.puts->OnTick(MonotonicTime(0));
    t.RunAll();
    CHECK(first.sink.sent.empty());
    CHECK(second.sink.sent.empty());
  }
  CHECK(third.puts->in_flight() == 0);
  CHECK(ReadAnswers(third.Take()) == "stored");
}

TEST_CASE("puts: what still waits when the session is revoked is refused") {
  PeerTester t(SpaceForOne());
  SessionPuts first(&t), second(&t);
  first.Put(1);
  second.Put(2);
  second.puts->Cancel();
  second.session->Revoke();
  second.puts->Advance();
  t.RunAll();
  CHECK(absl::IsFailedPrecondition(second.Take().status));
  CHECK(second.puts->in_flight() == 0);
  CHECK(ReadAnswers(first.Take()) == "stored");
}

}  // namespace kvkeep
