// Puts with an absolute deadline: bytes read later are never stored, so that the client may write
// its memory again by then, whatever the daemon does.
#include <absl/strings/match.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/server/local/gpu_tester.h"

namespace kvkeep {
namespace {

using local::Kind;

constexpr MonotonicTime kSoon = std::chrono::seconds(1);
constexpr const char* kNotRead = "rejected 7: not read by the put's deadline";

// A session, and its puts until a second from now.
class UntilTester : public GpuTester {
 public:
  explicit UntilTester(const WorldOptions& options = PeerWorld()) : GpuTester(options) { Open(); }

  uint64_t deadline_ns() { return static_cast<uint64_t>((world.clock().Now() + kSoon).count()); }
  uint64_t TellUntil(const std::vector<TestChunk>& chunks) {
    return Tell(Kind::kPutUntil, PutUntilBody(ns, chunks, deadline_ns()));
  }
  uint64_t TellGpuUntil(const std::vector<TestGpuChunk>& chunks) {
    return Tell(Kind::kPutFromGpuUntil, GpuPutUntilBody(ns, chunks, deadline_ns()));
  }
  void Pass(MonotonicTime time) { world.clock().Advance(time); }
  size_t told_copied() const {
    return static_cast<size_t>(std::count_if(
        sink.sent.begin(), sink.sent.end(),
        [](const SentMessage& sent) { return sent.kind == static_cast<uint16_t>(Kind::kPutCopied);
        }));
  }
};

}  // namespace

TEST_CASE("a put until a time is stored when it was read by then") {
  UntilTester t;
  const auto payload = MakePayload(1, 1, 3 * kMiB);
  std::copy(payload.begin(), payload.end(), t.Stage(4 * kMiB).begin());
  const uint64_t id = t.TellUntil({{.name = 1, .bytes = 3 * kMiB}});
  t.Pass(kSoon);  // the deadline itself counts as reached
  t.RunAll();
  CHECK(ReadAnswers(t.TakeReply(id)) == "stored");
  CHECK(t.Look(1) == payload);
}

TEST_CASE("what is read after the put's time is not stored, and its space comes back") {
  UntilTester t;
  t.Stage(4 * kMiB);
  const uint64_t id =
      t.TellUntil({{.name = 1, .bytes = 3 * kMiB}, {.name = 2, .offset = 3 * kMiB, .bytes = 100}});
  REQUIRE(t.reserved_bytes() > 0);
  t.Pass(kSoon + MonotonicTime(1));
  t.RunAll();  // the copies, which nothing prevents
  CHECK(ReadAnswers(t.TakeReply(id)) == std::string(kNotRead) + ", " + kNotRead);
  CHECK(t.Look(1).empty());
  CHECK(t.Look(2).empty());
  CHECK(t.reserved_bytes() == 0);
  CHECK(t.counters.late_put_chunks == 2);
}

TEST_CASE("of a put in rounds those are stored whose round was in time") {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = 3 * kMiB;
  UntilTester t(options);
  const auto payload = MakePayload(1, 1, 2 * kMiB);
  std::copy(payload.begin(), payload.end(), t.Stage(4 * kMiB).begin());
  const uint64_t id =
      t.TellUntil({{.name = 1, .bytes = 2 * kMiB}, {.name = 2, .bytes = 2 * kMiB}});
  while (t.store().snapshot().g2.chunks == 0) REQUIRE(t.world.RunOneAtRandom());
  t.Pass(2 * kSoon);
  t.RunAll();
  CHECK(ReadAnswers(t.TakeReply(id)) == std::string("stored, ") + kNotRead);
  CHECK(t.Look(1) == payload);
  CHECK(t.reserved_bytes() == 0);
}

TEST_CASE("a put whose time is over before it begins takes no space") {
  UntilTester t;
  t.Stage(kMiB);
  t.Pass(kSoon);
  const auto body = PutUntilBody(t.ns, {{.name = 1, .bytes = 100}}, 1);
  const uint64_t id = t.Tell(Kind::kPutUntil, body);
  CHECK(t.reserved_bytes() == 0);
  t.RunAll();
  CHECK(ReadAnswers(t.TakeReply(id)) == kNotRead);
}

TEST_CASE("a deadline of 0 is refused, and an older session knows no such puts") {
  UntilTester t;
  t.Stage(kMiB);
  t.Add(std::vector<std::byte>(kBytes));
  const auto host = PutUntilBody(t.ns, {{.name = 1, .bytes = 100}}, 0);
  const auto gpu = GpuPutUntilBody(t.ns, {{.name = 1, .bytes = 100}}, 0);
  CHECK(t.Ask(Kind::kPutUntil, host).status == absl::InvalidArgumentError("deadline_ns is 0"));
  CHECK(t.Ask(Kind::kPutFromGpuUntil, gpu).status ==
        absl::InvalidArgumentError("deadline_ns is 0"));
  t.Open({.peer = "old"}, 7);
  CHECK(absl::IsUnimplemented(t.Ask(Kind::kPutUntil, host).status));
  CHECK(absl::IsUnimplemented(t.Ask(Kind::kPutFromGpuUntil, gpu).status));
  CHECK(t.reserved_bytes() == 0);
}

// ---------------------------------------------------------------- from a GPU

TEST_CASE("a copy from a GPU that was not seen to end by the put's time is not sealed") {
  UntilTester t;
  t.Add(MakePayload(1, 1, kMiB));
  t.device().Hold(true);
  const uint64_t id = t.TellGpuUntil({{.name = 1, .bytes = kBytes}});
  t.RunAll();
  SECTION("in time") {
    t.Pass(kSoon);
    t.device().EndOne({});
    t.RunAll();
    CHECK(ReadAnswers(t.TakeReply(id)) == "stored");
  }
  SECTION("later, though the device calls it good") {
    t.Pass(kSoon + MonotonicTime(1));
    t.device().EndOne({});
    t.RunAll();
    CHECK(ReadAnswers(t.TakeReply(id)) == kNotRead);
    CHECK(t.Look(1).empty());
  }
  CHECK(t.reserved_bytes() == 0);
}

TEST_CASE("what came from a GPU in time is sealed later than that") {
  UntilTester t;
  const auto payload = MakePayload(1, 1, kBytes);
  t.Add(payload);
  t.device().Hold(true);
  const uint64_t id = t.TellGpuUntil({{.name = 1, .bytes = kBytes}});
  t.RunAll();
  t.device().EndOne({});
  t.Pass(2 * kSoon);  // it is in place, and its checksum is computed now
  t.RunAll();
  CHECK(ReadAnswers(t.TakeReply(id)) == "stored");
  CHECK(t.Look(1) == payload);
}

TEST_CASE("a put from a GPU says once that its source is read no more, before its answer") {
  UntilTester t;
  t.Add(MakePayload(1, 1, kMiB));
  t.device().Hold(true);
  uint32_t flags = 0;
  SECTION("not durable") {}
  SECTION("durable") { flags = local::kPutDurable; }
  const uint64_t id = t.TellGpuUntil({{.name = 1, .bytes = kBytes, .flags = flags}});
  t.RunAll();
  CHECK(t.told_copied() == 0);
  CHECK(absl::IsFailedPrecondition(t.Unregister(1).status));
  t.device().EndOne({});
  t.loop->RunAll();  // not the copy threads
  CHECK(t.told_copied() == 1);
  CHECK_FALSE(t.HasReply(id));
  CHECK(t.Unregister(1).status.ok());
  t.Settle();
  t.RunAll();
  CHECK(ReadAnswers(t.TakeReply(id)) == "stored");
  CHECK(t.told_copied() == 1);
  CHECK(t.Look(1) == MakePayload(1, 1, kBytes));
}

TEST_CASE("a put from a GPU of which nothing is copied says so too, and only once") {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = 3 * kMiB;
  UntilTester t(options);
  t.Add(MakePayload(1, 1, 2 * kMiB));
  const TestGpuChunk first{.name = 1, .bytes = 2 * kMiB, .flags = local::kPutDurable};
  const TestGpuChunk large{.name = 2, .bytes = 2 * kMiB};
  const uint64_t both = t.TellGpuUntil({first, large});
  t.RunAll();  // in two rounds
  CHECK(t.told_copied() == 1);
  t.Settle();
  CHECK(ReadAnswers(t.TakeReply(both)) == "stored, stored");
  t.sink.sent.clear();
  const uint64_t again = t.TellGpuUntil({first, large});  // both are there
  t.RunAll();
  CHECK(t.told_copied() == 1);
  CHECK(ReadAnswers(t.TakeReply(again)) == "present, present");
}

TEST_CASE("before version 8 only durable puts from a GPU say it, after they were sealed") {
  UntilTester t;
  t.Open({.peer = "old"}, 7);
  t.Add(MakePayload(1, 1, kMiB));
  t.Ask(Kind::kPutFromGpu, GpuPutBody(t.ns, {{.name = 1, .bytes = kBytes}}));
  CHECK(t.told_copied() == 0);
  const uint64_t id = t.Tell(Kind::kPutFromGpu,
                             GpuPutBody(t.ns, {{.name = 2, .bytes = kBytes, .flags = 2}}));
  t.RunAll();
  CHECK(t.told_copied() == 1);
  t.Settle();
  CHECK(ReadAnswers(t.TakeReply(id)) == "stored");
}

TEST_CASE("a put from a GPU whose copy never ends says nothing, whatever its time") {
  UntilTester t;
  t.Add(MakePayload(1, 1, kMiB));
  t.device().Hold(true);
  const uint64_t id = t.TellGpuUntil({{.name = 1, .bytes = kBytes}});
  t.RunAll();
  t.Pass(2 * kSoon);
  t.device().EndOne({.status = absl::DeadlineExceededError("hangs"), .fenced = false});
  t.RunAll();
  CHECK_FALSE(t.HasReply(id));
  CHECK(t.told_copied() == 0);
  CHECK(t.gpu.kept() == 1);
  t.device().RunAbandoned();
}

}  // namespace kvkeep
