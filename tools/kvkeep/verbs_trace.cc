// The verbs about traces: replay, through a daemon, and simulate, without one.
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/strip.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/policy/simulate.h"
#include "tiers/policy/trace.h"
#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/plan_cost.h"
#include "tools/kvkeep/plan_models.h"
#include "tools/kvkeep/replay.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

using std::chrono::steady_clock;

constexpr int kMaxConcurrency = 256;

struct ReplayArguments {
  std::string trace;
  std::string chunk_bytes = "2MiB";
  uint64_t requests = 0;
  uint64_t skip = 0;
  std::string remote_wait = "0";
  ReplayOptions options;
};

double GigabytesPerSecond(uint64_t bytes, double thread_seconds, int threads) {
  if (thread_seconds <= 0) return 0;
  return static_cast<double>(bytes) / 1e9 / (thread_seconds / threads);
}

Json ReportJson(ReplayReport& report) {
  return {
      {"requests", report.requests},
      {"chunk_refs", report.chunk_refs},
      {"leading_hit_chunks", report.leading_hit_chunks},
      {"hit_ratio", report.hit_ratio()},
      {"g2_hits", report.g2_hits},
      {"g3_hits", report.g3_hits},
      {"g4_hits", report.g4_hits},
      {"put_chunks", report.put_chunks},
      {"rejected", report.rejected},
      {"rejected_because", report.rejected_because},
      {"wrong_bytes", report.wrong_bytes},
      {"seconds", report.seconds},
      {"get_gb_s", GigabytesPerSecond(report.bytes_got, report.get_seconds, report.concurrency)},
      {"put_gb_s", GigabytesPerSecond(report.bytes_put, report.put_seconds, report.concurrency)},
      {"lookup_us_p50", Percentile(report.lookup_us, 0.5)},
      {"lookup_us_p99", Percentile(report.lookup_us, 0.99)},
      {"get_chunk_us_p50", Percentile(report.get_chunk_us, 0.5)},
      {"get_chunk_us_p99", Percentile(report.get_chunk_us, 0.99)},
      {"present", report.present_chunks},
      {"corrupt_chunks", report.corrupt_chunks},
      {"lost_promises", report.lost_promises},
      {"unleased_windows", report.unleased_windows},
      {"unavailable", report.unavailable},
      {"failed_calls", report.failed_calls},
      {"bytes_got", report.bytes_got},
      {"bytes_put", report.bytes_put},
      {"status_polls", report.status_polls},
      {"capacity_violations", report.capacity_violations},
      {"resident_chunks_g2", report.resident_chunks_g2},
      {"resident_chunks_g3", report.resident_chunks_g3}};
}

std::string ReportText(const Json& report) {
  std::vector<std::vector<std::string>> rows = {{"REPLAY", "VALUE"}};
  for (const auto& [name, value] : report.items()) {
    rows.push_back({name, value.is_number_float() ? absl::StrFormat("%.4f", value.get<double>())
                                                  : value.dump()});
  }
  return FormatTable(rows);
}

int FailTrace(const Cli& cli, const absl::Status& status) {
  const int code = cli.Fail(status);
  return code == kNotFound ? kFailed : code;  // exit code 3 is about chunks
}

int RunReplay(const Cli& cli, ReplayArguments& arguments) {
  auto trace = ReadTrace(arguments.trace);
  if (!trace.ok()) return FailTrace(cli, trace.status());
  std::span<const TraceRequest> requests(*trace);
  requests = requests.subspan(std::min<size_t>(arguments.skip, requests.size()));
  if (arguments.requests > 0) {
    requests = requests.first(std::min<size_t>(arguments.requests, requests.size()));
  }
  ReplayOptions& options = arguments.options;
  options.endpoint = cli.endpoint;
  options.admin_endpoint = cli.admin_endpoint;
  options.timeout = cli.timeout();
  options.path = cli.path();
  options.chunk_sizes = *ParseChunkSizes(arguments.chunk_bytes);  // checked with the options
  options.remote_wait = *ParseRemoteWait(arguments.remote_wait);

  auto shown = steady_clock::now();
  auto report = Replay(options, requests, [&](uint64_t done) {
    if (!cli.terminal.progress || steady_clock::now() - shown < std::chrono::seconds(1)) return;
    shown = steady_clock::now();
    cli.terminal.err << "\rreplay: " << done << " of " << requests.size() << " requests"
                     << std::flush;
  });
  if (cli.terminal.progress) cli.terminal.err << "\r\033[K" << std::flush;
  if (!report.ok()) return FailTrace(cli, report.status());
  std::ostream& err = cli.terminal.err;
  if (!report->first_failure.empty())
    err << "kvkeep: first failure: " << report->first_failure << "\n";
  if (report->rejected > 0) {
    err << "kvkeep: rejected " << report->rejected << " (";
    const char* before = "";
    for (const auto& [reason, count] : report->rejected_because) {
      err << std::exchange(before, ", ") << reason << ": " << count;
    }
    err << "); first: " << report->first_rejection << "\n";
  }
  if (report->wrong_bytes > 0) err << "kvkeep: WRONG BYTES: " << report->wrong_bytes << "\n";
  if (report->capacity_violations > 0) {
    err << "kvkeep: over capacity, " << report->capacity_violations
        << " times; first: " << report->first_violation << "\n";
  }
  const Json json = ReportJson(*report);
  return cli.Print(json, ReportText(json), report->good() ? kOk : kFailed);
}

struct SimulateArguments {
  std::string trace;
  std::string policy = "lru";
  std::vector<uint64_t> chunks;
  TiersOptions tiers;  // with --g3-chunks
  std::string chunk_bytes = "2MiB";
  uint64_t tokens_per_chunk = 512;
  bool full_chunks = false;
  double prefill_tokens_per_second = 10'000;
  std::string objective = "hits", model = "llama-3.1-8b", gpu = "h100";
  double terabytes_written = 0, years = 5;
  std::string hints;  // "oracle:RIGHT"; empty: none
  HintOptions hint_options;
  std::string hint_actions = "both";
  double hint_seconds = 300;
};

// Returns what prefill costs: by --prefill-rate, without attention, or by the model.
absl::StatusOr<PrefillCost> CostOf(const SimulateArguments& arguments) {
  PrefillCost cost{.seconds_per_token = 1 / arguments.prefill_tokens_per_second,
                   .tokens_per_chunk = arguments.tokens_per_chunk};
  if (arguments.objective != "seconds") return cost;
  KVKEEP_ASSIGN_OR_RETURN(const PlanModel model, FindPlanModel(arguments.model));
  KVKEEP_ASSIGN_OR_RETURN(const PlanGpu gpu, FindPlanGpu(arguments.gpu));
  cost.seconds_per_token =
      1 / PrefillTokensPerSecond(model.active_parameters, model.gpus, gpu.bf16_tflops, model.mfu);
  cost.seconds_per_pair =
      cost.seconds_per_token * model.attention_operations / (2 * model.active_parameters);
  return cost;
}

// Returns RIGHT of "oracle:RIGHT"; none if the text is something else.
std::optional<double> RightOf(absl::string_view hints) {
  double right = 0;
  const bool is = absl::ConsumePrefix(&hints, "oracle:") && absl::SimpleAtod(hints, &right);
  return is && right >= 0 && right <= 1 ? std::optional(right) : std::nullopt;
}

// Simulates hints; one row, or object, for each size.
int RunHints(const Cli& cli, const SimulateArguments& arguments,
             std::span<const TraceRequest> trace) {
  HintOptions options = arguments.hint_options;
  options.right = *RightOf(arguments.hints);
  options.retains = arguments.hint_actions != "demote";
  options.demotes = arguments.hint_actions != "retain";
  options.retained_for =
      std::chrono::milliseconds(static_cast<int64_t>(arguments.hint_seconds * 1e3));
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {
      {"CHUNKS", "HIT RATIO", "RETENTIONS", "SHORTENED", "DEMOTIONS"}};
  for (const uint64_t chunks : arguments.chunks) {
    const auto result = SimulateHints(trace, arguments.policy, chunks, options);
    if (!result.ok()) return cli.FailUsage(std::string(result.status().message()));
    const SimulatedHints::Counters& hints = result->hints;
    list.push_back(Json::object({{"chunks", chunks},
                                 {"hit_ratio", result->trace.hit_ratio},
                                 {"retentions", hints.retentions},
                                 {"shortened", hints.shortened},
                                 {"demotions", hints.demotions}}));
    rows.push_back({absl::StrCat(chunks), absl::StrFormat("%.4f", result->trace.hit_ratio),
                    absl::StrCat(hints.retentions), absl::StrCat(hints.shortened),
                    absl::StrCat(hints.demotions)});
  }
  return cli.Print(list, FormatTable(rows));
}

// Simulates a second tier; one row, or object, for each size of the first.
int RunTiers(const Cli& cli, const SimulateArguments& arguments,
             std::span<const TraceRequest> trace, const PrefillCost& cost) {
  TiersOptions options = arguments.tiers;
  options.cost = cost;
  options.g2_policy = arguments.policy;
  options.chunk_bytes = ParseChunkSizes(arguments.chunk_bytes)->front();
  if (arguments.terabytes_written > 0) {
    options.admission_options.bytes_per_second =
        EnduranceBytesPerSecond(arguments.terabytes_written, arguments.years);
  }
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {
      {"G2 CHUNKS", "HIT RATIO", "FROM G2", "G3 WRITTEN GB", "PREFILL SAVED S"}};
  for (const uint64_t chunks : arguments.chunks) {
    options.g2_chunks = chunks;
    const auto result = SimulateTiers(trace, options);
    if (!result.ok()) return cli.FailUsage(std::string(result.status().message()));
    const double saved = result->trace.seconds_saved;
    list.push_back(Json::object({{"chunks", chunks},
                                 {"hit_ratio", result->trace.hit_ratio},
                                 {"g2_hit_chunks", result->g2_hit_chunks},
                                 {"hit_chunks", result->trace.leading_hit_chunks},
                                 {"g3_written_bytes", result->g3_written_bytes},
                                 {"prefill_seconds_saved", saved}}));
    rows.push_back({absl::StrCat(chunks), absl::StrFormat("%.4f", result->trace.hit_ratio),
                    absl::StrCat(result->g2_hit_chunks),
                    absl::StrFormat("%.1f", static_cast<double>(result->g3_written_bytes) / 1e9),
                    absl::StrFormat("%.0f", saved)});
  }
  return cli.Print(list, FormatTable(rows));
}

int RunSimulate(const Cli& cli, const SimulateArguments& arguments) {
  auto trace = ReadTrace(arguments.trace);
  if (!trace.ok()) return FailTrace(cli, trace.status());
  const auto cost = CostOf(arguments);
  if (!cost.ok()) return cli.FailUsage(std::string(cost.status().message()));
  const bool by_seconds = arguments.objective == "seconds";
  if (arguments.full_chunks) KeepFullChunks(*trace, arguments.tokens_per_chunk);
  if (arguments.tiers.g3_chunks > 0) {
    if (!arguments.hints.empty()) return cli.FailUsage("--hints: not with --g3-chunks");
    return RunTiers(cli, arguments, *trace, *cost);
  }
  if (!arguments.hints.empty()) {
    if (by_seconds) return cli.FailUsage("--hints: not with --objective seconds");
    return RunHints(cli, arguments, *trace);
  }
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {{"CHUNKS", "HIT RATIO"}};
  if (by_seconds) rows[0].insert(rows[0].end(), {"PREFILL S", "SAVED S"});
  for (uint64_t chunks : arguments.chunks) {
    if (cli.terminal.progress) {
      cli.terminal.err << "\rsimulate: " << chunks << " chunks" << std::flush;
    }
    auto result = SimulateTrace(*trace, arguments.policy, chunks, {}, *cost);
    if (cli.terminal.progress) cli.terminal.err << "\r\033[K" << std::flush;
    if (!result.ok()) return cli.FailUsage(std::string(result.status().message()));
    list.push_back(Json::object({{"chunks", chunks}, {"hit_ratio", result->hit_ratio}}));
    rows.push_back({absl::StrCat(chunks), absl::StrFormat("%.4f", result->hit_ratio)});
    if (!by_seconds) continue;
    list.back()["prefill_seconds"] = result->prefill_seconds;
    list.back()["prefill_seconds_saved"] = result->seconds_saved;
    rows.back().push_back(absl::StrFormat("%.0f", result->prefill_seconds));
    rows.back().push_back(absl::StrFormat("%.1f", result->seconds_saved));
  }
  return cli.Print(list, FormatTable(rows));
}

void AddReplay(CLI::App& app, Cli& cli) {
  auto arguments = std::make_shared<ReplayArguments>();
  CLI::App* verb =
      app.add_subcommand("replay", "play a Mooncake trace through the daemon and check every byte");
  verb->add_option("TRACE", arguments->trace, "JSON lines with hash_ids")->required();
  verb->add_option("--chunk-bytes", arguments->chunk_bytes,
                   "size of chunks; several with commas are mixed, e.g. 256KiB,2MiB,33MiB")
      ->check([](const std::string& text) {
        return std::string(ParseChunkSizes(text).status().message());
      });
  verb->add_option("--requests", arguments->requests, "the most requests; 0: all");
  verb->add_option("--skip", arguments->skip, "requests to skip at the beginning");
  verb->add_option("--concurrency", arguments->options.concurrency, "threads, each with a session")
      ->check(CLI::Range(1, kMaxConcurrency));
  verb->add_option("--seed", arguments->options.seed, "of keys and bytes");
  verb->add_flag("--check-capacity", arguments->options.check_capacity,
                 "poll the admin status; fail if a tier or device is over its capacity");
  verb->add_flag("--settle", arguments->options.settle,
                 "begin a request when all earlier puts are in G3, by the admin status");
  verb->add_option("--remote-wait", arguments->remote_wait,
                   "the longest search of a lookup beyond the node (G4): 200ms, up to 10s")
      ->check(BadRemoteWait);
  verb->add_flag("--tolerate-restart", arguments->options.tolerate_restart,
                 "go on when the daemon goes away and comes back within 30 s");
  verb->callback(
      [&cli, arguments] { cli.run = [&cli, arguments] { return RunReplay(cli, *arguments); }; });
}

// Adds the options of a second tier.
void AddTiersOptions(CLI::App* verb, SimulateArguments& arguments) {
  TiersOptions& tiers = arguments.tiers;
  verb->add_option("--g3-chunks", tiers.g3_chunks, "capacity of a second tier, below --chunks");
  verb->add_option("--g3-policy", tiers.g3_policy, "its policy, as --policy, except min");
  verb->add_option("--admission", tiers.admission,
                   absl::StrCat("which chunks are written to the second tier: one of ",
                                absl::StrJoin(AdmissionPolicyNames(), ", ")));
  verb->add_option("--write-policy", tiers.write_policy,
                   "when: eager, like the daemon, or on_evict, when a chunk leaves the first tier: "
                   "a what-if that no daemon supports");
  verb->add_option("--chunk-bytes", arguments.chunk_bytes, "bytes written for a chunk")
      ->check([](const std::string& text) {
        return std::string(ParseChunkSizes(text).status().message());
      });
  verb->add_option("--tbw", arguments.terabytes_written,
                   "rated terabytes written of the drive, for write_budget");
  verb->add_option("--years", arguments.years, "years that the drive must last, for write_budget")
      ->check(CLI::Range(0.01, 100.0));
  verb->add_option("--prefill-rate", arguments.prefill_tokens_per_second, "tokens a second")
      ->check(CLI::Range(1.0, 1e9));
}

// Adds the options of the seconds that hits save.
void AddObjectiveOptions(CLI::App* verb, SimulateArguments& arguments) {
  CLI::Option* const objective =
      verb->add_option("--objective", arguments.objective,
                       "hits; or seconds: also what the hits save of prefill, where a chunk costs "
                       "the more, the deeper it lies")
          ->check(CLI::IsMember({"hits", "seconds"}));
  objective->excludes("--prefill-rate");
  verb->add_option("--model", arguments.model, "for seconds: a model of tools/kvkeep/models.json")
      ->needs(objective);
  verb->add_option("--gpu", arguments.gpu, "for seconds: a GPU of models.json")->needs(objective);
}

// Adds the options of hints.
void AddHintOptions(CLI::App* verb, SimulateArguments& arguments) {
  verb->add_option("--hints", arguments.hints,
                   "oracle:RIGHT: after each request somebody says whether its chain will be asked "
                   "for again, and is right for that share of them, 0 to 1")
      ->check([](const std::string& text) {
        return RightOf(text).has_value() ? "" : "must be oracle:RIGHT, RIGHT from 0 to 1";
      });
  verb->add_option("--hint-actions", arguments.hint_actions,
                   "what hints do: retain chains that will be, demote others, or both")
      ->check(CLI::IsMember({"retain", "demote", "both"}));
  verb->add_option("--hint-seconds", arguments.hint_seconds, "how long a chain is retained")
      ->check(CLI::Range(0.001, 1e9));
  verb->add_option("--hint-share", arguments.hint_options.share,
                   "share of the chunks that may be retained")
      ->check(CLI::Range(0.0, 0.9));
  verb->add_option("--hint-seed", arguments.hint_options.seed, "other seed: other wrong hints");
}

}  // namespace

void AddTraceVerbs(CLI::App& app, Cli& cli) {
  AddReplay(app, cli);
  auto arguments = std::make_shared<SimulateArguments>();
  CLI::App* verb =
      app.add_subcommand("simulate", "hit ratio of an eviction policy on a trace; needs no daemon");
  verb->add_option("TRACE", arguments->trace, "JSON lines with hash_ids")->required();
  verb->add_option("--policy", arguments->policy,
                   absl::StrCat("one of ", absl::StrJoin(SimulatedPolicyNames(), ", ")));
  verb->add_option("--chunks", arguments->chunks, "capacities to simulate, with commas")
      ->delimiter(',')
      ->required();
  verb->add_option("--tokens-per-chunk", arguments->tokens_per_chunk,
                   "of the trace, for --full-chunks and the saved prefill")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_flag(
      "--full-chunks", arguments->full_chunks,
      "do not store a prompt's partial last chunk, as engines do; it still counts as requested");
  AddTiersOptions(verb, *arguments);
  AddObjectiveOptions(verb, *arguments);
  AddHintOptions(verb, *arguments);
  verb->callback(
      [&cli, arguments] { cli.run = [&cli, arguments] { return RunSimulate(cli, *arguments); }; });
}

}  // namespace kvkeep::tools
