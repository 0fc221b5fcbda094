#include "tiers/host/numa.h"

#include <sched.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "tests/fakes/fake_numa.h"
#include "tests/tiers/host/in_namespace.h"
#include "tests/tiers/host/mounted_arena.h"
#include "tiers/base/units.h"
#include "tiers/host/arena.h"

namespace kvkeep {
namespace {

using Ints = std::vector<int>;

std::unique_ptr<Arena> ArenaOf(FakeNuma* numa, NumaChoice choice, int threads = 1) {
  return CreateArena({.capacity_bytes = 11 * kMiB,
                      .segment_bytes = 2 * kMiB,
                      .backing = ArenaBacking::kMemfd,
                      .numa = numa,
                      .numa_choice = choice,
                      .threads = threads},
                     nullptr)
      .value();
}

std::string NumaOf(const std::unique_ptr<Arena>& arena) {
  const std::string text = arena->describe();
  const size_t at = text.find("NUMA: ");
  return at == std::string::npos ? "" : text.substr(at, text.find("; ", at) - at);
}

std::vector<std::optional<int>> NodesOfSegments(const FakeNuma& numa, Arena& arena) {
  std::vector<std::byte*> pages;
  for (size_t i = 0; i < arena.segment_count(); ++i) {
    pages.push_back(arena.SegmentMemory(i).data());
  }
  return numa.NodesOf(pages);
}

}  // namespace

TEST_CASE("memory of nodes without CPUs, as of a GPU, is not used") {
  CHECK(NodesToUse("\t0-3\n", "0-1\n") == std::vector<int>{0, 1});
  CHECK(NodesToUse("1-9", "0-1") == std::vector<int>{1});
  CHECK(NodesToUse("0-1", "") == std::vector<int>{0, 1});
  CHECK(NodesToUse("0-1", "what is this") == std::vector<int>{0, 1});
}

TEST_CASE("a list of nodes is read as the kernel writes it") {
  CHECK(ParseNodeList("0") == Ints{0});
  CHECK(ParseNodeList("0-2,5,7-8") == Ints{0, 1, 2, 5, 7, 8});
  for (const char* bad : {"", "x", "1-", "2-1", "-1", "0,x", "1024", "0-99999999999"}) {
    CHECK(ParseNodeList(bad).empty());
  }
}

TEST_CASE("segments go to the nodes in turn; the arena says which lie where") {
  FakeNuma numa({0, 2});
  const auto arena = ArenaOf(&numa, NumaChoice::kSpread, 4);
  CHECK(NodesOfSegments(numa, *arena) == std::vector<std::optional<int>>{0, 2, 0, 2, 0, 2});
  CHECK(NumaOf(arena) == "NUMA: segments spread over nodes 0,2 (0: 3, 2: 3)");
  CHECK(arena->stats().numa_refused_bytes == 0);
  const uint64_t blocks = arena->segment_blocks().value();
  CHECK(arena->NodeOf(BlockNumber(3 * blocks - 1)) == 0);
  CHECK(arena->NodeOf(BlockNumber(3 * blocks)) == 2);
  // An image that begins in one segment and goes on in another.
  const ExtentList image = {{BlockNumber(blocks - 1), BlockCount(1)},
                            {BlockNumber(5 * blocks), BlockCount(2)}};
  CHECK(arena->NodeOf(image, kBlockBytes - 1) == 0);
  CHECK(arena->NodeOf(image, kBlockBytes) == 2);
}

TEST_CASE("the node of memory is known only where whole segments were spread over nodes") {
  FakeNuma one({0}), two({0, 1});
  CHECK(NumaPlacement(&two, NumaChoice::kSpread).spread_over() == Ints{0, 1});
  CHECK(NumaPlacement(&two, NumaChoice::kAuto).spread_over() == Ints{0, 1});
  CHECK(NumaPlacement(&one, NumaChoice::kSpread).spread_over().empty());
  CHECK_FALSE(ArenaOf(&one, NumaChoice::kSpread)->NodeOf(BlockNumber(0)).has_value());
  for (const NumaChoice choice : {NumaChoice::kOff, NumaChoice::kInterleave}) {
    CHECK(NumaPlacement(&two, choice).spread_over().empty());
    CHECK_FALSE(ArenaOf(&two, choice)->NodeOf(BlockNumber(0)).has_value());
  }
  two.has_policy = true;
  CHECK(NumaPlacement(&two, NumaChoice::kAuto).spread_over().empty());
}

TEST_CASE("pages are interleaved where that is asked for") {
  FakeNuma numa({0, 1});
  const auto arena = ArenaOf(&numa, NumaChoice::kInterleave);
  CHECK(numa.interleaved() == 6);
  CHECK(NumaOf(arena) == "NUMA: pages interleaved over nodes 0,1");
}

TEST_CASE("nothing is placed on one node, by a policy of the process, or where it is off") {
  FakeNuma one({0}), two({0, 1});
  CHECK(NumaOf(ArenaOf(&one, NumaChoice::kSpread)).empty());
  CHECK(NumaOf(ArenaOf(&two, NumaChoice::kOff)) ==
        "NUMA: segments where the kernel puts them, as g2.numa is off");
  two.has_policy = true;
  const auto arena = ArenaOf(&two, NumaChoice::kAuto);
  CHECK(NumaOf(arena) == "NUMA: segments by the policy with which the daemon was started");
  CHECK(NodesOfSegments(two, *arena) == std::vector<std::optional<int>>(6));
  two.has_policy = false;
  CHECK(NumaOf(ArenaOf(&two, NumaChoice::kAuto)) ==
        "NUMA: segments spread over nodes 0,1 (0: 3, 1: 3)");
}

TEST_CASE("what an earlier start asked for is taken back where nothing is placed any more") {
  InNamespace([](const MountRoom& room, Findings& findings) {
    if (!findings.Expect(room.MountTmpfs("size=16m,mode=0700"), "mount")) return;
    FakeNuma numa({0, 1});
    ArenaOptions options = MountOptions(room, 5 * kMiB);
    options.numa = &numa;
    const auto start = [&](NumaChoice choice) {
      options.numa_choice = choice;
      const size_t before = numa.taken_back();
      const auto arena = Open(options, findings);
      if (arena == nullptr) return size_t{99};
      findings.Expect(arena->stats().numa_refused_bytes == 0, "refused");
      return numa.taken_back() - before;
    };
    findings.Expect(start(NumaChoice::kOff) == 0, "of new files there is nothing");
    findings.Expect(start(NumaChoice::kSpread) == 0, "placed");
    findings.Expect(start(NumaChoice::kOff) == 3, "off");
    numa.has_policy = true;
    findings.Expect(start(NumaChoice::kAuto) == 3, "the process has a policy");
  });
}

TEST_CASE("where the kernel refuses, G2 has its memory all the same, and says so") {
  FakeNuma numa({0, 1});
  numa.refuses = true;
  for (const NumaChoice choice : {NumaChoice::kSpread, NumaChoice::kInterleave}) {
    const auto arena = ArenaOf(&numa, choice);
    arena->SegmentMemory(5)[0] = std::byte{1};
    CHECK(arena->stats().numa_refused_bytes == 11 * kMiB);
    CHECK_FALSE(arena->NodeOf(BlockNumber(0)).has_value());
    CHECK(NumaOf(arena).find("the kernel refused it for 11 MiB") != std::string::npos);
  }
}

// Nodes beyond the first one need a machine that has them.
TEST_CASE("the kernel's nodes: memory comes from where it is asked for") {
  Numa& numa = RealNuma();
  const Ints nodes = numa.Nodes();
  REQUIRE(!nodes.empty());
  const auto arena =
      CreateArena(
          {.capacity_bytes = 8 * kMiB, .segment_bytes = 2 * kMiB, .backing = ArenaBacking::kMemfd},
          nullptr)
          .value();
  const std::span<std::byte> memory = arena->SegmentMemory(0);
  std::byte* const pages[] = {memory.data()};
  CHECK(numa.NodesOf(pages) == std::vector<std::optional<int>>{std::nullopt});
  for (size_t i = 0; i < nodes.size() && i < 4; ++i) {
    const std::span<std::byte> segment = arena->SegmentMemory(i);
    const absl::Status asked = numa.Prefer(segment, nodes[i]);
    if (absl::IsPermissionDenied(asked) || absl::IsUnimplemented(asked)) return;  // a container
    CHECK(asked.ok());
    segment[0] = std::byte{1};
    std::byte* const page[] = {segment.data()};
    CHECK(numa.NodesOf(page) == std::vector<std::optional<int>>{nodes[i]});
  }
  CHECK(numa.Interleave(arena->SegmentMemory(3), nodes).ok());
  CHECK(numa.AskNothing(arena->SegmentMemory(3)).ok());
  CHECK_FALSE(numa.Prefer(memory, 1023).ok());
}

TEST_CASE("the kernel's nodes: a thread is kept on those CPUs of one that the process may use") {
  if (access("/sys/devices/system/node/has_cpu", R_OK) != 0) return;  // a kernel without NUMA
  cpu_set_t all, one;
  REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &all)) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);  // all that the process may use
  int kept = 0, wrong = 0, refused = 0;
  std::thread([&] {
    for (int node = 0; node < 1024; ++node) {
      sched_setaffinity(0, sizeof(all), &all);
      const bool is_kept = RealNuma().RunOn(node, 1).ok();
      cpu_set_t now;
      sched_getaffinity(0, sizeof(now), &now);
      kept += is_kept;
      wrong += !CPU_EQUAL(&now, is_kept ? &one : &all);
      refused += absl::IsFailedPrecondition(RealNuma().RunOn(node, 2));  // there is one
    }
  }).join();
  REQUIRE(sched_setaffinity(0, sizeof(all), &all) == 0);
  CHECK(kept == 1);  // by the node of that CPU
  CHECK(wrong == 0);
  CHECK(refused == 1024);
}

}  // namespace kvkeep
