#include "client/gpu/page_planner.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <limits>
#include <numeric>
#include <utility>

#include "tests/fakes/seeded_random.h"

namespace kvkeep::client {
namespace {

using Catch::Matchers::Contains;

constexpr GpuRegionId kRegion{7};

// Two layers' pages of 6 bytes in 5 blocks, all layers of a block together.
PageTensor BlocksFirst() {
  return {.region = kRegion, .offset = 100, .bytes = 60, .layers = 2, .blocks = 5,
          .layer_stride = 6, .block_stride = 12, .page_bytes = 6};
}
// The same, all blocks of a layer together.
PageTensor LayersFirst() {
  return {.region = kRegion, .offset = 100, .bytes = 60, .layers = 2, .blocks = 5,
          .layer_stride = 30, .block_stride = 6, .page_bytes = 6};
}

std::vector<GpuRun> Plan(const PagePlannerOptions& options, std::vector<uint32_t> blocks,
                         uint32_t shard = 0) {
  const auto planner = PagePlanner::Make(options);
  REQUIRE(planner.status() == absl::OkStatus());
  const auto runs = planner->Plan({.blocks = blocks, .shard = shard});
  REQUIRE(runs.status() == absl::OkStatus());
  return *runs;
}

GpuRun Run(uint64_t offset, uint64_t bytes) { return {kRegion, 100 + offset, bytes}; }

std::string RefusalOf(const PagePlannerOptions& options) {
  return std::string(PagePlanner::Make(options).status().message());
}

// Pages without their places: of some tensors, in blocks that are planned in another order.
struct Pages {
  uint32_t shards = 1, blocks = 1;
  std::vector<uint32_t> layers, page_bytes;  // by tensor
  std::vector<uint32_t> table;

  static std::string Byte(uint32_t block, size_t tensor, uint32_t layer, uint32_t at) {
    return absl::StrCat(block, ".", tensor, ".", layer, ".", at, " ");
  }
  std::string Wanted(uint32_t shard) const {
    std::string all;
    for (const uint32_t block : table) {
      for (size_t i = 0; i < layers.size(); ++i) {
        const uint32_t each = page_bytes[i] / shards;
        for (uint32_t layer = 0; layer < layers[i]; ++layer) {
          for (uint32_t at = 0; at < each; ++at) all += Byte(block, i, layer, shard * each + at);
        }
      }
    }
    return all;
  }
};

uint32_t Draw(SeededRandom& random, uint32_t least, uint32_t most) {
  return static_cast<uint32_t>(random.Between(least, most));
}

Pages DrawPages(SeededRandom& random) {
  Pages pages{.shards = Draw(random, 1, 4), .blocks = Draw(random, 1, 6)};
  pages.table.resize(pages.blocks);
  std::iota(pages.table.begin(), pages.table.end(), 0);
  for (size_t i = pages.blocks; i > 1; --i) {
    std::swap(pages.table[i - 1], pages.table[random.Below(i)]);
  }
  for (uint32_t tensors = Draw(random, 1, 3); tensors > 0; --tensors) {
    pages.layers.push_back(Draw(random, 1, 4));
    pages.page_bytes.push_back(pages.shards * Draw(random, 1, 5));
  }
  return pages;
}

// Memory that has them, with gaps, each byte by itself.
struct Memory {
  PagePlannerOptions options;
  std::vector<std::string> bytes = std::vector<std::string>(1 << 12, "gap");
};

Memory DrawMemory(const Pages& pages, SeededRandom& random) {
  Memory memory{.options = {.shards = pages.shards}};
  uint64_t end = random.Below(50);
  for (size_t i = 0; i < pages.layers.size(); ++i) {
    const uint32_t layers = pages.layers[i], page = pages.page_bytes[i];
    PageTensor tensor{.region = kRegion, .offset = end, .layers = layers, .blocks = pages.blocks,
                      .page_bytes = page};
    const bool layers_together = random.Chance(0.5);
    uint64_t& inner = layers_together ? tensor.layer_stride : tensor.block_stride;
    uint64_t& outer = layers_together ? tensor.block_stride : tensor.layer_stride;
    inner = page + random.Below(3);
    outer = inner * (layers_together ? layers : pages.blocks) + random.Below(3);
    tensor.bytes = (layers - 1) * tensor.layer_stride +
                   (pages.blocks - 1) * tensor.block_stride + page;
    for (uint32_t block = 0; block < pages.blocks; ++block) {
      for (uint32_t layer = 0; layer < layers; ++layer) {
        const uint64_t from = end + layer * tensor.layer_stride + block * tensor.block_stride;
        for (uint32_t at = 0; at < page; ++at) {
          REQUIRE(memory.bytes.at(from + at) == "gap");
          memory.bytes.at(from + at) = Pages::Byte(block, i, layer, at);
        }
      }
    }
    end += tensor.bytes + random.Below(20);
    memory.options.tensors.push_back(tensor);
  }
  return memory;
}

}  // namespace

TEST_CASE("where a block's layers lie together, a block is a run, and neighbours are one") {
  CHECK(Plan({.tensors = {BlocksFirst()}}, {3}) == std::vector{Run(36, 12)});
  CHECK(Plan({.tensors = {BlocksFirst()}}, {1, 2, 4}) == std::vector{Run(12, 24), Run(48, 12)});
  // The payload has the order of the tokens, not of the memory.
  CHECK(Plan({.tensors = {BlocksFirst()}}, {2, 1}) == std::vector{Run(24, 12), Run(12, 12)});
}

TEST_CASE("where a layer's blocks lie together, a page is a run") {
  CHECK(Plan({.tensors = {LayersFirst()}}, {1, 2}) ==
        std::vector{Run(6, 6), Run(36, 6), Run(12, 6), Run(42, 6)});
}

TEST_CASE("padding between pages is in no run") {
  PageTensor padded = BlocksFirst();
  padded.layer_stride = 8, padded.block_stride = 16, padded.bytes = 78;
  CHECK(Plan({.tensors = {padded}}, {0}) == std::vector{Run(0, 6), Run(8, 6)});
}

TEST_CASE("a shard is its part of each page") {
  const PagePlannerOptions options{.tensors = {BlocksFirst()}, .shards = 3};
  CHECK(PagePlanner::Make(options)->bytes_per_block() == 4);
  CHECK(Plan(options, {1}, 0) == std::vector{Run(12, 2), Run(18, 2)});
  CHECK(Plan(options, {1}, 2) == std::vector{Run(16, 2), Run(22, 2)});
}

TEST_CASE("a payload has each byte of each page in its place, and the same ones for all strides") {
  SeededRandom random(20);
  for (int round = 0; round < 300; ++round) {
    const Pages pages = DrawPages(random);
    for (int layout = 0; layout < 3; ++layout) {
      const Memory memory = DrawMemory(pages, random);
      for (uint32_t shard = 0; shard < pages.shards; ++shard) {
        std::string payload;
        for (const GpuRun& run : Plan(memory.options, pages.table, shard)) {
          for (uint64_t at = 0; at < run.bytes; ++at) payload += memory.bytes.at(run.offset + at);
        }
        REQUIRE(payload == pages.Wanted(shard));
      }
    }
  }
}

TEST_CASE("what is wrong with a memory is named") {
  const auto refusal = [](const auto& change, uint32_t shards = 1) {
    PageTensor tensor = LayersFirst();
    change(tensor);
    return RefusalOf({.tensors = {LayersFirst(), tensor}, .shards = shards});
  };
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  CHECK(refusal([](PageTensor&) {}).empty());
  CHECK_THAT(refusal([](PageTensor& t) { t.layers = 0; }), Contains("tensors[1]: layers is 0"));
  CHECK_THAT(refusal([](PageTensor& t) { t.blocks = 0; }), Contains("blocks is 0"));
  CHECK_THAT(refusal([](PageTensor& t) { t.blocks = 4; }), Contains("tensors[0] has 5"));
  CHECK_THAT(refusal([](PageTensor& t) { t.page_bytes = 0; }), Contains("page_bytes is 0"));
  CHECK_THAT(refusal([](PageTensor&) {}, 4), Contains("page_bytes is 6, shards are 4"));
  CHECK_THAT(refusal([](PageTensor& t) { t.block_stride = 5; }),
             Contains("block_stride is 5 over 6 bytes: pages overlap"));
  CHECK_THAT(refusal([](PageTensor& t) { t.layer_stride = 29; }),
             Contains("layer_stride is 29 over 30 bytes: pages overlap"));
  CHECK_THAT(refusal([](PageTensor& t) { t.layer_stride = t.block_stride; }), Contains("overlap"));
  CHECK_THAT(refusal([](PageTensor& t) { t.bytes = 59; }), Contains("its pages take 60"));
  CHECK_THAT(refusal([](PageTensor& t) { t.layer_stride = kMost; }), Contains("than any memory"));
  CHECK_THAT(refusal([](PageTensor& t) { t.block_stride = kMost / 2; }), Contains("any memory"));
  CHECK_THAT(refusal([](PageTensor& t) { t.offset = kMost - 59; }), Contains("pages take 60"));
  CHECK_THAT(RefusalOf({}), Contains("tensors: there are none"));
  CHECK_THAT(RefusalOf({.tensors = {LayersFirst()}, .shards = 0}), Contains("shards is 0"));
  CHECK_THAT(RefusalOf({.tensors = {LayersFirst()}, .max_chunk_bytes = 11}),
             Contains("larger than the 11 bytes"));
  CHECK_THAT(RefusalOf({.tensors = {LayersFirst()}, .max_runs = 0}), Contains("max_runs is 0"));
  // One layer or block has no steps: its stride has no meaning.
  CHECK(refusal([](PageTensor& t) { t.layers = 1, t.layer_stride = 0; }).empty());
}

TEST_CASE("what is wrong with a plan is named") {
  const auto planner = PagePlanner::Make(
      {.tensors = {LayersFirst()}, .shards = 2, .max_runs = 4, .max_chunk_bytes = 30});
  REQUIRE(planner.status() == absl::OkStatus());
  const auto refusal = [&](std::vector<uint32_t> blocks, uint32_t shard) {
    const auto runs = planner->Plan({.blocks = blocks, .shard = shard});
    CHECK_FALSE(runs.ok());
    return absl::StrCat(absl::StatusCodeToString(runs.status().code()), ": ",
                        std::string(runs.status().message()));
  };
  CHECK_THAT(refusal({}, 0), Contains("INVALID_ARGUMENT: 0 blocks, a chunk may have 1 to 5"));
  CHECK_THAT(refusal({0, 1, 2, 3, 4, 0}, 0), Contains("6 blocks"));
  CHECK_THAT(refusal({0, 5}, 0), Contains("blocks[1] is 5 of 5 blocks"));
  CHECK_THAT(refusal({0}, 2), Contains("shard is 2 of 2"));
  CHECK_THAT(refusal({0, 2, 4}, 0), Contains("RESOURCE_EXHAUSTED: a chunk of 3 blocks has more"));
}

}  // namespace kvkeep::client
