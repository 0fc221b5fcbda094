// Puts from GPU memory: chunks that are stored, chunks that never are, and when a client may reuse
// its blocks.
#include <absl/strings/match.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/server/local/gpu_tester.h"

namespace kvkeep {
namespace {

using local::Kind;

}  // namespace

TEST_CASE("a put gathers a chunk's runs from GPU memory, and others read it as any chunk") {
  GpuTester t;
  t.Open();
  const uint32_t bytes = 2 * kMiB + 777, runs = 9, stride = 300'000;
  const auto payload = MakePayload(1, 1, bytes);
  std::vector<std::byte> memory(100 + runs * stride);
  for (uint32_t i = 0, each = bytes / runs; i < runs; ++i) {
    const uint32_t size = i + 1 == runs ? bytes - each * i : each;
    std::copy_n(payload.begin() + i * each, size, memory.begin() + 100 + i * stride);
  }
  t.Add(memory);
  const TestGpuChunk chunk{
      .name = 1, .offset = 100, .bytes = bytes, .runs = runs, .stride = stride, .tail = "tail"};
  CHECK(t.Put({chunk}) == "stored");
  CHECK(t.Put({chunk}) == "present");
  const TestFound found = t.Get({1});
  REQUIRE(found.places.size() == 1);
  CHECK(t.Payload(found.places[0]) == payload);
  CHECK(t.Tail(found.places[0]) == "tail");
  CHECK(t.counters.gpu_puts == 2);
}

TEST_CASE("many chunks of one put go by few copies, and over the limit of bytes in rounds") {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = 2 * kMiB;
  GpuTester t(options);
  t.Open();
  std::vector<std::byte> memory;
  std::vector<TestGpuChunk> chunks;
  for (uint64_t name = 1; name <= 100; ++name) {
    const auto payload = MakePayload(name, 1, kBytes);
    chunks.push_back({.name = name, .offset = memory.size(), .bytes = kBytes, .runs = 3});
    memory.insert(memory.end(), payload.begin(), payload.end());
  }
  t.Add(memory);
  const std::string answers = t.Put(chunks);
  CHECK(std::count(answers.begin(), answers.end(), ',') == 99);
  CHECK_FALSE(absl::StrContains(answers, "rejected"));
  for (uint64_t name = 1; name <= 100; ++name) {
    REQUIRE(t.Look(name) == MakePayload(name, 1, kBytes));
  }
}

TEST_CASE("runs that are not all in memory that was registered are refused whole") {
  GpuTester t;
  t.Open();
  t.Add(std::vector<std::byte>(kMiB));
  TestGpuChunk wrong{.name = 1, .bytes = kBytes};
  std::string reason;
  SECTION("another registration") { wrong.registration = 2, reason = "registration 2 is not"; }
  SECTION("another generation") { wrong.generation = 2, reason = "of generation 1, not 2"; }
  SECTION("over the end") { wrong.offset = kMiB - kBytes + 1, reason = "has 1048576"; }
  SECTION("behind the end") { wrong.offset = kMiB + 1, reason = "has 1048576"; }
  SECTION("so far that the sum is small") { wrong.offset = UINT64_MAX - 7, reason = "has 1048576"; }
  SECTION("empty") { wrong.runs = 0, reason = "none is in GPU memory"; }
  const std::string answer = t.Put({wrong});
  CHECK(absl::StartsWith(answer, "INVALID_ARGUMENT"));
  CHECK(absl::StrContains(answer, reason));
  CHECK(t.reserved_bytes() == 0);
}

TEST_CASE("a run is of one chunk: a short message is no endless copy") {
  GpuTester t;
  t.Open();
  t.Add(std::vector<std::byte>(kMiB));
  const std::string put = t.Put({{.name = 1, .bytes = kBytes, .runs = 4},
                                 {.name = 2, .bytes = kBytes, .runs = 4, .as_before = true}});
  CHECK(absl::StartsWith(put, "INVALID_ARGUMENT"));
  CHECK(absl::StrContains(put, "chunks have 8 runs together, runs is 4"));
  CHECK(t.reserved_bytes() == 0);
  REQUIRE(absl::StartsWith(t.Put({{.name = 1, .bytes = kBytes}}), "stored"));
  const std::string get =
      t.GetToGpu({{.name = 1, .bytes = kBytes}, {.name = 1, .bytes = kBytes, .as_before = true}});
  CHECK(absl::StartsWith(get, "INVALID_ARGUMENT"));
  CHECK(t.counters.gpu_pinned_bytes == 0);
}

TEST_CASE("a chunk whose copy fails is rejected, says why, and was never there") {
  GpuTester t;
  t.Open();
  t.Add(MakePayload(1, 1, kMiB));
  t.device().Hold(true);
  const uint64_t id = t.TellPut({{.name = 1, .bytes = kBytes}});
  t.RunAll();
  REQUIRE(t.device().held() == 1);
  CHECK(t.Look(1).empty());
  SECTION("too late") {
    t.device().EndOne({.status = absl::DeadlineExceededError("too late")});
    t.RunAll();
    CHECK(ReadAnswers(t.TakeReply(id)) == "rejected 7: too late");
  }
  SECTION("the device broke") {
    t.device().EndOne({.status = absl::UnavailableError("broken")});
    t.RunAll();
    CHECK(ReadAnswers(t.TakeReply(id)) == "rejected 7: broken");
  }
  CHECK(t.Look(1).empty());
  CHECK(t.reserved_bytes() == 0);
  t.device().Hold(false);
  CHECK(t.Put({{.name = 1, .bytes = kBytes}}) == "stored");
}

// A put of 11 MiB, which the device copies by two calls: the first call has all of the first chunk
// and some of the second one.
class TwoCopies : public GpuTester {
 public:
  TwoCopies() : GpuTester(Roomy()) {
    Open();
    Add(MakePayload(1, 1, 11 * kMiB));
    device().Hold(true);
    id = TellPut({{.name = 1, .bytes = 7 * kMiB},
                  {.name = 2, .offset = 7 * kMiB, .bytes = 3 * kMiB},
                  {.name = 3, .offset = 10 * kMiB, .bytes = kMiB}});
    RunAll();
    REQUIRE(device().held() == 2);
    CHECK(Look(1).empty());
  }
  void End(CopyEnd end, size_t which = 0) {
    device().EndOne(std::move(end), which);
    RunAll();
  }
  bool HasFirst() { return Look(1) == MakePayload(1, 1, 7 * kMiB); }

  uint64_t id = 0;

 private:
  static WorldOptions Roomy() {
    WorldOptions options = PeerWorld();
    options.store.max_reserved_bytes = 12 * kMiB;
    return options;
  }
};

const CopyEnd kLate{.status = absl::DeadlineExceededError("too late")};
const CopyEnd kHangs{.status = absl::DeadlineExceededError("hangs"), .fenced = false};

TEST_CASE("what is in place is sealed while the rest is on its way, whatever becomes of that") {
  TwoCopies t;
  t.End({});
  CHECK(t.HasFirst());
  CHECK(t.Look(2).empty());
  CHECK(t.Look(3).empty());
  CHECK_FALSE(t.HasReply(t.id));
  SECTION("it comes") {
    t.End({});
    CHECK(ReadAnswers(t.TakeReply(t.id)) == "stored, stored, stored");
    CHECK(t.Look(2).size() == 3 * kMiB);
  }
  SECTION("it fails") {
    t.End(kLate);
    CHECK(ReadAnswers(t.TakeReply(t.id)) == "stored, rejected 7: too late, rejected 7: too late");
    CHECK(t.Look(2).empty());
  }
  SECTION("it never ends") {
    t.End(kHangs);
    CHECK_FALSE(t.HasReply(t.id));
    CHECK(t.gpu.kept() == 1);
    CHECK(t.Look(2).empty());
    t.device().RunAbandoned();
  }
  CHECK(t.HasFirst());
}

TEST_CASE("a copy that ends before an earlier one gives nothing away") {
  TwoCopies t;
  SECTION("well") {
    t.End({}, 1);
    CHECK(t.Look(3).empty());  // seals come in order
    CHECK_FALSE(t.HasReply(t.id));
    t.End({});
    CHECK(ReadAnswers(t.TakeReply(t.id)) == "stored, stored, stored");
    CHECK(t.HasFirst());
  }
  SECTION("refused, while the other one is under way in a chunk that both have") {
    const uint64_t reserved = t.reserved_bytes();
    t.End(kLate, 1);
    CHECK_FALSE(t.HasReply(t.id));
    CHECK(t.reserved_bytes() == reserved);
    t.End({});
    CHECK(ReadAnswers(t.TakeReply(t.id)) == "stored, rejected 7: too late, rejected 7: too late");
    CHECK(t.reserved_bytes() == 0);
  }
  SECTION("while the earlier one never does") {
    t.End(kHangs);
    t.End({});
    CHECK_FALSE(t.HasReply(t.id));
    CHECK(t.gpu.kept() == 1);
    for (const uint64_t name : {1, 2, 3}) CHECK(t.Look(name).empty());
    t.device().RunAbandoned();
  }
}

TEST_CASE("the copy's deadline is that of the request, cut to the limit") {
  PeerTester unused;
  const LocalLimits limits;
  CHECK(limits.GpuTimeout(0) == limits.max_gpu_timeout);
  CHECK(limits.GpuTimeout(17) == std::chrono::milliseconds(17));
  CHECK(limits.GpuTimeout(UINT32_MAX) == limits.max_gpu_timeout);
}

TEST_CASE("a copy that cannot be ended keeps its space for ever, and gets no reply") {
  GpuTester t;
  t.Open();
  t.Add(MakePayload(1, 1, kMiB));
  t.device().Hold(true);
  const uint64_t id = t.TellPut({{.name = 1, .bytes = kBytes}});
  t.RunAll();
  const uint64_t reserved = t.reserved_bytes();
  REQUIRE(reserved > 0);
  t.device().EndOne({.status = absl::DeadlineExceededError("hangs"), .fenced = false});
  t.device().Hold(false);
  t.RunAll();
  CHECK_FALSE(t.HasReply(id));
  CHECK(t.counters.gpu_kept_requests == 1);
  CHECK(t.gpu.kept() == 1);
  // Another session goes on, in the rest of G2, during the copy.
  t.Open();
  CHECK(t.reserved_bytes() == reserved);
  t.Add(MakePayload(2, 1, kMiB));
  for (uint64_t name = 2; name < 200; ++name) {
    REQUIRE(t.Put({{.name = name, .bytes = kBytes}}) == "stored");
    t.Settle();
  }
  t.device().RunAbandoned();
  const auto payload = MakePayload(2, 1, kMiB);
  for (uint64_t name = 2; name < 200; ++name) {
    const auto seen = t.Look(name);
    REQUIRE((seen.empty() || std::equal(seen.begin(), seen.end(), payload.begin())));
  }
  CHECK(t.Look(1).empty());
}

TEST_CASE("memory is given back when the puts that name it are answered, and not before") {
  GpuTester t;
  t.Open();
  t.Add(MakePayload(1, 1, kMiB));
  t.device().Hold(true);
  const uint64_t id = t.TellPut({{.name = 1, .bytes = kBytes}});
  t.RunAll();
  CHECK(absl::IsFailedPrecondition(t.Unregister(1).status));
  SECTION("the put ends first") {
    t.device().EndOne({});
    t.RunAll();
    CHECK(ReadAnswers(t.TakeReply(id)) == "stored");
    CHECK(t.Unregister(1).status.ok());
  }
  SECTION("the session ends first") {
    t.peer->End();
    t.RunAll();
    CHECK(t.device().stats().registrations == 1);
    t.device().EndOne({});
    t.RunAll();
  }
  CHECK(t.device().stats().registrations == 0);
  CHECK(t.counters.puts_copying == 0);
  CHECK(t.reserved_bytes() == 0);
}

// This test's client keeps the rule: it writes its blocks again only when its put was answered, or
// when its process is gone, after which no one waits for the copy.
TEST_CASE("a session that ends gives its memory back at once, also under a copy") {
  GpuTester t;
  t.Open();
  t.Add(MakePayload(1, 1, kMiB));
  t.Add(MakePayload(2, 1, kMiB));
  t.device().Hold(true);
  t.TellPut({{.name = 1, .bytes = kBytes}});
  t.RunAll();
  REQUIRE(t.device().held() == 1);
  t.peer->End();
  t.RunAll();
  CHECK(t.device().given_back() == 1);  // the other is closed
  CHECK(t.device().stats().registrations == 1);
  t.device().EndOne({.status = absl::AbortedError("a registration was given back")});
  t.RunAll();
  CHECK(t.device().stats().registrations == 0);
  CHECK(t.reserved_bytes() == 0);
  CHECK(t.counters.gpu_registrations == 0);
}

TEST_CASE("in whatever order slow copies, reuse and ends come, no wrong byte is ever visible") {
  // 0, 1: the copies of two puts end; 2: the client's process ends, and its memory is another's
  // then.
  std::vector<int> order = {0, 1, 2};
  do {
    for (const int late : {-1, 0, 1}) {  // which copy ends too late
      GpuTester t;
      t.Open();
      const uint64_t blocks = t.device().Allocate(MakePayload(1, 1, 2 * kBytes));
      t.Register(blocks);
      t.device().Hold(true);
      const std::vector<std::byte> right = t.device().memory(blocks);
      const uint64_t ids[] = {t.TellPut({{.name = 1, .bytes = kBytes}}),
                              t.TellPut({{.name = 2, .offset = kBytes, .bytes = kBytes}})};
      t.RunAll();
      REQUIRE(t.device().held() == 2);
      bool gone = false;
      int ended = 0;  // the device ends them in order
      for (const int event : order) {
        if (event == 2) {
          t.peer->End();
          gone = true;
          std::fill(t.device().memory(blocks).begin(), t.device().memory(blocks).end(),
                    std::byte{0xee});
        } else {
          const int copy = ended++;
          t.device().EndOne(copy == late ? CopyEnd{.status = absl::DeadlineExceededError("late")}
                                         : CopyEnd{});
        }
        t.RunAll();
        for (int put = 0; put < 2; ++put) {
          if (gone || !t.HasReply(ids[put])) continue;
          const auto begin = t.device().memory(blocks).begin() + put * kBytes;
          std::fill(begin, begin + kBytes, std::byte{0xdd});  // reused
        }
      }
      t.device().Hold(false);
      t.Open();
      for (uint64_t name = 1; name <= 2; ++name) {
        const auto seen = t.Look(name);
        const auto begin = right.begin() + static_cast<ptrdiff_t>(name - 1) * kBytes;
        CHECK((seen.empty() || std::equal(seen.begin(), seen.end(), begin, begin + kBytes)));
        if (static_cast<int>(name) - 1 == late) CHECK(seen.empty());
        if (order[2] == 2 && static_cast<int>(name) - 1 != late) CHECK_FALSE(seen.empty());
      }
      CHECK(t.reserved_bytes() == 0);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a durable put says when the blocks are free, then that it is stored") {
  GpuTester t;
  t.Open();
  t.Add(MakePayload(1, 1, kMiB));
  const uint64_t id = t.TellPut({{.name = 1, .bytes = kBytes, .flags = local::kPutDurable}});
  t.Settle();
  const auto copied =
      std::find_if(t.sink.sent.begin(), t.sink.sent.end(), [](const SentMessage& message) {
        return message.kind == static_cast<uint16_t>(Kind::kPutCopied);
      });
  REQUIRE(copied != t.sink.sent.end());
  CHECK(copied->id == id);
  CHECK(ReadAnswers(t.TakeReply(id)) == "stored");
}

}  // namespace kvkeep
