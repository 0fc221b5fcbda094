// The verb plan: predicts the effect and value of tiers of several sizes, from a trace or from a
// daemon's requests.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <CLI/CLI.hpp>
#include <fstream>

#include "tiers/base/status_macros.h"
#include "tiers/policy/admission_policy.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/policy/trace.h"
#include "tiers/policy/trace_curve.h"
#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/plan.h"
#include "tools/kvkeep/plan_models.h"
#include "tools/kvkeep/plan_view.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

constexpr uint32_t kSampledKeys = 65'536;
// References times sizes: above this (about a minute) the sampled curve is used.
constexpr double kMostSimulated = 1.5e8;

struct PlanArguments {
  std::string trace;
  bool live = false;
  std::vector<std::string> g2, g3;
  std::string method = "auto";
  TiersOptions tiers;
  std::string model, gpu = "h100", precision = "bf16", svg;
  double gpus = 0, mfu = 0, prefill_rate = 0, kv_bytes_per_token = 0;
  double tokens_per_chunk = 512, requests_per_day = 0;
  double g2_gigabytes = 25, g3_gigabytes = 6, fetch_microseconds = 500;
  PlanAssumptions assumptions;
  bool g4 = false;
  G4Assumptions g4_assumptions;
};

std::vector<uint64_t> SizesOf(const std::vector<std::string>& texts) {
  std::vector<uint64_t> sizes;
  for (const std::string& text : texts) sizes.push_back(*ParseSize(text));  // checked by CLI11
  return sizes;
}

// Fills the plan's assumptions from the model and the GPU, and from the options that override them.
absl::Status Assume(const PlanArguments& asked, Plan& plan) {
  PlanAssumptions& assumptions = plan.assumptions;
  assumptions = asked.assumptions;
  assumptions.g2_bytes_per_second = asked.g2_gigabytes * 1e9;
  assumptions.g3_bytes_per_second = asked.g3_gigabytes * 1e9;
  assumptions.seconds_per_fetch = asked.fetch_microseconds * 1e-6;
  PlanDeployment& deployment = assumptions.deployment;
  KVKEEP_ASSIGN_OR_RETURN(const PlanGpu gpu, FindPlanGpu(asked.gpu));
  plan.gpu = gpu.name;
  plan.gpu_from = gpu.source;
  if (assumptions.prices.gpu_watts <= 0) assumptions.prices.gpu_watts = gpu.watts;
  if (!asked.model.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(const PlanModel model, FindPlanModel(asked.model));
    plan.model = model.name;
    plan.model_from = model.source;
    deployment = {.kv_bytes_per_token = model.kv_bytes_per_token, .gpus = model.gpus};
    if (asked.gpus > 0) deployment.gpus = asked.gpus;
    const double tflops = asked.precision == "fp8" ? gpu.fp8_tflops : gpu.bf16_tflops;
    if (tflops <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("--precision: ", gpu.name, " has no fp8"));
    }
    deployment.prefill_tokens_per_second = PrefillTokensPerSecond(
        model.active_parameters, deployment.gpus, tflops, asked.mfu > 0 ? asked.mfu : model.mfu);
  }
  if (asked.gpus > 0) deployment.gpus = asked.gpus;
  if (asked.kv_bytes_per_token > 0) deployment.kv_bytes_per_token = asked.kv_bytes_per_token;
  if (asked.prefill_rate > 0) deployment.prefill_tokens_per_second = asked.prefill_rate;
  if (deployment.kv_bytes_per_token > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--model or --kv-bytes-per-token is required; known models are ",
      absl::StrJoin(KnownPlanModels().models, ", ",
                    [](std::string* out, const PlanModel& model) { out->append(model.name); })));
}

TiersOptions SimulatedTiersOf(const PlanArguments& asked, const Plan& plan) {
  TiersOptions tiers = asked.tiers;
  tiers.chunk_bytes = static_cast<uint64_t>(plan.workload.chunk_bytes);
  if (asked.assumptions.terabytes_written > 0 && plan.workload.seconds > 0) {
    // A second of the trace may be more or less than a second of the daemon.
    const double faster = plan.workload.days() * kSecondsPerDay / plan.workload.seconds;
    tiers.admission_options.bytes_per_second =
        faster * EnduranceBytesPerSecond(
                     asked.assumptions.terabytes_written / asked.assumptions.write_amplification,
                     asked.assumptions.prices.years);
  }
  return tiers;
}

bool CurveKnows(const TiersOptions& tiers) {
  return tiers.g2_policy == "lru" && tiers.g3_policy == "lru" && tiers.admission == "all";
}

// Predicts one size, with the buckets behind it if --g4 is set.
absl::Status PredictOne(const PlanArguments& asked, std::span<const TraceRequest> trace,
                        uint64_t distinct, TiersOptions tiers, const PlanSize& size, Plan& plan) {
  std::vector<SimulatedBucket> buckets;
  if (plan.g4.has_value()) {
    buckets = MakePlanBuckets(asked.g4_assumptions, plan.workload.days(), plan.workload.seconds);
    for (SimulatedBucket& bucket : buckets) tiers.buckets.push_back(&bucket);
  }
  KVKEEP_ASSIGN_OR_RETURN(const PlanPrediction predicted,
                          PredictBySimulation(trace, distinct, tiers, size));
  plan.rows.push_back(RowOf(plan.workload, plan.assumptions, predicted));
  for (const SimulatedBucket& bucket : buckets) {
    plan.g4->rows.push_back(
        G4RowOf(plan.workload, plan.assumptions, asked.g4_assumptions, predicted, bucket));
  }
  return absl::OkStatus();
}

absl::Status PredictAll(const Cli& cli, const PlanArguments& asked,
                        std::span<const TraceRequest> trace, uint64_t distinct,
                        const std::vector<PlanSize>& sizes, Plan& plan) {
  const TiersOptions tiers = SimulatedTiersOf(asked, plan);
  const double work = plan.workload.wanted_chunks * static_cast<double>(sizes.size());
  const bool curve = asked.method == "sample" || (asked.method == "auto" && !asked.g4 &&
                                                  CurveKnows(tiers) && work > kMostSimulated);
  if (curve && asked.g4) return absl::InvalidArgumentError("--g4: say --method simulate");
  if (curve && !CurveKnows(tiers)) {
    return absl::InvalidArgumentError(
        "--method sample only supports lru and admission all: use --method simulate");
  }
  plan.method = curve ? "sample" : "simulate";
  plan.policies = absl::StrCat("G2 ", tiers.g2_policy, ", G3 ", tiers.g3_policy, ", admission ",
                               tiers.admission);
  for (const PlanSize& size : sizes) {
    if (cli.terminal.progress) {
      cli.terminal.err << "\rplan: " << plan.rows.size() << " of " << sizes.size() << std::flush;
    }
    absl::Status predicted;
    if (curve) {
      plan.rows.push_back(
          RowOf(plan.workload, plan.assumptions,
                PredictByCurve(plan.curve, plan.workload.chunk_bytes, size)));
    } else {
      predicted = PredictOne(asked, trace, distinct, tiers, size, plan);
    }
    if (cli.terminal.progress) cli.terminal.err << "\r\033[K" << std::flush;
    if (!predicted.ok()) return predicted;
  }
  return absl::OkStatus();
}

absl::Status PlanOfTrace(const Cli& cli, const PlanArguments& asked,
                         std::span<const TraceRequest> trace, Plan& plan) {
  KVKEEP_RETURN_IF_ERROR(Assume(asked, plan));
  const TraceFacts facts = FactsOf(trace);
  const double chunk_bytes = std::clamp(
      plan.assumptions.deployment.kv_bytes_per_token * asked.tokens_per_chunk, 1.0, 1e15);
  plan.source = asked.trace;
  plan.workload = {.seconds = facts.seconds,
                   .requests = static_cast<double>(facts.requests),
                   .wanted_chunks = static_cast<double>(facts.chunk_refs),
                   .chunk_bytes = chunk_bytes,
                   .tokens_per_chunk = asked.tokens_per_chunk,
                   .requests_per_day = asked.requests_per_day};
  if (asked.g4 && plan.workload.days() * plan.workload.seconds <= 0) {
    return absl::InvalidArgumentError("--g4: all requests of the trace have the same time");
  }
  if (asked.g4) plan.g4 = PlanG4{.assumptions = asked.g4_assumptions};
  plan.curve = CurveOf(trace, static_cast<uint64_t>(chunk_bytes), kSampledKeys);
  const double all = static_cast<double>(facts.distinct_chunks) * chunk_bytes;
  const std::vector<PlanSize> sizes = PlanSizes(SizesOf(asked.g2), SizesOf(asked.g3),
                                                RoundPlanSize(all / 16), RoundPlanSize(all / 4));
  return PredictAll(cli, asked, trace, facts.distinct_chunks, sizes, plan);
}

// Converts a daemon's answer back to its curve.
ReuseCurve CurveToldBy(const v1::ShowReuseResponse& told) {
  ReuseCurve curve;
  curve.requests = told.lookups();
  curve.wanted = told.wanted_chunks();
  curve.cold = told.cold_chunks();
  for (const v1::ReuseDistance& distance : told.distances()) {
    // The bound is the next bucket's first distance.
    const double within = std::clamp(distance.below_bytes() * 0.99, 1.0, 9e18);
    curve.at[ReuseCurve::BucketOf(static_cast<uint64_t>(within))] += distance.chunks();
  }
  curve.first_stored_chunks = told.stored_chunks();
  curve.first_stored_bytes = told.stored_bytes();
  return curve;
}

absl::Status PlanLive(const Cli& cli, const PlanArguments& asked, Plan& plan) {
  client::AdminClient admin = cli.Admin();
  KVKEEP_ASSIGN_OR_RETURN(const v1::StatusResponse status, admin.Status());
  KVKEEP_ASSIGN_OR_RETURN(const v1::ShowReuseResponse told, admin.ShowReuse());
  plan.curve = CurveToldBy(told);
  const double chunk_bytes = plan.curve.mean_bytes();
  if (told.wanted_chunks() == 0 || chunk_bytes <= 0) {
    return absl::FailedPreconditionError(
        "the daemon has had no requests, or stored nothing, since its start or the last clear");
  }
  plan.source = cli.admin_endpoint;
  plan.method = "sample";
  plan.policies = "as G2 lru, G3 lru, admission all";
  plan.workload = {.seconds = static_cast<double>(told.measured_ms()) / 1000,
                   .requests = static_cast<double>(told.lookups()),
                   .wanted_chunks = static_cast<double>(told.wanted_chunks()),
                   .chunk_bytes = chunk_bytes,
                   .tokens_per_chunk = chunk_bytes / plan.assumptions.deployment.kv_bytes_per_token,
                   .requests_per_day = asked.requests_per_day};
  const PlanSize size{.g2_bytes = status.g2().capacity_bytes(),
                      .g3_bytes = status.g3().capacity_bytes()};
  plan.now = Plan::Now{.predicted = PredictByCurve(plan.curve, chunk_bytes, size),
                       .measured_hit_ratio = static_cast<double>(told.found_chunks()) /
                                             static_cast<double>(told.wanted_chunks())};
  for (const PlanSize& tried :
       PlanSizes(SizesOf(asked.g2), SizesOf(asked.g3), size.g2_bytes, size.g3_bytes)) {
    plan.rows.push_back(
        RowOf(plan.workload, plan.assumptions, PredictByCurve(plan.curve, chunk_bytes, tried)));
  }
  return absl::OkStatus();
}

int Told(const Cli& cli, const PlanArguments& asked, const Plan& plan) {
  if (!asked.svg.empty()) {
    std::ofstream file(asked.svg);
    file << PlanChart(plan);
    file.close();
    if (!file) return cli.Fail(absl::InternalError(absl::StrCat(asked.svg, ": cannot be written")));
  }
  return cli.Print(PlanJson(plan), PlanText(plan));
}

int RunLivePlan(const Cli& cli, const PlanArguments& asked) {
  Plan plan;
  if (asked.method == "simulate" || asked.g4 || !CurveKnows(asked.tiers)) {
    return cli.FailUsage("--live only supports lru and admission all, by samples, without G4");
  }
  if (const absl::Status known = Assume(asked, plan); !known.ok()) {
    return cli.FailUsage(std::string(known.message()));
  }
  if (const absl::Status planned = PlanLive(cli, asked, plan); !planned.ok()) {
    return cli.Fail(planned);
  }
  return Told(cli, asked, plan);
}

int RunPlan(const Cli& cli, const PlanArguments& asked) {
  if (asked.live != asked.trace.empty()) {
    return cli.FailUsage("give either TRACE or --live");
  }
  if (asked.live) return RunLivePlan(cli, asked);
  auto trace = ReadTrace(asked.trace);
  if (!trace.ok()) {
    const int code = cli.Fail(trace.status());
    return code == kNotFound ? kFailed : code;  // exit code 3 is about chunks
  }
  Plan plan;
  const absl::Status planned = PlanOfTrace(cli, asked, *trace, plan);
  if (!planned.ok()) return cli.FailUsage(std::string(planned.message()));
  return Told(cli, asked, plan);
}

// Sizes and policies.
void AddTierOptions(CLI::App* verb, PlanArguments& asked) {
  verb->add_option("--g2", asked.g2, "sizes of G2, with commas: 64GiB,128GiB")
      ->delimiter(',')
      ->check(BadSizeAboveZero);
  verb->add_option("--g3", asked.g3, "sizes of G3; 0: none")->delimiter(',')->check(BadSize);
  const std::string policies = absl::StrJoin(EvictionPolicyNames(), ", ");
  verb->add_option("--g2-policy", asked.tiers.g2_policy, absl::StrCat("one of ", policies));
  verb->add_option("--g3-policy", asked.tiers.g3_policy, absl::StrCat("one of ", policies));
  verb->add_option("--admission", asked.tiers.admission,
                   absl::StrCat("which chunks are written to G3: one of ",
                                absl::StrJoin(AdmissionPolicyNames(), ", ")));
  verb->add_option("--method", asked.method,
                   "simulate: run the policies at each size; sample: sampled reuse distances, lru "
                   "only; auto: simulate, unless it would take long")
      ->check(CLI::IsMember({"auto", "simulate", "sample"}));
  verb->add_option("--tokens-per-chunk", asked.tokens_per_chunk, "of the trace")
      ->check(CLI::Range(1.0, 1e6));
  verb->add_option("--requests-per-day", asked.requests_per_day,
                   "expected requests a day; by default as in the trace");
}

// Adds the options for the model, fetches and recomputing.
void AddModelOptions(CLI::App* verb, PlanArguments& asked) {
  verb->add_option("--model", asked.model, "a model of tools/kvkeep/models.json");
  verb->add_option("--kv-bytes-per-token", asked.kv_bytes_per_token,
                   "of all ranks together, instead of the model's")
      ->check(CLI::Range(1.0, 1e9));
  verb->add_option("--prefill-rate", asked.prefill_rate,
                   "tokens a second of the deployment, as measured, instead of the model's")
      ->check(CLI::Range(1.0, 1e9));
  verb->add_option("--gpu", asked.gpu, "a GPU of models.json");
  verb->add_option("--gpus", asked.gpus, "GPUs of the deployment; 0: as many as the model needs")
      ->check(CLI::Range(0.0, 1e5));
  verb->add_option("--precision", asked.precision, "of prefill")
      ->check(CLI::IsMember({"bf16", "fp8"}));
  verb->add_option("--mfu", asked.mfu, "share of the GPUs' peak that prefill gets; 0: the model's")
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--transport", asked.assumptions.transport,
                   "from engines to the daemon, for the cores that both need: local, unix, tcp")
      ->check(CLI::IsMember(CpuTransports()));
  verb->add_option("--g2-gb-s", asked.g2_gigabytes, "GB a second from G2 to the GPUs")
      ->check(CLI::Range(1e-3, 1e6));
  verb->add_option("--g3-gb-s", asked.g3_gigabytes, "GB a second from G3 to the GPUs")
      ->check(CLI::Range(1e-3, 1e6));
  verb->add_option("--fetch-us", asked.fetch_microseconds, "fixed microseconds of a fetch")
      ->check(CLI::Range(0.0, 1e9));
}

// Adds the options for drives, prices and powers. Costs without a price are not shown.
void AddPriceOptions(CLI::App* verb, PlanArguments& asked) {
  PlanPrices& prices = asked.assumptions.prices;
  const auto known = CLI::Range(0.0, 1e12);
  verb->add_option("--tbw", asked.assumptions.terabytes_written,
                   "rated terabytes written of all drives together")
      ->check(known);
  verb->add_option("--write-amplification", asked.assumptions.write_amplification,
                   "bytes that drives write for each byte of kvkeep's")
      ->check(CLI::Range(1.0, 100.0));
  verb->add_option("--gpu-price", prices.gpu_dollars_per_hour, "$ an hour of one GPU")
      ->check(known);
  verb->add_option("--gpu-watts", prices.gpu_watts,
                   "watts of a GPU at prefill; 0: as in models.json")
      ->check(known);
  verb->add_option("--cache-watts", prices.cache_watts, "constant watts of the tiers")
      ->check(known);
  verb->add_option("--dram-price", prices.dram_dollars_per_gib, "$ a GiB of G2")->check(known);
  verb->add_option("--nvme-price", prices.nvme_dollars_per_terabyte, "$ a terabyte of G3")
      ->check(known);
  verb->add_option("--years", prices.years,
                   "years in which both are paid off, drives within their life; for write_budget, "
                   "the years that drives must last")
      ->check(CLI::Range(0.01, 100.0));
}

void AddG4Options(CLI::App* verb, PlanArguments& asked) {
  G4Prices& prices = asked.g4_assumptions.prices;
  const auto price = CLI::Range(0.0, 1e6);
  verb->add_flag("--g4", asked.g4,
                 "with a bucket behind each size: hits, requests, bytes and $ a month, for both "
                 "admissions of G4");
  verb->add_option("--g4-lifetime", asked.g4_assumptions.lifetime_days,
                   "days that an object lives, by the bucket's rule")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 36'500.0));
  verb->add_option("--g4-put-price", prices.put_dollars_per_1000,
                   "$ for 1,000 PUTs; the default prices are S3 Standard's, us-east-1")
      ->capture_default_str()
      ->check(price);
  verb->add_option("--g4-get-price", prices.get_dollars_per_1000, "$ for 1,000 GETs")
      ->capture_default_str()
      ->check(price);
  verb->add_option("--g4-storage-price", prices.storage_dollars_per_gib_month,
                   "$ for a GiB (S3's GB) stored for a month")
      ->capture_default_str()
      ->check(price);
  verb->add_option("--g4-traffic-price", prices.traffic_dollars_per_gib, "$ for a GiB read")
      ->capture_default_str()
      ->check(price);
}

}  // namespace

void AddPlanVerb(CLI::App& app, Cli& cli) {
  auto asked = std::make_shared<PlanArguments>();
  CLI::App* verb = app.add_subcommand(
      "plan",
      "sizes for G2 and G3: hit ratio, bytes written to NVMe and how long drives last, whether a "
      "fetch beats recomputing, GPU hours, $ and joules saved; of a trace, or of a daemon's "
      "lookups "
      "(admin socket)");
  verb->add_option("TRACE", asked->trace, "JSON lines with hash_ids");
  verb->add_flag("--live", asked->live, "plan for the daemon's requests since its start");
  AddTierOptions(verb, *asked);
  AddModelOptions(verb, *asked);
  AddPriceOptions(verb, *asked);
  AddG4Options(verb, *asked);
  verb->add_option("--svg", asked->svg, "file to write a chart to");
  verb->callback([&cli, asked] { cli.run = [&cli, asked] { return RunPlan(cli, *asked); }; });
}

}  // namespace kvkeep::tools
