// Sessions of the local path: deadlines, releases, reconnects, revocation, refusals.
#include "tests/client/local/fixture.h"

namespace kvkeep::client {

using local::Kind;

TEST_CASE("every call ends by its deadline, and a lease in a late reply is given back") {
  LocalFixture f;
  f.daemon.AddChunk("m", Key("a"), 0, Bytes(10, 1));
  f.daemon.script.hold = static_cast<uint16_t>(Kind::kGet);
  const auto began = std::chrono::steady_clock::now();
  auto late = f.Lookup({Key("a")}, {.lease = LeaseMode::kLeadingRun, .deadline = Deadline(50)});
  CHECK(absl::IsDeadlineExceeded(late.status()));
  CHECK(absl::IsDeadlineExceeded(f.Acquire({Key("a")}, {.deadline = Deadline(50)}).status()));
  CHECK(f.GetOne(Key("a"), {.deadline = Deadline(50)}) == GetStatus::kUnfinished);
  CHECK(absl::IsDeadlineExceeded(f.last));
  std::atomic<bool> told{false};
  f.transport->Acquire(f.ns, f.spec, {Key("a")}, {.deadline = Deadline(50)},
                       [&](auto acquired) { told = absl::IsDeadlineExceeded(acquired.status()); });
  CHECK(Eventually([&] { return told.load(); }));
  CHECK(Millis(began) >= 200);
  CHECK(Millis(began) < 9'000);
  CHECK(f.daemon.released().empty());
  REQUIRE(Eventually([&] { return f.daemon.requests(Kind::kGet) == 4; }));
  f.daemon.Let();
  CHECK(Eventually([&] { return f.daemon.released().size() == 4; }));
  CHECK(f.transport->stats().leases_reclaimed == 4);
  CHECK(f.Lookup({Key("a")}).ok());  // the session goes on
  CHECK(f.transport->stats().sessions_opened == 1);
}

TEST_CASE("releases go with the next request, or alone soon after") {
  LocalFixture f;
  f.daemon.AddChunk("m", Key("a"), 0, Bytes(10, 1));
  for (int i = 0; i < 200; ++i) REQUIRE(f.Acquire({Key("a")}).ok());
  CHECK(Eventually([&] { return f.daemon.released().size() == 200; }));
  // Some found no company while this thread was off the processor.
  CHECK(f.daemon.requests(Kind::kRelease) < 100);
  const int before = f.daemon.requests(Kind::kRelease);
  auto last = f.Acquire({Key("a")});
  REQUIRE(f.Release(std::move(last->lease)).ok());
  CHECK(f.daemon.released().size() == 201);  // at once: it has waited for the answer
  CHECK(f.daemon.requests(Kind::kRelease) == before + 1);
}

TEST_CASE("a daemon that came back with its arena is found again, mappings and all") {
  LocalFixture f;
  const std::vector<std::byte> payload = Bytes(100, 1);
  f.daemon.AddChunk("m", Key("a"), 0, payload);
  auto old = f.Acquire({Key("a")});
  REQUIRE(old.ok());
  const std::byte* const before = old->chunks[0].contiguous().data();
  f.daemon.Stop();
  CHECK_FALSE(old->valid());
  CHECK(Eventually([&] { return absl::IsUnavailable(f.Lookup({Key("a")}).status()); }));
  f.daemon.Start();
  REQUIRE(Eventually([&] { return f.transport->WaitConnected(Deadline(100)); }));
  auto fresh = f.Acquire({Key("a")});
  REQUIRE(fresh.ok());
  CHECK(fresh->chunks[0].contiguous().data() == before);  // the mapping was kept
  CHECK(fresh->valid());
  CHECK_FALSE(old->valid());
  CHECK_FALSE(old->lease.alive());
  old->lease.Release();                                 // its number may be another lease's by now
  CHECK(old->chunks[0].contiguous()[0] == payload[0]);  // mapped while it is held

  f.daemon.Stop();
  f.daemon.NewArena();
  f.daemon.AddChunk("m", Key("a"), 0, payload);
  f.daemon.Start();
  REQUIRE(Eventually([&] { return f.transport->stats().sessions_opened == 3; }));
  auto other = f.Acquire({Key("a")});
  REQUIRE(other.ok());
  CHECK(other->chunks[0].contiguous().data() != before);
  CHECK(other->Verify(0));
}

TEST_CASE("who waits for a connection waits too while the session before is still ending") {
  LocalFixture f;
  f.daemon.script.hold = static_cast<uint16_t>(Kind::kOpenNamespace);
  NamespaceSpec another = f.spec;
  another.model = "another";
  // The session is broken here; its own thread has yet to end it.
  REQUIRE(f.transport->OpenNamespace(another, Deadline(20)).ok());
  f.daemon.script.hold = 0;
  CHECK(f.transport->WaitConnected(Deadline(10'000)));
  CHECK(f.transport->stats().sessions_opened == 2);
}

TEST_CASE("a revoked session's bytes are void, and a new session follows") {
  LocalFixture f;
  f.daemon.AddChunk("m", Key("a"), 0, Bytes(100, 1));
  auto got = f.Acquire({Key("a")});
  REQUIRE(got.ok());
  CHECK(got->valid());
  f.daemon.Revoke("stopped for too long");
  CHECK_FALSE(got->valid());  // by the word, before any message was read
  CHECK(Eventually([&] { return f.transport->stats().sessions_opened >= 2; }));
}

TEST_CASE("pings are answered while the application is busy") {
  LocalFixture f;
  for (int i = 0; i < 5; ++i) {
    f.daemon.Ping();
    CHECK(Eventually([&] { return f.daemon.pongs == i + 1; }));
  }
}

TEST_CASE("a refusal, an absent socket and a silent daemon are told apart") {
  fakes::FakeLocalDaemon daemon;
  daemon.script.refuse = true;
  {
    LocalTransport refused({.socket = daemon.socket()});
    const absl::Status why = refused.WaitFirstAttempt(Deadline(60'000));
    CHECK(absl::IsPermissionDenied(why));
    CHECK(why.message().find("allowed_uids") != absl::string_view::npos);
  }
  daemon.script.refuse = false;
  daemon.script.hang_hello = true;
  {
    LocalTransport silent({.socket = daemon.socket(), .default_deadline = Deadline(100)});
    CHECK(absl::IsUnavailable(silent.WaitFirstAttempt(Deadline(60'000))));
  }
  daemon.Stop();
  LocalTransport dead({.socket = daemon.socket()});
  CHECK(absl::IsUnavailable(dead.WaitFirstAttempt(Deadline(60'000))));
  daemon.RemoveSocket();
  LocalTransport absent({.socket = daemon.socket()});
  CHECK(absl::IsNotFound(absent.WaitFirstAttempt(Deadline(60'000))));
}

TEST_CASE("a namespace that the daemon refuses is an error, and the session goes on") {
  LocalFixture f;
  CHECK(absl::IsInvalidArgument(
      f.transport->OpenNamespace({.model = "refused", .tokens_per_chunk = 1}, Deadline(0))
          .status()));
  CHECK(f.Lookup({Key("a")}).ok());
}

TEST_CASE("destroying the transport ends its calls, each once") {
  std::atomic<int> cancelled{0};
  {
    LocalFixture f;
    f.daemon.script.hold = static_cast<uint16_t>(Kind::kLookup);
    for (int i = 0; i < 100; ++i) {
      f.transport->Lookup(f.ns, f.spec, {Key("a")}, {},
                          [&](auto found) { cancelled += absl::IsCancelled(found.status()); });
    }
    f.transport.reset();
    CHECK(cancelled == 100);
  }
}

}  // namespace kvkeep::client
