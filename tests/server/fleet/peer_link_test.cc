#include "server/fleet/peer_link.h"

#include <catch2/catch.hpp>

#include "server/fleet/peer_wire.h"
#include "tests/fakes/pki.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"
#include "tests/fakes/shared_clock.h"
#include "tests/fakes/stored_page.h"
#include "tests/server/fleet/scripted_peer.h"
#include "tests/server/soon.h"

namespace kvkeep {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr ImageShape kSmallShape{.payload_bytes = 100'000, .tail_bytes = 0};

// A read, and what was told of it.
class TestRead {
 public:
  explicit TestRead(bool waits_if_busy = false)
      : memory_(kSmallShape.blocks().value() * kBlockBytes), waits_if_busy_(waits_if_busy) {}

  PeerRead request() {
    return {.request = {
                .id = ChunkId{CountedFrom<NamespaceDigest>(1), CountedFrom<ChunkKey>(2), PartId(0)},
                .shape = kSmallShape,
                .header = header_,
                .memory =
                    [this](uint64_t offset, uint64_t most) {
                      return std::span(memory_).subspan(
                          offset, std::min<uint64_t>(most, memory_.size() - offset));
                    },
                .header_done = [this](absl::Status status) { Tell(std::move(status)); },
                .piece_done =
                    [this](size_t, uint64_t bytes, absl::Status status) {
                      Tell(std::move(status));
                      left_ -= bytes;
                    }},
            .check_header = [this] { return checked; },
            .waits_if_busy = waits_if_busy_};
  }
  bool ended() const { return left_ == 0; }
  absl::Status status() const {
    MutexLock lock(&mu_);
    return status_;
  }
  absl::Status checked;  // what is said to the header page

 private:
  void Tell(absl::Status status) {
    MutexLock lock(&mu_);
    status_.Update(status);
  }

  std::array<std::byte, kHeaderBytes> header_{};
  std::vector<std::byte> memory_;
  const bool waits_if_busy_;
  std::atomic<uint64_t> left_{memory_.size() - kHeaderBytes};
  mutable Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

std::vector<std::string> WholeImage() {
  const uint64_t bytes = kSmallShape.used_bytes() - kHeaderBytes;
  return {EncodeFetchFrameHead({.header = std::string(kHeaderBytes, 'h'), .image_bytes = bytes}) +
          std::string(bytes, 'b')};
}

// A node and a peer that is scripted, with a link of one to the other. Time stands still for the
// link but for Advance.
class LinkedPeer {
 public:
  explicit LinkedPeer(PeerLinkOptions options = {}, const std::string& shown_name = "b.example")
      : ca_(dir_ / "", "ca") {
    AllowTls13Only().IgnoreError();
    const CertificateFiles theirs =
        ca_.Issue({.name = "b", .alt_names = "DNS:" + shown_name, .serial = 7});
    const CertificateFiles ours = ca_.Issue({.name = "a", .alt_names = "DNS:a.example"});
    identity = TlsIdentity::Load({.cert_file = ours.cert,
                                  .key_file = ours.key,
                                  .client_ca_file = ca_.cert_file(),
                                  .client_crl_file = ca_.Revoke({})})
                   .value();
    peer = std::make_unique<ScriptedPeer>(
        TlsIdentity::Load(
            {.cert_file = theirs.cert, .key_file = theirs.key, .client_ca_file = ca_.cert_file()})
            .value());
    options.name = "b.example";
    options.address = peer->address();
    options.node = "a.example";
    options.hello_within = seconds(60);  // of real time, on a machine that may be busy
    link = std::make_shared<PeerLink>(
        options, PeerLink::Parts{.identity = identity,
                                 .certificates = std::make_shared<ClientCertificates>(identity),
                                 .clock = &clock_,
                                 .random = &random_,
                                 .executor = &executor_});
  }
  ~LinkedPeer() {
    link->Stop();
    peer->Shutdown();
    CHECK(Soon([&] { return !link->busy(); }));
  }

  void Advance(milliseconds by) {
    clock_.Advance(by);
    link->Tick();
  }
  // Greets the peer and waits for its answer.
  bool ComesUp() {
    return Soon([&] {
      link->Tick();
      return link->reachable();
    });
  }
  std::string WhyDown() {
    link->Tick();
    CHECK(Soon([&] { return !link->snapshot().why.empty(); }));
    return link->snapshot().why;
  }
  void Revoke(const std::vector<long>& serials) {
    ca_.Revoke(serials);
    const uint64_t before = identity->current()->generation;
    CHECK(Soon([&] {
      identity->Reload();
      return identity->current()->generation > before;
    }));
  }
  absl::StatusOr<PeerSource::Found> Find() {
    std::atomic<bool> done{false};
    absl::StatusOr<PeerSource::Found> found;
    link->Find({ChunkId{CountedFrom<NamespaceDigest>(1), CountedFrom<ChunkKey>(2), PartId(0)}},
               clock_.Now() + seconds(60), [&](absl::StatusOr<PeerSource::Found> is) {
                 found = std::move(is);
                 done = true;
               });
    REQUIRE(Soon([&] { return done.load(); }));
    return found;
  }
  absl::StatusOr<OfferAnswer> Offer(size_t chunks) {
    std::atomic<bool> done{false};
    absl::StatusOr<OfferAnswer> answer;
    link->Offer(std::vector<OfferedChunk>(chunks, {ChunkId{}, kSmallShape}),
                clock_.Now() + seconds(60), [&](absl::StatusOr<OfferAnswer> is) {
                  answer = std::move(is);
                  done = true;
                });
    REQUIRE(Soon([&] { return done.load(); }));
    return answer;
  }
  void Start(TestRead& read) { link->Read(read.request()); }
  absl::Status Read() {
    TestRead read;
    Start(read);
    REQUIRE(Soon([&] { return read.ended(); }));
    return read.status();
  }
  bool Ends(TestRead& read) {
    return Soon([&] { return read.ended(); });
  }

  std::shared_ptr<TlsIdentity> identity;
  std::unique_ptr<ScriptedPeer> peer;
  std::shared_ptr<PeerLink> link;

 private:
  const ScratchDir dir_;
  const TestCa ca_;
  SharedClock clock_;
  ThreadPool executor_{"test", 1};
  SeededRandom random_{1};
};

ScriptedPeer::Script Fetching(ScriptedPeer::FetchAnswer answer) {
  ScriptedPeer::Script script;
  script.fetch = [answer = std::move(answer)] { return answer; };
  return script;
}

TEST_CASE("a peer that answers is asked and read from") {
  LinkedPeer two;
  CHECK(absl::IsUnavailable(two.Find().status()));
  REQUIRE(two.ComesUp());
  ScriptedPeer::Script script = Fetching({.frames = WholeImage(), .status = {}});
  script.find = [](const v1::FindRequest&, v1::FindResponse* response) {
    ToFindResponse({PeerChunk{kSmallShape, Tier::kG3}}, response);
    return grpc::Status::OK;
  };
  two.peer->Set(script);
  CHECK(two.Find().value() == PeerSource::Found{PeerChunk{kSmallShape, Tier::kG3}});
  CHECK(two.Read().ok());
  CHECK(Soon([&] { return two.link->snapshot().read_bytes > 0; }));  // once the call has ended
  const PeerLinkSnapshot snapshot = two.link->snapshot();
  CHECK(snapshot.up);
  CHECK(snapshot.finds == 1);
  CHECK(snapshot.reads == 1);
  CHECK(snapshot.read_bytes >= kSmallShape.payload_bytes);
}

TEST_CASE("an answer that cannot be used is an error, and the link stays up") {
  LinkedPeer two;
  REQUIRE(two.ComesUp());
  CHECK(absl::IsInvalidArgument(two.Find().status()));  // for no chunk at all
  for (const std::string& frame : {std::string("no frame"), WholeImage()[0] + "more"}) {
    two.peer->Set(Fetching({.frames = {frame}, .status = {}}));
    CHECK(absl::IsDataLoss(two.Read()));
  }
  two.peer->Set(Fetching({.frames = {}, .status = {}}));
  CHECK(absl::IsDataLoss(two.Read()));  // it ended without an image
  CHECK(two.link->reachable());
  CHECK(Soon([&] { return two.link->snapshot().failed_reads == 3; }));
}

TEST_CASE("a header page that is not taken ends the call, and the rest is not sent") {
  LinkedPeer two;
  REQUIRE(two.ComesUp());
  two.peer->Set(Fetching({.frames = WholeImage(), .status = {}, .holds = true}));
  TestRead read;
  read.checked = absl::DataLossError("of another chunk");
  two.Start(read);
  REQUIRE(two.Ends(read));
  CHECK(read.status() == read.checked);
  CHECK(Soon([&] { return two.peer->cancelled() == 1; }));
  CHECK(two.link->reachable());
}

TEST_CASE("another name, CA or version is no peer, and the reason is kept in a safe form") {
  SECTION("another name") {
    LinkedPeer two({}, "c.example");
    CHECK_FALSE(two.WhyDown().empty());
    CHECK_FALSE(two.link->reachable());
    CHECK(two.peer->hellos() == 0);
  }
  SECTION("a version that nobody offered") {
    LinkedPeer two;
    ScriptedPeer::Script script;
    script.hello = [](const v1::PeerHelloRequest& request, v1::PeerHelloResponse* response) {
      response->set_version(request.max_version() + 1);
      return grpc::Status::OK;
    };
    two.peer->Set(script);
    CHECK_THAT(two.WhyDown(), Contains("a version that nobody offered"));
    CHECK_FALSE(two.link->reachable());
  }
  SECTION("an error with bytes of its own choice") {
    LinkedPeer two;
    ScriptedPeer::Script script;
    script.hello = [](const v1::PeerHelloRequest&, v1::PeerHelloResponse*) {
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                          "\x1b[2J" + std::string(5'000, 'x'));
    };
    two.peer->Set(script);
    const std::string why = two.WhyDown();
    CHECK(why.find('\x1b') == std::string::npos);
    CHECK(why.size() < 1'000);
  }
}

TEST_CASE(
    "a peer whose certificate is revoked is left at its next Hello, and not before it holds") {
  LinkedPeer two;
  REQUIRE(two.ComesUp());
  two.Revoke({7});
  two.Advance(seconds(1));
  REQUIRE(Soon([&] { return !two.link->reachable(); }));
  CHECK_THAT(two.link->snapshot().why, Contains("revoked"));
  CHECK(absl::IsUnavailable(two.Find().status()));
  const int before = two.peer->hellos();
  two.Advance(seconds(40));
  REQUIRE(Soon([&] { return two.peer->hellos() > before && !two.link->busy(); }));
  CHECK_FALSE(two.link->reachable());
}

TEST_CASE("what a peer does not permit is counted and kept, and the link stays up") {
  LinkedPeer two;
  REQUIRE(two.ComesUp());
  ScriptedPeer::Script script;
  script.find = [](const v1::FindRequest&, v1::FindResponse*) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "shares no chunks of this tenant");
  };
  two.peer->Set(script);
  CHECK(absl::IsPermissionDenied(two.Find().status()));
  CHECK(two.link->reachable());
  CHECK(two.link->snapshot().refusals == 1);
  CHECK(two.link->snapshot().refusal == "shares no chunks of this tenant");
}

TEST_CASE("a link that nobody uses rests, and a question wakes it") {
  LinkedPeer two({.rests_after = seconds(60), .hello_at_rest = seconds(15)});
  REQUIRE(two.ComesUp());
  const auto hellos_in = [&](int seconds_count) {
    const int before = two.peer->hellos();
    for (int i = 0; i < seconds_count; ++i) {
      two.Advance(seconds(1));
      REQUIRE(Soon([&] { return !two.link->busy(); }));
    }
    return two.peer->hellos() - before;
  };
  CHECK(hellos_in(50) == 50);
  hellos_in(15);
  CHECK(hellos_in(60) == 4);
  CHECK(two.link->reachable());
  two.Find().IgnoreError();
  CHECK(hellos_in(10) == 10);
}

TEST_CASE("a read of a busy peer fails at once, or waits for other reads of ours to end") {
  LinkedPeer two;
  REQUIRE(two.ComesUp());
  two.peer->Set(Fetching({.frames = WholeImage(), .status = {}, .holds = true}));
  TestRead first;
  two.Start(first);
  REQUIRE(Soon([&] { return two.peer->frames_sent() == 1; }));
  two.peer->Set(Fetching(
      {.frames = {}, .status = {grpc::StatusCode::RESOURCE_EXHAUSTED, "this node is busy"}}));
  CHECK(absl::IsResourceExhausted(two.Read()));
  TestRead waits(true);
  two.Start(waits);
  REQUIRE(Soon([&] { return two.peer->fetches() == 3 && two.link->snapshot().waiting == 1; }));
  two.peer->Set(Fetching({.frames = WholeImage(), .status = {}}));
  CHECK_FALSE(waits.ended());
  two.peer->Release();
  REQUIRE(two.Ends(waits));
  CHECK(waits.status().ok());
  CHECK(first.status().ok());
  CHECK(two.peer->fetches() == 4);
}

TEST_CASE("an offer names this node, and an answer that cannot be used is an error") {
  LinkedPeer two;
  REQUIRE(two.ComesUp());
  ScriptedPeer::Script script;
  std::string node;
  script.offer = [&node](const v1::OfferRequest& request, v1::OfferResponse* response) {
    node = request.node();
    response->set_ends(std::string("\2\0", 2));
    return grpc::Status::OK;
  };
  two.peer->Set(script);
  CHECK(two.Offer(2).value().chunks == std::vector{OfferEnd::kTaken, OfferEnd::kRefused});
  CHECK(node == "a.example");
  CHECK_FALSE(two.Offer(3).ok());
  script.offer = [](const v1::OfferRequest&, v1::OfferResponse*) {
    return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "an older version");
  };
  two.peer->Set(script);
  CHECK(absl::IsUnimplemented(two.Offer(1).status()));
  CHECK(two.link->reachable());
  two.link->Stop();
  CHECK(absl::IsUnavailable(two.Offer(1).status()));
}

TEST_CASE("a peer that is down is greeted soon where somebody needs it") {
  LinkedPeer two;
  ScriptedPeer::Script script;
  script.hello = [](const v1::PeerHelloRequest&, v1::PeerHelloResponse*) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "this node starts");
  };
  two.peer->Set(script);
  CHECK_FALSE(two.WhyDown().empty());
  two.peer->Set({});
  two.Advance(milliseconds(1));  // not its turn yet
  CHECK(two.peer->hellos() == 1);
  two.link->GreetSoon();
  CHECK(two.ComesUp());
}

TEST_CASE("a peer that ends takes down all work on its link at once") {
  LinkedPeer two({.most_reads = 1});
  REQUIRE(two.ComesUp());
  two.peer->Set(Fetching({.frames = {}, .status = {}, .holds = true}));
  TestRead under_way, in_line;
  two.Start(under_way);
  two.Start(in_line);
  REQUIRE(Soon([&] { return two.peer->fetches() == 1; }));
  two.peer->Shutdown();
  REQUIRE(two.Ends(under_way));
  REQUIRE(two.Ends(in_line));
  CHECK(absl::IsUnavailable(under_way.status()));
  CHECK(absl::IsUnavailable(in_line.status()));
  CHECK_FALSE(two.link->reachable());
  CHECK(two.link->snapshot().downs == 1);
}

TEST_CASE("a read that gets nothing is given up alone while the peer says other things") {
  LinkedPeer two;
  REQUIRE(two.ComesUp());
  ScriptedPeer::Script script = Fetching({.frames = {}, .status = {}, .holds = true});
  const auto answers = std::make_shared<std::atomic<uint64_t>>(100);
  script.hello = [answers](const v1::PeerHelloRequest& request, v1::PeerHelloResponse* response) {
    response->set_version(request.max_version());
    response->set_incarnation(++*answers);
    return grpc::Status::OK;
  };
  two.peer->Set(script);
  TestRead read;
  two.Start(read);
  for (uint64_t i = 101; i <= 104; ++i) {
    two.Advance(seconds(1));
    REQUIRE(Soon([&] { return two.link->snapshot().incarnation == i; }));
  }
  REQUIRE(two.Ends(read));
  CHECK(absl::IsUnavailable(read.status()));
  CHECK_THAT(std::string(read.status().message()), Contains("sent nothing of the image"));
  CHECK(two.link->reachable());
}

TEST_CASE("a peer that says nothing at all is down, with all that it was asked for") {
  LinkedPeer two;
  REQUIRE(two.ComesUp());
  ScriptedPeer::Script script = Fetching({.frames = {}, .status = {}, .holds = true});
  script.hello_hangs = true;
  two.peer->Set(script);
  TestRead read;
  two.Start(read);
  for (int i = 0; i < 4; ++i) two.Advance(seconds(1));
  REQUIRE(two.Ends(read));
  CHECK(absl::IsUnavailable(read.status()));
  CHECK_FALSE(two.link->reachable());
  CHECK_THAT(two.link->snapshot().why, Contains("sends nothing any more"));
}

ScriptedPeer::Script Summarising(uint64_t version, size_t bytes) {
  ScriptedPeer::Script script;
  script.summary = [=](const v1::SummaryRequest& request, v1::SummaryResponse* response) {
    response->set_version(version);
    if (request.version() != version) response->set_bits(std::string(bytes, '\xff'));
    return grpc::Status::OK;
  };
  return script;
}

TEST_CASE("a link has the newest summary of its peer, if one is wanted") {
  LinkedPeer two({.summary_every = seconds(10)});
  two.peer->Set(Summarising(5, 64));
  REQUIRE(two.ComesUp());
  two.Advance(seconds(1));
  CHECK(two.peer->summaries() == 0);
  CHECK(two.link->summary() == nullptr);

  two.link->WantSummary(4096);
  two.Advance(seconds(1));
  REQUIRE(Soon([&] { return two.link->summary() != nullptr; }));
  CHECK(two.link->summary()->MayHave(1));
  two.Advance(seconds(9));  // not its turn yet
  CHECK(two.peer->summaries() == 1);
  two.Advance(seconds(1));
  REQUIRE(Soon([&] { return two.peer->summaries() == 2; }));
  REQUIRE(Soon([&] { return !two.link->busy(); }));
  CHECK(two.link->snapshot().summaries == 1);  // the second one said that nothing is new
  CHECK(two.link->summary() != nullptr);

  two.peer->Set(Summarising(6, 128));
  two.Advance(seconds(10));
  REQUIRE(Soon([&] { return two.link->snapshot().summaries == 2; }));
  CHECK(two.link->summary()->bits().size() == 128);
  two.link->WantSummary(0);
  CHECK(two.link->summary() == nullptr);
}

TEST_CASE("a summary that is not wanted any more when it comes is no failure") {
  LinkedPeer two;
  ScriptedPeer::Script script;
  script.summary = [&two](const v1::SummaryRequest&, v1::SummaryResponse* response) {
    two.link->WantSummary(0);
    response->set_version(5);
    response->set_bits(std::string(64, '\xff'));
    return grpc::Status::OK;
  };
  two.peer->Set(script);
  REQUIRE(two.ComesUp());
  two.link->WantSummary(4096);
  two.Advance(milliseconds(1));
  REQUIRE(Soon([&] { return two.peer->summaries() == 1 && !two.link->busy(); }));
  CHECK(two.link->summary() == nullptr);
  CHECK(two.link->snapshot().summaries == 0);
  CHECK(two.link->snapshot().failed_summaries == 0);
}

TEST_CASE("a peer that makes its first summary is asked again soon") {
  LinkedPeer two;
  two.link->WantSummary(4096);
  REQUIRE(two.ComesUp());
  two.Advance(milliseconds(1));
  REQUIRE(Soon([&] { return two.peer->summaries() == 1 && !two.link->busy(); }));
  two.peer->Set(Summarising(5, 64));
  two.Advance(seconds(1));
  CHECK(Soon([&] { return two.link->summary() != nullptr; }));
}

TEST_CASE("a summary that is no summary, or too long, is not kept") {
  LinkedPeer two;
  REQUIRE(two.ComesUp());
  two.link->WantSummary(4096);  // not before, so that no question is under way
  uint64_t failed = 0;
  for (const size_t bytes : {63, 2 * 4096 + 64}) {
    two.peer->Set(Summarising(5, bytes));
    two.Advance(seconds(600));  // it is seldom asked again
    REQUIRE(Soon([&] { return two.link->snapshot().failed_summaries == failed + 1; }));
    ++failed;
    CHECK(two.link->summary() == nullptr);
  }
  two.peer->Set(Summarising(5, 2 * 4096));
  two.Advance(seconds(600));  // it is seldom asked again
  CHECK(Soon([&] { return two.link->summary() != nullptr; }));
}

TEST_CASE("a peer of an older release has no summary, and is seldom asked again") {
  LinkedPeer two({.summary_every = seconds(10), .summary_refused = seconds(600)});
  two.link->WantSummary(4096);
  ScriptedPeer::Script script;
  script.summary = [](const v1::SummaryRequest&, v1::SummaryResponse*) {
    return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "");
  };
  two.peer->Set(script);
  REQUIRE(two.ComesUp());
  two.Advance(milliseconds(1));
  REQUIRE(Soon([&] { return two.link->snapshot().failed_summaries == 1; }));
  REQUIRE(Soon([&] { return !two.link->busy(); }));
  for (int i = 0; i < 10; ++i) two.Advance(seconds(10));
  CHECK(two.peer->summaries() == 1);
  CHECK(two.link->reachable());
  two.Advance(seconds(500));
  CHECK(Soon([&] { return two.peer->summaries() == 2; }));
}

TEST_CASE("what a peer said before it started anew counts no more") {
  LinkedPeer two;
  two.link->WantSummary(4096);
  ScriptedPeer::Script script = Summarising(5, 64);
  two.peer->Set(script);
  REQUIRE(two.ComesUp());
  two.Advance(milliseconds(1));
  REQUIRE(Soon([&] { return two.link->summary() != nullptr; }));
  script.hello = [](const v1::PeerHelloRequest& request, v1::PeerHelloResponse* response) {
    response->set_version(request.max_version());
    response->set_incarnation(99);
    return grpc::Status::OK;
  };
  script.summary = [](const v1::SummaryRequest&, v1::SummaryResponse*) {
    return grpc::Status::OK;  // it has none yet
  };
  two.peer->Set(script);
  two.Advance(seconds(1));
  REQUIRE(Soon([&] { return two.link->snapshot().incarnation == 99; }));
  CHECK(two.link->summary() == nullptr);
}

TEST_CASE("asking for summaries does not keep a link awake") {
  LinkedPeer two({.rests_after = seconds(60), .hello_at_rest = seconds(15)});
  two.link->WantSummary(4096);
  two.peer->Set(Summarising(5, 64));
  REQUIRE(two.ComesUp());
  for (int i = 0; i < 120; ++i) {
    two.Advance(seconds(1));
    REQUIRE(Soon([&] { return !two.link->busy(); }));
  }
  const int before = two.peer->hellos();
  for (int i = 0; i < 30; ++i) {
    two.Advance(seconds(1));
    REQUIRE(Soon([&] { return !two.link->busy(); }));
  }
  CHECK(two.peer->hellos() <= before + 3);
}

TEST_CASE("a link that is stopped answers all that is under way") {
  LinkedPeer two({.most_reads = 1});
  REQUIRE(two.ComesUp());
  two.peer->Set(Fetching({.frames = WholeImage(), .status = {}, .holds = true}));
  TestRead half_sent, in_line;
  two.Start(half_sent);
  two.Start(in_line);
  two.link->Stop();
  REQUIRE(two.Ends(half_sent));
  REQUIRE(two.Ends(in_line));
  CHECK(absl::IsUnavailable(in_line.status()));
  CHECK(absl::IsUnavailable(two.Find().status()));
}

}  // namespace
}  // namespace kvkeep
