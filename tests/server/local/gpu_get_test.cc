// Gets to GPU memory: the copies, and the answers for other chunks.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/server/local/gpu_tester.h"
#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

using local::Kind;

// The chunks 1 to `count`, put from registration 1.
void PutSome(GpuTester& t, uint64_t count, uint32_t bytes = kBytes) {
  std::vector<std::byte> memory;
  std::vector<TestGpuChunk> chunks;
  for (uint64_t name = 1; name <= count; ++name) {
    const auto payload = MakePayload(name, 1, bytes);
    chunks.push_back({.name = name,
                      .offset = memory.size(),
                      .bytes = bytes,
                      .tail = "tail " + std::to_string(name)});
    memory.insert(memory.end(), payload.begin(), payload.end());
  }
  t.Add(memory);
  for (const TestGpuChunk& chunk : chunks) REQUIRE(t.Put({chunk}) == "stored");
  t.Settle();
}

}  // namespace

TEST_CASE("what one put from GPU memory another gets into it, run by run, with its tail") {
  GpuTester t;
  t.Open();
  PutSome(t, 3);
  const uint32_t stride = 70'000;
  const uint64_t target = t.device().Allocate(std::vector<std::byte>(kMiB));
  const uint32_t to = t.Register(target);
  CHECK(t.GetToGpu({{.name = 2,
                     .registration = to,
                     .offset = 5,
                     .bytes = kBytes,
                     .runs = 4,
                     .stride = stride},
                    {.name = 9, .registration = to, .offset = 300'000, .bytes = kBytes},
                    {.name = 1, .registration = to, .offset = 400'000, .bytes = kBytes}}) ==
        "copied tail 2; miss; copied tail 1");
  const std::vector<std::byte>& got = t.device().memory(target);
  const auto second = MakePayload(2, 1, kBytes);
  for (int i = 0; i < 4; ++i) {
    CHECK(std::equal(second.begin() + i * 10'000, second.begin() + (i + 1) * 10'000,
                     got.begin() + 5 + i * stride));
  }
  const auto first = MakePayload(1, 1, kBytes);
  CHECK(std::equal(first.begin(), first.end(), got.begin() + 400'000));
  CHECK(std::all_of(got.begin() + 300'000, got.begin() + 300'000 + kBytes,
                    [](std::byte b) { return b == std::byte{0}; }));
  CHECK(t.counters.gpu_gets == 1);
  CHECK(t.counters.gpu_get_bytes == 2 * kBytes);
  CHECK(t.counters.gpu_gets_copying == 0);
  CHECK(t.counters.gpu_pinned_bytes == 0);
}

// Makes the runs at `which` of a get of one chunk go nowhere.
std::vector<std::byte> Skipping(std::vector<std::byte> body, const std::vector<size_t>& which) {
  for (const size_t run : which) {
    std::byte* const at = body.data() + sizeof(local::GpuGetRequest) + sizeof(local::GpuGetChunk) +
                          run * sizeof(local::GpuMemoryRun);
    auto wire = LoadAt<local::GpuMemoryRun>(at);
    wire.registration = local::kSkippedBytes;
    wire.offset = wire.generation = 0;
    StoreAt(at, wire);
  }
  return body;
}

TEST_CASE("bytes that a get skips go nowhere, and the others where they belong") {
  GpuTester t;
  t.Open();
  constexpr uint32_t kLong = 3 * kPieceBytes;
  constexpr size_t kRuns = 6;
  const auto payload = MakePayload(1, 1, kLong);
  t.Add(payload);
  REQUIRE(t.Put({{.name = 1, .bytes = kLong}}) == "stored");
  const uint64_t target = t.device().Allocate(std::vector<std::byte>(kLong, std::byte{0xee}));
  const uint32_t to = t.Register(target);
  const auto body =
      GpuGetBody(t.ns, {{.name = 1, .registration = to, .bytes = kLong, .runs = kRuns}});
  // All of the first piece, and half of the last one.
  const std::vector<size_t> skipped = {0, 1, 4};
  CHECK(ReadGpuAnswers(t.Ask(Kind::kGetToGpu, Skipping(body, skipped))) == "copied ");
  const std::vector<std::byte>& got = t.device().memory(target);
  for (size_t run = 0; run < kRuns; ++run) {
    const auto at = static_cast<ptrdiff_t>(run * (kLong / kRuns));
    const auto end = at + kLong / static_cast<ptrdiff_t>(kRuns);
    const bool moved = std::find(skipped.begin(), skipped.end(), run) == skipped.end();
    INFO("run " << run);
    CHECK(std::equal(got.begin() + at, got.begin() + end, payload.begin() + at) == moved);
    CHECK(std::all_of(got.begin() + at, got.begin() + end,
                      [](std::byte b) { return b == std::byte{0xee}; }) == !moved);
  }
  CHECK(t.counters.gpu_pinned_bytes == 0);
  const SentMessage all = t.Ask(Kind::kGetToGpu, Skipping(body, {0, 1, 2, 3, 4, 5}));
  CHECK(all.status == absl::InvalidArgumentError("runs: none is in GPU memory"));
  auto odd = Skipping(body, {0});
  StoreAt(odd.data() + sizeof(local::GpuGetRequest) + sizeof(local::GpuGetChunk) +
              offsetof(local::GpuMemoryRun, offset),
          uint64_t{1});
  CHECK(absl::StrContains(t.Ask(Kind::kGetToGpu, odd).status.message(), "runs[0]: bytes that are"));
  t.Open({.peer = "old"}, 7);
  const auto old = t.Ask(Kind::kGetToGpu, Skipping(body, {0}));
  CHECK(absl::StrContains(old.status.message(), "registration 0 is not one of this session"));
}

TEST_CASE("a chunk on its way from G3 is copied piece by piece, as they come") {
  GpuTester t;
  t.Open();
  constexpr uint32_t kLong = 3 * kPieceBytes + 500;
  const auto payload = MakePayload(1, 1, kLong);
  t.Add(payload);
  REQUIRE(t.Put({{.name = 1, .bytes = kLong}}) == "stored");
  t.Settle();
  t.FloodG2();
  const uint64_t target = t.device().Allocate(std::vector<std::byte>(kLong));
  const uint32_t to = t.Register(target);
  t.device().Hold(true);
  const uint64_t id =
      t.Tell(Kind::kGetToGpu,
             GpuGetBody(t.ns, {{.name = 1, .registration = to, .bytes = kLong, .runs = 7}}));
  CHECK(t.device().held() == 0);  // nothing is there yet
  size_t most = 0;
  while (t.world.RunOneAtRandom()) most = std::max(most, t.device().held());
  t.RunAll();
  CHECK(t.device().held() > 1);
  CHECK_FALSE(t.HasReply(id));
  while (t.device().held() > 0) t.device().EndOne({});
  t.device().Hold(false);
  t.RunAll();
  CHECK(ReadGpuAnswers(t.TakeReply(id)) == "copied ");
  CHECK(t.device().memory(target) == payload);
}

TEST_CASE("a chunk that a transient get brought to G2 is the first to go, another's stays") {
  GpuTester t;
  t.Open();
  PutSome(t, 2, 256 * kKiB);
  t.FloodG2();
  const uint32_t to = t.Add(std::vector<std::byte>(kMiB));
  const auto get = [&](uint64_t name, bool transient) {
    const uint64_t before = t.store().snapshot().counters.promotions;
    CHECK(ReadGpuAnswers(
              t.Ask(Kind::kGetToGpu,
                    GpuGetBody(t.ns, {{.name = name, .registration = to, .bytes = 256 * kKiB}},
                               {.transient = transient}))) == absl::StrCat("copied tail ", name));
    return t.store().snapshot().counters.promotions - before;
  };
  CHECK(get(1, true) == 1);
  CHECK(get(2, false) == 1);
  t.Add(MakePayload(3, 1, 256 * kKiB));
  REQUIRE(t.Put({{.name = 3, .registration = to + 1, .bytes = 256 * kKiB}}) == "stored");
  CHECK(get(2, false) == 0);
  CHECK(get(1, true) == 1);
}

TEST_CASE("in whatever order slow gets, reuse and ends come, no block is written once it is free") {
  // 0, 1: the copies of two gets end; 2: the client's process ends.
  std::vector<int> order = {0, 1, 2};
  do {
    for (const int late : {-1, 0, 1}) {  // which copy ends too late
      GpuTester t;
      t.Open();
      PutSome(t, 2);
      const uint64_t blocks = t.device().Allocate(std::vector<std::byte>(2 * kBytes));
      const uint32_t to = t.Register(blocks);
      const auto block = [&](int get) {
        return std::span(t.device().memory(blocks)).subspan(size_t(get) * kBytes, kBytes);
      };
      t.device().Hold(true);
      uint64_t ids[2];
      for (const uint64_t get : {0, 1}) {
        ids[get] = t.Tell(
            Kind::kGetToGpu,
            GpuGetBody(
                t.ns,
                {{.name = get + 1, .registration = to, .offset = get * kBytes, .bytes = kBytes}}));
      }
      t.RunAll();
      REQUIRE(t.device().held() == 2);
      bool gone = false, reused[2] = {false, false};
      int ended = 0;  // the device ends them in order
      for (const int event : order) {
        if (event == 2) {
          t.peer->End();
          gone = true;
        } else {
          const int copy = ended++;
          t.device().EndOne(copy == late ? CopyEnd{.status = absl::DeadlineExceededError("late")}
                                         : CopyEnd{});
        }
        t.RunAll();
        // Memory of an ended process is another's once nothing of it is open any more.
        if (gone) CHECK((t.device().stats().registrations == 0) == (t.device().held() == 0));
        for (int get = 0; get < 2; ++get) {
          if (reused[get]) {
            CHECK(std::all_of(block(get).begin(), block(get).end(),
                              [](std::byte b) { return b == std::byte{0xdd}; }));
          } else if (!gone && t.HasReply(ids[get])) {
            const bool copied = absl::StartsWith(ReadGpuAnswers(t.TakeReply(ids[get])), "copied");
            CHECK(copied == (get != late));
            const auto right = MakePayload(static_cast<uint64_t>(get) + 1, 1, kBytes);
            if (copied) CHECK(std::equal(right.begin(), right.end(), block(get).begin()));
            std::fill(block(get).begin(), block(get).end(), std::byte{0xdd});
            reused[get] = true;
          }
        }
      }
      CHECK(t.counters.gpu_pinned_bytes == 0);
      CHECK(t.counters.gpu_gets_copying == 0);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a get that is wrong is refused whole, a chunk that differs is told by itself") {
  GpuTester t;
  t.Open();
  PutSome(t, 1);
  CHECK(t.GetToGpu({{.name = 1, .bytes = kBytes - 1}}) ==
        "failed payload_bytes is 39999, the chunk has 40000");
  CHECK(absl::StartsWith(t.GetToGpu({{.name = 1, .offset = kBytes, .bytes = 1}}),
                         "INVALID_ARGUMENT"));
  CHECK(absl::StartsWith(t.GetToGpu({}), "INVALID_ARGUMENT"));
  CHECK(absl::StartsWith(t.GetToGpu({{.name = 1, .bytes = kBytes}}, 77), "FAILED_PRECONDITION"));
  t.ns.bytes[0] ^= 1;
  CHECK(absl::StartsWith(t.GetToGpu({{.name = 1, .bytes = kBytes}}), "FAILED_PRECONDITION"));
  CHECK(t.counters.gpu_gets_copying == 0);
  CHECK(t.counters.gpu_pinned_bytes == 0);
}

TEST_CASE("with a lease a chunk that was deleted since is copied all the same") {
  GpuTester t;
  t.Open();
  PutSome(t, 1);
  const TestFound found = t.Get({1});
  REQUIRE(t.Ask(Kind::kDelete, t.KeysBody({1}, LeaseMode::kNone)).status.ok());
  CHECK(t.GetToGpu({{.name = 1, .bytes = kBytes}}) == "miss");
  CHECK(t.GetToGpu({{.name = 1, .bytes = kBytes}}, found.head.lease) == "copied tail 1");
}

TEST_CASE("a copy that fails is told, and holds nothing any more") {
  GpuTester t;
  t.Open();
  PutSome(t, 1);
  t.device().Hold(true);
  const uint64_t id = t.Tell(Kind::kGetToGpu, GpuGetBody(t.ns, {{.name = 1, .bytes = kBytes}}));
  t.RunAll();
  CHECK(t.counters.gpu_pinned_bytes == kBytes);
  SECTION("the device broke") {
    t.device().EndOne({.status = absl::UnavailableError("broken")});
    t.RunAll();
    CHECK(ReadGpuAnswers(t.TakeReply(id)) == "failed broken");
  }
  SECTION("the session ends first") {
    t.peer->End();
    t.RunAll();
    t.device().EndOne({});
    t.RunAll();
    CHECK(t.device().stats().registrations == 0);
  }
  CHECK(t.counters.gpu_pinned_bytes == 0);
  CHECK(t.counters.gpu_gets_copying == 0);
}

TEST_CASE("a get whose copy cannot be ended holds its chunk for ever, and gets no reply") {
  GpuTester t;
  t.Open();
  PutSome(t, 1);
  t.device().Hold(true);
  const uint64_t id = t.Tell(Kind::kGetToGpu, GpuGetBody(t.ns, {{.name = 1, .bytes = kBytes}}));
  t.RunAll();
  t.device().EndOne({.status = absl::DeadlineExceededError("hangs"), .fenced = false});
  t.RunAll();
  CHECK_FALSE(t.HasReply(id));
  CHECK(t.counters.gpu_kept_requests == 1);
  CHECK(t.counters.gpu_pinned_bytes == kBytes);
}

TEST_CASE("all gets to GPUs together hold so many bytes") {
  GpuTester t(PeerWorld(), [](LocalLimits* limits) { limits->max_gpu_get_bytes = 2 * kBytes; });
  t.context->limits.max_gpu_get_bytes = 2 * kBytes;
  t.Open();
  PutSome(t, 3);
  const std::string refused = t.GetToGpu(
      {{.name = 1, .bytes = kBytes}, {.name = 2, .bytes = kBytes}, {.name = 3, .bytes = kBytes}});
  CHECK(absl::StartsWith(refused, "RESOURCE_EXHAUSTED"));
  CHECK(t.GetToGpu({{.name = 1, .bytes = kBytes}, {.name = 2, .bytes = kBytes}}) ==
        "copied tail 1; copied tail 2");
  CHECK(t.counters.gpu_pinned_bytes == 0);
}

TEST_CASE("a tenant's gets hold, and its copies are, more than its part by one request") {
  GpuTester t;
  LocalPeer::Identity identity{.peer = "x"};
  identity.gpu = std::make_shared<GpuAccount>(GpuAccount::Most{
      .registrations = 9, .registered_bytes = kMiB, .get_bytes = 2 * kBytes, .copies = 1});
  t.Open(identity);
  PutSome(t, 3);
  const TestGpuChunk one{.name = 1, .bytes = kBytes}, two{.name = 2, .bytes = kBytes},
      three{.name = 3, .bytes = kBytes};
  // Alone it is not refused: it would be for ever.
  CHECK(t.GetToGpu({one, two, three}) == "copied tail 1; copied tail 2; copied tail 3");
  t.device().Hold(true);
  const uint64_t first = t.Tell(Kind::kGetToGpu, GpuGetBody(t.ns, {one}));
  t.RunAll();
  CHECK(t.device().held() == 1);
  const std::string refused = t.GetToGpu({two, three});
  CHECK(absl::StartsWith(refused, "RESOURCE_EXHAUSTED"));
  CHECK(absl::StrContains(
      refused,
      absl::StrCat("bytes that gets to GPUs hold: sessions of this tenant have ", kBytes)));
  CHECK(t.counters.gpu_over_limit == 1);
  const uint64_t over = t.Tell(Kind::kGetToGpu, GpuGetBody(t.ns, {two}));
  t.RunAll();
  CHECK(t.device().held() == 2);
  CHECK(absl::StrContains(t.Put({{.name = 4, .bytes = 100}}),
                          "copies of GPU memory under way: sessions of this tenant have 2"));
  CHECK(t.counters.gpu_over_limit == 2);
  t.device().EndOne({});
  t.device().EndOne({});
  t.RunAll();
  CHECK(t.TakeReply(first).status.ok());
  CHECK(t.TakeReply(over).status.ok());
  t.device().Hold(false);
  CHECK(t.GetToGpu({one, two}) == "copied tail 1; copied tail 2");
  t.peer->End();
  t.RunAll();
  CHECK(identity.gpu->unused());
}

}  // namespace kvkeep
