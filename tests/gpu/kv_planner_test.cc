#include "client/gpu/kv_planner.h"

#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "tests/fakes/seeded_random.h"

namespace kvkeep::client {
namespace {

using Catch::Matchers::Contains;

struct Element {
  uint64_t layer, kv, block, slot, head, byte;
};

// Addresses element by element, straight from the format's name: "NL x [2,NB,BS,NH,HS]" is NL
// tensors, each row after row. Does not use KvLayout's strides.
class NamedTensors {
 public:
  NamedTensors(KvFormat format, const KvShape& shape) : shape_(shape) {
    const std::vector<std::string> halves = absl::StrSplit(KvFormatName(format), " x ");
    const std::string inner = halves.back();
    dims_ = absl::StrSplit(absl::StripSuffix(absl::StripPrefix(inner, "["), "]"), ',');
    if (halves.size() == 2) per_layer_ = true;
    split_kv_ = halves.size() == 2 && halves[0] == "2NL";
  }
  size_t tensors() const { return (per_layer_ ? shape_.layers : 1) * (split_kv_ ? 2 : 1); }
  uint64_t tensor_bytes() const {
    uint64_t bytes = 1;
    for (const std::string& dim : dims_) bytes *= Extent(dim);
    return bytes;
  }
  size_t Tensor(const Element& e) const {
    return (split_kv_ ? e.kv * shape_.layers : 0) + (per_layer_ ? e.layer : 0);
  }
  uint64_t Offset(const Element& e) const {
    uint64_t at = 0;
    for (const std::string& dim : dims_) at = at * Extent(dim) + Index(dim, e);
    return at;
  }

 private:
  uint64_t Extent(const std::string& dim) const {
    if (dim == "NL") return shape_.layers;
    if (dim == "2") return 2;
    if (dim == "NB") return shape_.blocks;
    if (dim == "BS") return shape_.block_tokens;
    if (dim == "NB*BS") return uint64_t{shape_.blocks} * shape_.block_tokens;
    if (dim == "NH") return shape_.heads;
    if (dim == "HS") return shape_.head_bytes;
    REQUIRE(dim == "2*HS");
    return 2 * uint64_t{shape_.head_bytes};
  }
  uint64_t Index(const std::string& dim, const Element& e) const {
    if (dim == "NL") return e.layer;
    if (dim == "2") return e.kv;
    if (dim == "NB") return e.block;
    if (dim == "BS") return e.slot;
    if (dim == "NB*BS") return e.block * shape_.block_tokens + e.slot;
    if (dim == "NH") return e.head;
    if (dim == "HS") return e.byte;
    return e.kv * shape_.head_bytes + e.byte;
  }

  const KvShape shape_;
  std::vector<std::string> dims_;
  bool per_layer_ = false;
  bool split_kv_ = false;
};

// Places tensors one behind the other, some in a region of their own, some behind a gap.
std::vector<KvTensor> Place(size_t tensors, uint64_t bytes, SeededRandom& random) {
  std::vector<KvTensor> placed;
  uint64_t region = 1, offset = random.Below(100);
  for (size_t i = 0; i < tensors; ++i) {
    placed.push_back({.region = GpuRegionId(region), .offset = offset, .bytes = bytes});
    offset += bytes + (random.Chance(0.5) ? random.Below(100) : 0);
    if (random.Chance(0.3)) {
      ++region;
      offset = random.Below(100);
    }
  }
  return placed;
}

using Place1 = std::pair<uint64_t, uint64_t>;  // region, offset

std::vector<Place1> Bytes(const std::vector<GpuRun>& runs) {
  std::vector<Place1> bytes;
  for (const GpuRun& run : runs) {
    for (uint64_t i = 0; i < run.bytes; ++i) bytes.emplace_back(run.region.value(), run.offset + i);
  }
  return bytes;
}

struct Case {
  KvFormat format;
  KvShape shape;
  std::vector<KvTensor> tensors;
  std::vector<uint32_t> table;
  KvTokens tokens;
};

Case RandomCase(KvFormat format, SeededRandom& random) {
  const auto upto = [&](uint64_t most) { return static_cast<uint32_t>(random.Between(1, most)); };
  const bool latent = format == KvFormat::kLatent;
  Case made = {.format = format,
               .shape = {.layers = upto(3),
                         .blocks = upto(7),
                         .block_tokens = upto(4),
                         .heads = latent ? 1 : upto(3),
                         .head_bytes = upto(5)},
               .tensors = {},
               .table = {},
               .tokens = {}};
  const NamedTensors named(format, made.shape);
  made.tensors = Place(named.tensors(), named.tensor_bytes(), random);
  for (uint32_t block = 0; block < made.shape.blocks; ++block) made.table.push_back(block);
  for (size_t i = 1; i < made.table.size(); ++i) {  // mostly in order, as engines' tables are
    if (random.Chance(0.4)) std::swap(made.table[i], made.table[random.Below(i + 1)]);
  }
  const uint64_t all = made.table.size() * made.shape.block_tokens;
  made.tokens.first_token = random.Below(all);
  made.tokens.tokens = random.Between(1, all - made.tokens.first_token);
  return made;
}

// Returns the place of each byte of the canonical payload: [2][layers][tokens][heads x dim].
std::vector<Place1> Canonical(const Case& given) {
  const NamedTensors named(given.format, given.shape);
  const KvShape& shape = given.shape;
  std::vector<Place1> places;
  Element e = {};
  for (e.kv = 0; e.kv < (given.format == KvFormat::kLatent ? 1u : 2u); ++e.kv) {
    for (e.layer = 0; e.layer < shape.layers; ++e.layer) {
      for (uint64_t t = 0; t < given.tokens.tokens; ++t) {
        const uint64_t token = given.tokens.first_token + t;
        e.block = given.table[token / shape.block_tokens];
        e.slot = token % shape.block_tokens;
        for (e.head = 0; e.head < shape.heads; ++e.head) {
          for (e.byte = 0; e.byte < shape.head_bytes; ++e.byte) {
            const KvTensor& tensor = given.tensors[named.Tensor(e)];
            places.emplace_back(tensor.region.value(), tensor.offset + named.Offset(e));
          }
        }
      }
    }
  }
  return places;
}

KvPlanner PlannerOf(const Case& given, KvOrder order) {
  absl::StatusOr<KvPlanner> planner = KvPlanner::Make(
      {.layout = KvLayout::Dense(given.format, given.shape, given.tensors), .order = order});
  REQUIRE(planner.status() == absl::OkStatus());
  return *std::move(planner);
}

TEST_CASE("the canonical order is [2][layers][tokens][heads x dim] of every format, byte by byte") {
  const auto format = static_cast<KvFormat>(GENERATE(range(size_t{0}, kKvFormats)));
  const uint64_t seed = GENERATE(range(1, 30));
  CAPTURE(KvFormatName(format), seed);
  SeededRandom random(seed * 100 + static_cast<uint64_t>(format));
  Case given = RandomCase(format, random);
  given.tokens.block_table = given.table;
  const auto runs = PlannerOf(given, KvOrder::kCanonical).Plan(given.tokens);
  REQUIRE(runs.status() == absl::OkStatus());
  CHECK(Bytes(*runs) == Canonical(given));
}

TEST_CASE("the memory's order has the same bytes, each once, and no run that could be joined") {
  const auto format = static_cast<KvFormat>(GENERATE(range(size_t{0}, kKvFormats)));
  const uint64_t seed = GENERATE(range(1, 30));
  CAPTURE(KvFormatName(format), seed);
  SeededRandom random(seed * 100 + static_cast<uint64_t>(format));
  Case given = RandomCase(format, random);
  given.tokens.block_table = given.table;
  const KvPlanner planner = PlannerOf(given, KvOrder::kMemory);
  const auto runs = planner.Plan(given.tokens);
  REQUIRE(runs.status() == absl::OkStatus());
  std::vector<Place1> planned = Bytes(*runs), wanted = Canonical(given);
  CHECK(planned.size() == planner.bytes_per_token() * given.tokens.tokens);
  std::sort(planned.begin(), planned.end());
  std::sort(wanted.begin(), wanted.end());
  CHECK(planned == wanted);
  for (const auto order : {KvOrder::kMemory, KvOrder::kCanonical}) {
    const auto plan = PlannerOf(given, order).Plan(given.tokens);
    REQUIRE(plan.ok());
    for (size_t i = 1; i < plan->size(); ++i) {
      const GpuRun &last = (*plan)[i - 1], &run = (*plan)[i];
      CHECK_FALSE((last.region == run.region && last.offset + last.bytes == run.offset));
    }
    CHECK(runs->size() <= plan->size());  // the memory's order never takes more
  }
}

TEST_CASE("two places of one layout have one payload in the memory's order") {
  // A get writes what a put has read from some blocks into others: element to element.
  const auto format = static_cast<KvFormat>(GENERATE(range(size_t{0}, kKvFormats)));
  CAPTURE(KvFormatName(format));
  const KvShape shape = {.layers = 2,
                         .blocks = 8,
                         .block_tokens = 3,
                         .heads = format == KvFormat::kLatent ? 1u : 2u,
                         .head_bytes = 4};
  const NamedTensors named(format, shape);
  SeededRandom random(7);
  Case from = {format,
               shape,
               Place(named.tensors(), named.tensor_bytes(), random),
               {0, 1, 2, 3},
               {.block_table = {}, .first_token = 3, .tokens = 9}};
  Case to = {format, shape, from.tensors, {6, 5, 4, 7}, from.tokens};
  from.tokens.block_table = from.table;
  to.tokens.block_table = to.table;
  const auto read = PlannerOf(from, KvOrder::kMemory).Plan(from.tokens);
  const auto written = PlannerOf(to, KvOrder::kMemory).Plan(to.tokens);
  REQUIRE((read.ok() && written.ok()));
  const std::vector<Place1> sources = Bytes(*read), targets = Bytes(*written);
  const std::vector<Place1> same_from = Canonical(from), same_to = Canonical(to);
  REQUIRE((sources.size() == targets.size() && sources.size() == same_from.size()));
  std::map<Place1, Place1> moved, wanted;
  for (size_t i = 0; i < sources.size(); ++i) {
    moved[targets[i]] = sources[i];
    wanted[same_to[i]] = same_from[i];
  }
  CHECK(moved == wanted);
}

KvLayout OneTensor(KvFormat format, const KvShape& shape) {
  const NamedTensors named(format, shape);
  std::vector<KvTensor> tensors;
  for (size_t i = 0; i < named.tensors(); ++i) {
    tensors.push_back({.region = GpuRegionId(i + 1), .offset = 0, .bytes = named.tensor_bytes()});
  }
  return KvLayout::Dense(format, shape, tensors);
}

constexpr KvShape kLlama8b = {
    .layers = 32, .blocks = 1000, .block_tokens = 16, .heads = 8, .head_bytes = 256};

size_t RunsOf(KvFormat format, const std::vector<uint32_t>& table) {
  const auto planner = KvPlanner::Make({.layout = OneTensor(format, kLlama8b)});
  REQUIRE(planner.ok());
  CHECK(planner->bytes_per_token() == 2 * 32 * 8 * 256);
  const auto runs = planner->Plan({.block_table = table, .first_token = 0, .tokens = 256});
  REQUIRE(runs.ok());
  return runs->size();
}

TEST_CASE("runs are as few as a format allows") {
  std::vector<uint32_t> adjacent, scattered;
  for (uint32_t i = 0; i < 16; ++i) {
    adjacent.push_back(100 + i);
    scattered.push_back(900 - 2 * i);
  }
  CHECK(RunsOf(KvFormat::kLayersKvBlocks, scattered) == 32 * 2 * 16);  // 32 KiB each
  CHECK(RunsOf(KvFormat::kLayersKvBlocks, adjacent) == 32 * 2);        // 512 KiB each
  CHECK(RunsOf(KvFormat::kLayersBlocksKv, adjacent) == 32);
  CHECK(RunsOf(KvFormat::kLayersFused, adjacent) == 32);
  CHECK(RunsOf(KvFormat::kLayersFusedHnd, adjacent) == 32);
  CHECK(RunsOf(KvFormat::kSplitKv, adjacent) == 64);
  CHECK(RunsOf(KvFormat::kBlocksFirst, scattered) == 16);  // 2 MiB each
  CHECK(RunsOf(KvFormat::kBlocksFirst, adjacent) == 1);
}

TEST_CASE("strides of its own make a layout with gaps, or in another order than its name") {
  // Logically [2,NB,BS,NH,HS], in memory by heads first (HND), with a page larger than its blocks.
  const KvShape shape = {.layers = 1, .blocks = 4, .block_tokens = 2, .heads = 3, .head_bytes = 8};
  KvLayout layout = KvLayout::Dense(KvFormat::kLayersKvBlocks, shape,
                                    {{.region = GpuRegionId(1), .offset = 0, .bytes = 1000}});
  layout.axis(KvAxis::kHead).stride = 16;
  layout.axis(KvAxis::kSlot).stride = 8;
  layout.axis(KvAxis::kBlock).stride = 100;
  layout.axis(KvAxis::kKv).stride = 48;
  const auto planner = KvPlanner::Make({.layout = layout});
  REQUIRE(planner.status() == absl::OkStatus());
  const std::vector<uint32_t> table = {1, 2};
  const auto runs = planner->Plan({.block_table = table, .first_token = 0, .tokens = 4});
  REQUIRE(runs.ok());
  CHECK(*runs == std::vector<GpuRun>{{GpuRegionId(1), 100, 96}, {GpuRegionId(1), 200, 96}});
}

std::string Refusal(const KvLayout& layout) {
  const absl::Status status = KvPlanner::Make({.layout = layout}).status();
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("a layout that does not fit its tensors, or itself, is refused by name") {
  const KvShape good = {.layers = 2, .blocks = 4, .block_tokens = 2, .heads = 2, .head_bytes = 8};
  const KvLayout layout = OneTensor(KvFormat::kLayersKvBlocks, good);
  REQUIRE(layout.Validate().ok());
  KvLayout wrong = layout;
  wrong.tensors[1].bytes -= 1;
  CHECK_THAT(Refusal(wrong), Contains("tensors[1]"));
  wrong = layout;
  wrong.tensors.pop_back();
  CHECK_THAT(Refusal(wrong), Contains("1 tensors where its axes take 2"));
  wrong = layout;
  wrong.tensors[0].offset = UINT64_MAX - 3;
  CHECK_THAT(Refusal(wrong), Contains("tensors[0]"));
  wrong = layout;
  wrong.axis(KvAxis::kHead).stride = 7;
  CHECK_THAT(Refusal(wrong), Contains("head has steps of 7 bytes over 8"));
  wrong = layout;
  wrong.axis(KvAxis::kSlot).stride = wrong.axis(KvAxis::kBlock).stride + 1;
  CHECK_THAT(Refusal(wrong), Contains("slot does not lie within a block"));
  wrong = layout;
  wrong.axis(KvAxis::kKv).extent = 3;
  CHECK_THAT(Refusal(wrong), Contains("kv has more"));
  wrong = layout;
  wrong.axis(KvAxis::kBlock).picks_tensor = true;
  CHECK_THAT(Refusal(wrong), Contains("block cannot pick"));
  wrong = layout;
  wrong.head_bytes = 0;
  CHECK_THAT(Refusal(wrong), Contains("head_bytes"));
  KvShape empty = good;
  empty.heads = 0;
  CHECK_THAT(Refusal(OneTensor(KvFormat::kBlocksFirst, empty)), Contains("head has no elements"));
}

TEST_CASE("no shape is too large to be refused") {
  const uint32_t big = UINT32_MAX;
  const auto format = static_cast<KvFormat>(GENERATE(range(size_t{0}, kKvFormats)));
  const bool latent = format == KvFormat::kLatent;
  for (const uint32_t layers : {1u, 2u}) {
    const KvShape shape = {.layers = layers,
                           .blocks = big,
                           .block_tokens = big,
                           .heads = latent ? 1 : big,
                           .head_bytes = big};
    const size_t tensors = NamedTensors(format, shape).tensors();
    const KvTensor all = {.region = GpuRegionId(1), .offset = 0, .bytes = UINT64_MAX};
    CHECK(Refusal(KvLayout::Dense(format, shape, std::vector<KvTensor>(tensors, all))) != "");
  }
}

TEST_CASE(
    "tokens beyond the table, blocks beyond the memory and chunks beyond limits are refused") {
  const KvShape shape = {.layers = 1, .blocks = 4, .block_tokens = 2, .heads = 1, .head_bytes = 8};
  KvPlannerOptions options = {.layout = OneTensor(KvFormat::kLayersKvBlocks, shape)};
  options.max_runs = 4;
  options.max_chunk_bytes = 6 * 16;
  const auto planner = KvPlanner::Make(options);
  REQUIRE(planner.ok());
  const auto plan = [&](std::vector<uint32_t> table, uint64_t first, uint64_t tokens) {
    return planner->Plan({.block_table = table, .first_token = first, .tokens = tokens}).status();
  };
  CHECK(plan({0, 2}, 0, 4).ok());
  CHECK(absl::IsInvalidArgument(plan({0, 2}, 0, 5)));
  CHECK(absl::IsInvalidArgument(plan({0, 2}, 4, 1)));
  CHECK(absl::IsInvalidArgument(plan({}, 0, 1)));
  CHECK(absl::IsInvalidArgument(plan({0}, 0, 0)));
  CHECK(absl::IsInvalidArgument(plan({0}, UINT64_MAX, 1)));
  CHECK(absl::IsInvalidArgument(plan({0}, UINT64_MAX, 2)));
  CHECK(absl::IsInvalidArgument(plan({0, 1, 2, 3}, 0, 7)));  // beyond max_chunk_bytes
  CHECK_THAT(std::string(plan({0, 4}, 0, 4).message()), Contains("block_table[1] is 4 of 4"));
  CHECK(plan({4, 0}, 2, 2).ok());                                                  // not looked at
  CHECK(plan({3, 0, 2, 1}, 1, 6).code() == absl::StatusCode::kResourceExhausted);  // 8 runs
  options.max_runs = 0;
  CHECK_FALSE(KvPlanner::Make(options).ok());
  options.max_runs = 1;
  options.max_chunk_bytes = 15;
  CHECK_FALSE(KvPlanner::Make(options).ok());
}

}  // namespace
}  // namespace kvkeep::client
