// The arithmetic of plan, against numbers worked out by hand; its models; its chart.
#include "tools/kvkeep/plan.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tools/kvkeep/plan_cpu.h"
#include "tools/kvkeep/plan_g4.h"
#include "tools/kvkeep/plan_models.h"
#include "tools/kvkeep/svg_chart.h"

namespace kvkeep::tools {
namespace {

// 100 us a token to recompute, 100,000 bytes of KV.
constexpr PlanDeployment kFour = {
    .kv_bytes_per_token = 100'000, .prefill_tokens_per_second = 10'000, .gpus = 4};

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("prefill takes two operations a parameter and token") {
  // 0.5 * 100e12 * 2 GPUs = 100e12 operations a second; 2e9 of them a token.
  CHECK(PrefillTokensPerSecond(1e9, 2, 100, 0.5) == Approx(50'000));
}

TEST_CASE("a fetch beats recomputing above prefill rate times bytes per token") {
  const FetchVerdict fast = JudgeFetch(kFour, 4e9, 0.0015);
  CHECK(fast.break_even_bytes_per_second == Approx(1e9));
  CHECK(fast.seconds_per_token == Approx(25e-6));
  CHECK(fast.times_faster == Approx(4));
  CHECK(fast.pays());
  // 75 us of 100 us a token are gained: 20 tokens make up for 1500 us.
  CHECK(*fast.least_tokens == Approx(20));
  const FetchVerdict slow = JudgeFetch(kFour, 0.5e9, 0.0015);
  CHECK(slow.times_faster == Approx(0.5));
  CHECK_FALSE(slow.pays());
  CHECK_FALSE(slow.least_tokens.has_value());
  CHECK_FALSE(JudgeFetch({.kv_bytes_per_token = 1}, 1e9, 0).pays());  // no rate known
}

TEST_CASE("drives last as many days as what is written a day fits into what they are rated for") {
  // 7305 TB / (10 TB a day * 2) = 365.25 days.
  CHECK(*DriveYears(7'305, 2, 10e12) == Approx(1));
  CHECK_FALSE(DriveYears(7'305, 2, 0).has_value());
}

TEST_CASE("what is saved is GPU time, its price, and its power less the cache's") {
  // 360e6 tokens at 10,000 a second: 36,000 s of 4 GPUs: 40 GPU hours.
  const PlanPrices prices{.gpu_dollars_per_hour = 2.5, .gpu_watts = 700, .cache_watts = 100};
  const PlanSavings savings = SavingsOf(kFour, prices, 360e6);
  CHECK(savings.gpu_hours_per_day == Approx(40));
  CHECK(*savings.dollars_per_day == Approx(100));
  // 144,000 s * 700 W - 86,400 s * 100 W
  CHECK(*savings.joules_per_day == Approx(100.8e6 - 8.64e6));
  CHECK_FALSE(SavingsOf(kFour, {}, 1).dollars_per_day.has_value());
  CHECK_FALSE(SavingsOf(kFour, {}, 1).joules_per_day.has_value());
}

TEST_CASE("tiers are paid off over the years, and drives sooner when they wear out sooner") {
  const PlanPrices prices{.dram_dollars_per_gib = 3, .nvme_dollars_per_terabyte = 100, .years = 5};
  constexpr uint64_t kTiB = uint64_t{1} << 40;
  // 1024 GiB * 3 $ / 5 + 10 TB * 100 $ / 2, by 365.25.
  CHECK(*TierDollarsPerDay(prices, kTiB, 10'000'000'000'000, 2) == Approx(1114.4 / 365.25));
  CHECK(*TierDollarsPerDay(prices, kTiB, 10'000'000'000'000, 9) == Approx(814.4 / 365.25));
  CHECK(*TierDollarsPerDay(prices, kTiB, 0, std::nullopt) == Approx(614.4 / 365.25));
  CHECK_FALSE(TierDollarsPerDay({}, kTiB, 0, std::nullopt).has_value());
  CHECK_FALSE(TierDollarsPerDay({.dram_dollars_per_gib = 3}, kTiB, kTiB, std::nullopt).has_value());
}

TEST_CASE("a day is scaled from what was looked at, and only tiers that are worth it count") {
  const PlanWorkload half_a_day{.seconds = 43'200,
                                .requests = 1'000,
                                .wanted_chunks = 10'000,
                                .chunk_bytes = 1e6,
                                .tokens_per_chunk = 512};
  const PlanPrediction half{.size = {.g2_bytes = 1 << 30, .g3_bytes = 1 << 30},
                            .hit_ratio = 0.5,
                            .g2_hit_ratio = 0.2,
                            .written_bytes = 3e12};
  PlanAssumptions assume{.deployment = kFour, .terabytes_written = 2'191.5};
  const PlanRow both = RowOf(half_a_day, assume, half);
  CHECK(*both.written_bytes_per_day == Approx(6e12));
  CHECK(*both.drive_years == Approx(1));
  CHECK(*both.tokens_saved_per_day == Approx(5'120'000));
  CHECK(*both.requests_saved_per_day == Approx(1'000));
  assume.g3_bytes_per_second = 0.9e9;  // recomputing is as fast as 1e9
  const PlanRow g2_alone = RowOf(half_a_day, assume, half);
  CHECK(*g2_alone.tokens_saved_per_day == Approx(2'048'000));
  CHECK(*g2_alone.requests_saved_per_day == Approx(400));
  PlanWorkload said = half_a_day;
  said.requests_per_day = 4'000;
  CHECK(*RowOf(said, assume, half).written_bytes_per_day == Approx(12e12));
  said = half_a_day;
  said.seconds = 0;  // one request
  CHECK_FALSE(RowOf(said, assume, half).written_bytes_per_day.has_value());
  assume.deployment.prefill_tokens_per_second = 0;
  CHECK_FALSE(RowOf(half_a_day, assume, half).tokens_saved_per_day.has_value());
}

TEST_CASE("a search for a run asks few questions: all that are there, none, or some") {
  CHECK(QuestionsOfSearch(1, 0) == 1);
  CHECK(QuestionsOfSearch(24, 3) == 24);  // a short run: each
  CHECK(QuestionsOfSearch(512, 0) == 20);
  CHECK(QuestionsOfSearch(512, 512) == 20);
  CHECK(QuestionsOfSearch(512, 200) > 20);
  CHECK(QuestionsOfSearch(2048, 700) <= 48);  // the most of one search
}

TEST_CASE("an image above 12 MiB is read in parts of 8 MiB") {
  SimulatedBucket bucket({.second_use = false});
  const TraceRequest request{.hash_ids = {1, 2}};
  using Place = SimulatedBucket::Place;
  const std::vector<Place> nowhere(2, Place::kNotOnNode);
  bucket.Serve(request, nowhere);
  bucket.Serve(request, nowhere);  // pushed out meanwhile
  PlanWorkload month{.seconds = kDaysPerYear / 12 * kSecondsPerDay,
                     .requests = 2, .wanted_chunks = 4, .chunk_bytes = 12 << 20};
  CHECK(G4RowOf(month, {}, {}, {}, bucket).gets == Approx(2));
  month.chunk_bytes = 13 << 20;
  CHECK(G4RowOf(month, {}, {}, {}, bucket).gets == Approx(4));
}

namespace {

CpuCosts SomeCosts() {
  CpuCosts costs{.origin = "made up"};
  for (const std::string& transport : CpuTransports()) {
    const double slower = transport == "tcp" ? 2 : 1;
    costs.paths.push_back({transport + " get", slower * 0.1, slower * 0.2});
    costs.paths.push_back({transport + " put", slower * 0.3, slower * 0.4});
  }
  costs.paths.push_back({"promotion", 9, 0.5});
  costs.paths.push_back({"write-back", 9, 0.25});
  return costs;
}

}  // namespace

TEST_CASE("cores are what each byte costs by what moves in a second") {
  const PlanTraffic traffic{
      .got_bytes = 10e9, .put_bytes = 1e9, .promoted_bytes = 2e9, .written_bytes = 4e9};
  const PlanCores local = CoresOf(SomeCosts(), "local", traffic);
  CHECK(local.daemon == Approx(10 * 0.2 + 0.4 + 2 * 0.5 + 4 * 0.25));
  CHECK(local.clients == Approx(10 * 0.1 + 0.3));
  CHECK(CoresOf(SomeCosts(), "tcp", traffic).clients == Approx(2 * local.clients));
}

TEST_CASE("what moves is what was asked for: hits are got, the others are put") {
  const PlanWorkload hour{.seconds = 3600, .requests = 10, .wanted_chunks = 7200, .chunk_bytes = 5};
  const PlanTraffic traffic =
      TrafficOf(hour, {.hit_ratio = 0.75, .g2_hit_ratio = 0.25, .written_bytes = 36'000});
  CHECK(traffic.got_bytes == Approx(7.5));
  CHECK(traffic.put_bytes == Approx(2.5));
  CHECK(traffic.promoted_bytes == Approx(5));
  CHECK(traffic.written_bytes == Approx(10));
}

TEST_CASE("the kept costs are a whole file with an origin; another is refused by what it lacks") {
  CHECK_FALSE(KnownCpuCosts().origin.empty());
  CHECK(KnownCpuCosts().of("unix put").daemon_seconds_per_gb > 0);
  const auto refusal = [](const std::string& json) {
    return std::string(ParseCpuCosts(json).status().message());
  };
  CHECK(absl::StrContains(refusal("[]"), "origin"));
  CHECK(absl::StrContains(refusal(R"({"origin": "x", "cpu_costs": []})"), "promotion"));
  CHECK(absl::StrContains(refusal(R"({"origin": "x", "cpu_costs": [{"path": "local get"}]})"),
                          "client_seconds_per_gb"));
}

TEST_CASE("without sizes they lie around what there is, and each is tried with each") {
  const auto sizes = PlanSizes({}, {}, 1 << 20, 1 << 24);
  CHECK(sizes.size() == 25);
  CHECK(sizes.front().g2_bytes == 1 << 18);
  CHECK(sizes.front().g3_bytes == 0);
  CHECK(sizes.back().g2_bytes == 1 << 22);
  CHECK(sizes.back().g3_bytes == 1 << 26);
  CHECK(PlanSizes({}, {}, 1 << 20, 0).size() == 5);
  const auto said = PlanSizes({5, 3, 5}, {0}, 1, 1);
  REQUIRE(said.size() == 2);
  CHECK(said[0].g2_bytes == 3);
  CHECK(RoundPlanSize(3e9) == uint64_t{1} << 32);
  CHECK(RoundPlanSize(0) == 1 << 20);
}

// From design documents and the models' configurations, worked out elsewhere.
TEST_CASE("the models that are known by name have these bytes of KV a token") {
  const auto kv = [](const char* name) { return FindPlanModel(name)->kv_bytes_per_token; };
  CHECK(kv("llama-3.1-8b") == 131'072);
  CHECK(kv("llama-3.3-70b") == 327'680);
  CHECK(kv("llama-3.1-405b") == 516'096);
  CHECK(kv("gpt-oss-120b") == 73'728);
  CHECK(kv("deepseek-r1") == 70'272);
  for (const PlanModel& model : KnownPlanModels().models) {
    CHECK(model.source.size() > 10);
    CHECK(model.attention_operations > 0);
  }
  CHECK(FindPlanGpu("h100")->bf16_tflops == 989);
  const auto attention = [](const char* name) { return FindPlanModel(name)->attention_operations; };
  CHECK(attention("llama-3.1-8b") == 4 * 32 * 32 * 128);
  CHECK(attention("gpt-oss-120b") == 4 * 18 * 64 * 64);
  CHECK(attention("deepseek-r1") == 61 * 128 * 2 * (192 + 128));
  CHECK(absl::StrContains(FindPlanModel("x").status().message(), "known are llama-3.1-8b, "));
  CHECK(absl::StrContains(FindPlanGpu("x").status().message(), "no GPU \"x\""));
}

TEST_CASE("a table of models that lacks something is refused by its field") {
  const auto message = [](const std::string& json) {
    return std::string(ParsePlanModels(json).status().message());
  };
  CHECK(message("[") == "not a JSON object with models and gpus");
  CHECK(absl::StrContains(
      message(R"({"models": [{"name": "a", "source": "b", "layers": 0}], "gpus": []})"),
      "layers: must be a number above 0"));
  CHECK(absl::StrContains(message(R"({"models": [{"name": "a"}], "gpus": []})"),
                          "source: must be a string"));
  CHECK(ParsePlanModels(R"({"models": [], "gpus": []})").ok());
}

TEST_CASE("a chart has a line for each, within its frame, and says what it is of") {
  const std::string svg =
      DrawChart("a < b", {{.title = "one",
                           .x_label = "x",
                           .lines = {{.name = "first", .points = {{1 << 20, 0}, {1 << 30, 50}}},
                                     {.name = "second", .points = {{1 << 24, 7}}, .dashed = true}}},
                          {.title = "two", .x_label = "x", .lines = {}}});
  CHECK(absl::StrContains(svg, "a &lt; b"));
  CHECK(Count(svg, "<polyline") == 2);
  CHECK(Count(svg, "<circle") == 2);
  CHECK(absl::StrContains(svg, "points=\"64.0,312.0 700.0,80.0 \""));
  CHECK(absl::StrContains(svg, ">1.0 GiB</text>"));
  CHECK_FALSE(absl::StrContains(svg, "nan"));
  CHECK_FALSE(absl::StrContains(svg, "inf"));
}

}  // namespace kvkeep::tools
