// A put's sources: the pieces that they call ready, the order of their reports, and what they hold.
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "server/local/gpu_source.h"
#include "server/local/parts_source.h"
#include "tests/server/local/gpu_tester.h"

namespace kvkeep {
namespace {

// Notes a source's reports, each word followed by a blank.
struct SourcePut final : PutSource::Put {
  std::shared_ptr<const void> Hold() override { return held; }
  const ExtentList& extents(size_t chunk) const override { return places.at(chunk); }
  void OnReady(size_t pieces) override {
    absl::StrAppend(&told, "ready:", pieces == PutSource::kAllPieces ? "all" : absl::StrCat(pieces),
                    " ");
  }
  void Lose(size_t chunk, const absl::Status& why) override {
    absl::StrAppend(&told, "lost:", chunk, " ");
    lost = why;
    if (when_lost) when_lost();
  }
  void OnFetched() override { told += "fetched "; }
  std::string Take() { return std::exchange(told, ""); }

  std::string told;
  absl::Status lost;
  std::function<void()> when_lost;
  std::vector<ExtentList> places;
  std::shared_ptr<const int> held = std::make_shared<int>(0);
};

// A put in parts whose word the test writes.
struct PartsPut {
  PartsPut() {
    REQUIRE(memory.BeginStaging().ok());
    StagingMemory::Make(t.context, nullptr, {.bytes = 8 * kMiB, .most_bytes = kGiB, .named = true},
                        [this](absl::StatusOr<std::shared_ptr<StagingMemory>> made) {
                          REQUIRE(made.ok());
                          file = *(*made)->Duplicate();
                          memory.EndStaging(*std::move(made));
                        });
    t.RunAll();
    const auto body = PartsBody(t.ns, {{.name = 1, .bytes = kBytesOfAll}}, kWordAt);
    absl::StatusOr<PutPlan> parsed =
        PutPlan::Parse(local::Kind::kPutInParts, body, t.context->limits, memory, gpu);
    REQUIRE(parsed.ok());
    plan = *std::move(parsed);
    source = std::make_unique<PartsSource>(t.context, &plan, &put);
  }
  void SetWord(uint64_t bytes) {
    REQUIRE(pwrite(file.get(), &bytes, sizeof(bytes), kWordAt) == sizeof(bytes));
  }
  void LookAt(uint64_t bytes) {
    SetWord(bytes);
    source->Look();
    t.RunAll();
  }

  static constexpr uint32_t kBytesOfAll = 3 * kMiB + 777;
  static constexpr uint64_t kWordAt = 8 * kMiB - 8;
  PeerTester t;
  SessionMemory memory{t.context};
  SessionGpu gpu{t.context, nullptr};
  UniqueFd file;
  PutPlan plan;
  SourcePut put;
  std::unique_ptr<PartsSource> source;
};

}  // namespace

TEST_CASE("parts: a piece is ready once the word says that all of it is there") {
  PartsPut p;
  const std::vector<PutPiece> pieces = {{0, 0}, {0, 1}, {0, 2}, {0, 3}};
  p.source->Fetch(pieces);
  p.t.RunAll();
  CHECK(p.put.Take() == "ready:0 ");
  p.LookAt(kMiB - 1);
  CHECK(p.put.Take() == "ready:0 ");
  CHECK(p.source->awaited_piece() == 0);
  p.LookAt(2 * kMiB + 1);
  CHECK(p.put.Take() == "ready:2 ");
  CHECK(p.source->awaited_piece() == 2);
  p.LookAt(PartsPut::kBytesOfAll);
  CHECK(p.put.Take() == "ready:all ");
  CHECK_FALSE(p.source->awaited_piece().has_value());
  p.LookAt(0);  // no look any more
  CHECK_FALSE(p.source->GiveUp(absl::AbortedError("late")));
  p.source->Cancel();
  CHECK(p.put.Take().empty());
}

TEST_CASE("parts: looks that are asked for while one is under way are one that follows it") {
  PartsPut p;
  p.SetWord(kMiB);
  for (int i = 0; i < 5; ++i) p.source->Look();
  CHECK(p.put.held.use_count() == 2);
  p.t.RunAll();
  CHECK(p.put.Take() == "ready:1 ready:1 ");
  CHECK(p.put.held.use_count() == 1);
}

TEST_CASE("parts: the put hears that bytes are lost before their pieces count as ready") {
  PartsPut p;
  p.LookAt(kMiB);
  p.put.Take();
  SECTION("given up, while a look is under way") {
    p.source->Look();
    p.put.when_lost = [&] { p.t.RunAll(); };  // the look ends between the two
    CHECK(p.source->GiveUp(absl::AbortedError("too slow")));
    CHECK(p.put.Take() == "lost:0 ready:1 ready:all ");
    CHECK(absl::IsAborted(p.put.lost));
  }
  SECTION("the word shrinks") {
    p.LookAt(kMiB - 1);
    CHECK(p.put.Take() == "lost:0 ready:all ");
    CHECK(p.put.lost.message() == "a put in parts: 1048575 bytes after 1048576, of 3146505");
  }
  SECTION("the word is above the payload") {
    p.LookAt(PartsPut::kBytesOfAll + 1);
    CHECK(p.put.Take() == "lost:0 ready:all ");
  }
  CHECK_FALSE(p.source->awaited_piece().has_value());
  CHECK_FALSE(p.source->GiveUp(absl::AbortedError("again")));
  p.LookAt(2 * kMiB);
  CHECK(p.put.Take().empty());
}

TEST_CASE("parts: a put that is cancelled loses nothing, and one that lets go looks no more") {
  PartsPut p;
  SECTION("cancelled") {
    p.source->Cancel();
    CHECK(p.put.Take() == "ready:all ");
  }
  SECTION("dropped") {
    p.source->Drop();
    CHECK(p.memory.BeginStaging().ok());
  }
  p.LookAt(kMiB);
  CHECK(p.put.Take().empty());
}

TEST_CASE("parts: a look lets go of the memory before it tells, so the client may get other") {
  PartsPut p;
  p.source->Look();
  p.source->Drop();
  CHECK(absl::IsFailedPrecondition(p.memory.BeginStaging().status()));
  p.t.RunAll();
  CHECK(p.memory.BeginStaging().ok());
}

namespace {

WorldOptions OneSegment() {
  WorldOptions options = PeerWorld();
  options.g2_segment_blocks = options.g2_blocks;
  return options;
}

// A put of 9 and of 3 pieces, which the GPU brings by two copies: 8 pieces, and 4.
struct GpuPut {
  GpuPut() {
    const uint64_t number = t.device().Allocate(std::vector<std::byte>(12 * kMiB));
    t.device().Hold(true);
    const local::RegisterGpuMemory request = GpuTester::Registration(number, 12 * kMiB);
    absl::StatusOr<SessionGpu::Begun> begun = memory.Begin(request, 0);
    REQUIRE(begun.ok());
    GpuMemory wanted;
    std::memcpy(wanted.handle.data(), request.handle.data(), wanted.handle.size());
    wanted.allocation_bytes = wanted.bytes = request.bytes;
    t.gpu.Register({}, std::move(wanted), [&](absl::StatusOr<GpuPath::Registered> registered) {
      REQUIRE(registered.ok());
      memory.End(begun->number, std::make_shared<GpuRegion>(t.context, *registered, request,
                                                            std::move(begun->hold)));
    });
    t.RunAll();
    const auto body = GpuPutBody(
        t.ns, {{.name = 1, .bytes = 9 * kMiB}, {.name = 2, .offset = 9 * kMiB, .bytes = 3 * kMiB}});
    absl::StatusOr<PutPlan> parsed =
        PutPlan::Parse(local::Kind::kPutFromGpu, body, t.context->limits, host, memory);
    REQUIRE(parsed.ok());
    plan = *std::move(parsed);
    source = std::make_unique<GpuSource>(t.context, &plan, &put);
    put.places = {ExtentList{{.first = BlockNumber(0), .count = BlockCount(9 * 256 + 1)}},
                  ExtentList{{.first = BlockNumber(2400), .count = BlockCount(3 * 256 + 1)}}};
    for (uint32_t piece = 0; piece < 9; ++piece) pieces.push_back({.chunk = 0, .piece = piece});
    for (uint32_t piece = 0; piece < 3; ++piece) pieces.push_back({.chunk = 1, .piece = piece});
  }
  std::string End(CopyEnd end, size_t which) {
    t.device().EndOne(std::move(end), which);
    t.RunAll();
    return put.Take();
  }

  GpuTester t{OneSegment()};
  SessionMemory host{t.context};
  SessionGpu memory{t.context, nullptr};
  PutPlan plan;
  SourcePut put;
  std::unique_ptr<GpuSource> source;
  std::vector<PutPiece> pieces;
};

}  // namespace

TEST_CASE("gpu: pieces become ready in order, whatever copy ends first, and rounds count on") {
  GpuPut g;
  g.source->Fetch(g.pieces);
  REQUIRE(g.t.device().held() == 2);
  CHECK(g.End({}, 1) == "ready:0 ");
  CHECK(g.End({}, 0) == "fetched ready:12 ");
  g.source->Fetch({g.pieces.data(), 1});
  CHECK(g.End({}, 0) == "fetched ready:13 ");
  CHECK(g.put.held.use_count() == 1);
}

TEST_CASE("gpu: a copy that came too late, or never, loses each of its chunks once") {
  GpuPut g;
  g.source->Fetch(g.pieces);
  CHECK(g.End({.status = absl::DeadlineExceededError("late")}, 1) == "lost:0 lost:1 ready:0 ");
  CHECK(g.End({.status = absl::UnavailableError("broken")}, 0) == "lost:0 fetched ready:12 ");
}

TEST_CASE("gpu: a copy without an end keeps the put for ever, and the round never ends") {
  GpuPut g;
  g.source->Fetch(g.pieces);
  const CopyEnd hangs{.status = absl::DeadlineExceededError("hangs"), .fenced = false};
  SECTION("it is the last one") {
    CHECK(g.End({}, 0) == "ready:8 ");
    CHECK(g.End(hangs, 0) == "lost:0 lost:1 ");
  }
  SECTION("another is the last one") {
    CHECK(g.End(hangs, 0) == "lost:0 ready:0 ");
    CHECK(g.End({}, 0).empty());
  }
  CHECK(g.t.gpu.kept() == 1);
  CHECK(g.t.counters.gpu_kept_requests == 1);
  g.t.device().RunAbandoned();
  g.t.gpu.DropKept();
}

TEST_CASE("gpu: after the end of the session no copy begins") {
  GpuPut g;
  g.source->Cancel();
  g.source->Fetch(g.pieces);
  CHECK(g.t.device().held() == 0);
  CHECK(g.put.Take() == "lost:0 ready:8 lost:0 lost:1 fetched ready:12 ");
  CHECK(absl::IsCancelled(g.put.lost));
}

}  // namespace kvkeep
