// kvkeep-sim: runs seeds of the simulation, and makes a failing one short.
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>

#include "tests/sim/fleet/fleet_options.h"
#include "tests/sim/forked_runs.h"
#include "tests/sim/random_world.h"
#include "tests/sim/script.h"
#include "tiers/base/random.h"
#include "tiers/policy/eviction_policy.h"

namespace kvkeep {
namespace {

constexpr char kUsage[] =
    "kvkeep-sim [--seeds N] [--first N | --drawn] [--steps N] [--jobs N]\n"
    "    [--find-failure [--from N] | --every-kind]\n"
    "kvkeep-sim --pinned SEED:POLICY,... [--steps N] [--jobs N]\n"
    "kvkeep-sim --seed N [--steps N] [--verbose | --shrink [--out FILE]]\n"
    "kvkeep-sim --script FILE [--verbose]\n"
    "all but a script: [--nodes N] that share a bucket; one machine if not said\n"
    "all but a script: [--only NAME,...] of what may be left out of a world, all else left out\n"
    "    [--policy NAME] of eviction, lru if not said; NAME,...: seeds take them in turn\n"
    "--drawn: the first seed is drawn, and printed\n"
    "--find-failure: a check has to fail; --every-kind: all that may be injected has to happen\n"
    "--from: the seed to begin with; those before it come last\n";

struct Arguments {
  uint64_t first = 1, seeds = 1, steps = 5000, jobs = 1, from = 0, nodes = 1;
  std::string script, out, only, policy, pinned;
  std::vector<std::string> without;
  bool verbose = false, find_failure = false, every_kind = false, shrink = false, drawn = false;
};

// One seed under one policy.
struct Run {
  uint64_t seed;
  std::string policy;
};

// Ends on unreadable input.
std::vector<Run> RunsOf(const Arguments& arguments) {
  std::vector<Run> runs;
  const std::vector<std::string> pinned =
      absl::StrSplit(arguments.pinned, ',', absl::SkipEmpty());
  for (const std::string& one : pinned) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(one, absl::MaxSplits(':', 1));
    runs.push_back({.seed = 0, .policy = parts.second});
    if (absl::SimpleAtoi(parts.first, &runs.back().seed)) continue;
    std::fprintf(stderr, "kvkeep-sim: --pinned %s: not SEED:POLICY\n", one.c_str());
    std::exit(2);
  }
  const std::vector<std::string> policies = absl::StrSplit(arguments.policy, ',');
  for (uint64_t i = 0; pinned.empty() && i < arguments.seeds; ++i) {
    runs.push_back({arguments.first + i, policies[i % policies.size()]});
  }
  std::stable_partition(runs.begin(), runs.end(),
                        [&](const Run& run) { return run.seed >= arguments.from; });
  for (const Run& run : runs) {
    if (MakeEvictionPolicy(run.policy, {.max_chunks = 1}) != nullptr) continue;
    std::fprintf(stderr, "kvkeep-sim: policy %s: not known\n", run.policy.c_str());
    std::exit(2);
  }
  return runs;
}

// Returns the removals that leave only the parts named in `only`. Ends on an unknown name.
std::vector<std::string> AllBut(const std::string& only, bool fleet) {
  std::vector<std::string> without = fleet ? FleetRemovable() : Removable();
  const std::vector<std::string> names = absl::StrSplit(only, ',');
  for (const std::string& name : names) {
    if (std::erase(without, name) == 1) continue;
    std::fprintf(stderr, "kvkeep-sim: --only %s: not known\n", name.c_str());
    std::exit(2);
  }
  return without;
}

// Returns the arguments, besides the seed, that repeat the run.
std::string SameRun(const Arguments& arguments, const std::string& policy) {
  return absl::StrCat("--steps ", arguments.steps, " --policy ", policy,
                      arguments.nodes > 1 ? absl::StrCat(" --nodes ", arguments.nodes) : "",
                      arguments.only.empty() ? "" : " --only ", arguments.only);
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  const std::map<std::string, uint64_t*> numbers = {{"--seed", &arguments.first},
                                                    {"--first", &arguments.first},
                                                    {"--seeds", &arguments.seeds},
                                                    {"--steps", &arguments.steps},
                                                    {"--jobs", &arguments.jobs},
                                                    {"--from", &arguments.from},
                                                    {"--nodes", &arguments.nodes}};
  const std::map<std::string, std::string*> texts = {{"--script", &arguments.script},
                                                     {"--out", &arguments.out},
                                                     {"--only", &arguments.only},
                                                     {"--policy", &arguments.policy},
                                                     {"--pinned", &arguments.pinned}};
  const std::map<std::string, bool*> flags = {{"--verbose", &arguments.verbose},
                                              {"--find-failure", &arguments.find_failure},
                                              {"--every-kind", &arguments.every_kind},
                                              {"--drawn", &arguments.drawn},
                                              {"--shrink", &arguments.shrink}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (const auto flag = flags.find(name); flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    ++i;
    const auto number = numbers.find(name);
    const auto text = texts.find(name);
    if (text != texts.end() && *value != 0) {
      *text->second = value;
    } else if (number == numbers.end() || !absl::SimpleAtoi(value, number->second) ||
               *number->second == 0) {
      std::fprintf(stderr, "kvkeep-sim: %s %s\n%s", name.c_str(), value, kUsage);
      std::exit(2);
    }
  }
  if (!arguments.script.empty() && !(arguments.only + arguments.policy).empty()) {
    std::fprintf(stderr, "kvkeep-sim: a script says its policy and what is left out itself\n");
    std::exit(2);
  }
  if (!arguments.only.empty()) arguments.without = AllBut(arguments.only, arguments.nodes > 1);
  if (arguments.policy.empty()) arguments.policy = "lru";
  if (arguments.nodes > kMostNodes) {
    std::fprintf(stderr, "kvkeep-sim: --nodes: at most %lu\n", kMostNodes);
    std::exit(2);
  }
  if (arguments.drawn) {
    arguments.first = 1 + (RealRandom()->NextU64() >> 24);  // short enough to type
    std::printf("drawn: --first %lu --seeds %lu %s\n", arguments.first, arguments.seeds,
                SameRun(arguments, arguments.policy).c_str());
    std::fflush(stdout);  // before any run forks
  }
  return arguments;
}

// Returns the lines that a verbose run printed, by step.
std::map<uint64_t, std::string> StepsOf(const std::string& output) {
  std::map<uint64_t, std::string> what;
  const std::vector<std::string> lines = absl::StrSplit(output, '\n');
  for (const std::string& line : lines) {
    uint64_t step = 0;
    const size_t begin = line.find_first_not_of(' ');
    const size_t end = line.find(' ', begin);
    if (end == std::string::npos || !absl::SimpleAtoi(line.substr(begin, end - begin), &step)) {
      continue;
    }
    std::string& all = what[step];
    absl::StrAppend(&all, all.empty() ? "" : "; ", line.substr(end + 1));
  }
  return what;
}

int ShrinkSeed(const Arguments& arguments) {
  const RunResult first = ForkedRuns::Run({.seed = arguments.first,
                                           .steps = arguments.steps,
                                           .without = arguments.without,
                                           .policy = arguments.policy,
                                           .nodes = arguments.nodes});
  if (first.failure.empty()) {
    std::printf("seed %lu of %lu steps does not fail\n", arguments.first, arguments.steps);
    return 1;
  }
  Script script{.seed = arguments.first,
                .policy = arguments.policy,
                .nodes = arguments.nodes,
                .without = arguments.without};
  script.steps.resize(first.last_step + 1);
  std::iota(script.steps.begin(), script.steps.end(), 0);
  script = Shrink(
      script, [](const Script& candidate) { return ForkedRuns::Run(candidate.Options()).failure; });
  SimulationOptions told = script.Options();
  told.verbose = true;
  const RunResult last = ForkedRuns::Run(told);
  const std::string text =
      absl::StrCat("# ", last.failure, "\n", FormatScript(script, StepsOf(last.output)));
  const std::string file = arguments.out.empty()
                               ? absl::StrCat("kvkeep-sim-", arguments.first, ".script")
                               : arguments.out;
  std::ofstream(file) << text;
  std::printf("%s# %zu steps of %lu; replay with --script %s\n", text.c_str(), script.steps.size(),
              first.last_step + 1, file.c_str());
  return 0;
}

// One run in this process: its output is shown as it comes.
int RunHere(const SimulationOptions& options) {
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::printf("seed %lu: %s\n", options.seed, RunSimulation(options).Describe().c_str());
  return 0;
}

int RunScript(const Arguments& arguments) {
  std::ifstream file(arguments.script);
  std::stringstream text;
  text << file.rdbuf();
  const absl::StatusOr<Script> script = ParseScript(text.str());
  if (!file || !script.ok()) {
    std::fprintf(stderr, "kvkeep-sim: %s: %s\n", arguments.script.c_str(),
                 script.ok() ? "cannot be read" : script.status().ToString().c_str());
    return 2;
  }
  SimulationOptions options = script->Options();
  options.verbose = arguments.verbose;
  return RunHere(options);
}

int RunSeeds(const Arguments& arguments) {
  SimulationReport sum;
  uint64_t failed = 0;
  uint64_t ran = 0, unchecked = 0;
  {
    ForkedRuns runs(static_cast<unsigned>(arguments.jobs));
    for (const auto& [seed, policy] : RunsOf(arguments)) {
      if (arguments.find_failure && failed > 0) break;
      const SimulationOptions options{.seed = seed,
                                      .steps = arguments.steps,
                                      .without = arguments.without,
                                      .policy = policy,
                                      .nodes = arguments.nodes};
      runs.Start(options, [&, seed = seed, policy = policy](const RunResult& result) {
        ++ran;
        if (result.failure.empty()) return sum.Add(result.report);
        ++failed;
        unchecked += !result.checked;
        std::printf(
            "%sseed %lu FAILED at step %lu: %s\n  make it short with --seed %lu %s --shrink\n",
            result.output.c_str(), seed, result.last_step, result.failure.c_str(), seed,
            SameRun(arguments, policy).c_str());
      });
    }
  }
  std::printf("%lu seeds of %lu steps, %lu failed: %s\n", ran, arguments.steps, failed,
              sum.Describe().c_str());
  if (arguments.every_kind) {
    for (const std::string& kind : sum.injected.Missing()) {
      std::printf("never happened: %s\n", kind.c_str());
    }
    if (!sum.injected.Missing().empty()) return 1;
  }
  if (!arguments.find_failure) return failed == 0 ? 0 : 1;
  // A crash, a hang or a lack of memory is no rule's finding.
  if (unchecked > 0) std::printf("%lu failed without a failed check\n", unchecked);
  return failed > 0 && unchecked == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  const kvkeep::Arguments arguments = kvkeep::Parse(argc, argv);
  if (!arguments.script.empty()) return kvkeep::RunScript(arguments);
  if (const size_t runs = kvkeep::RunsOf(arguments).size();
      runs != 1 && (arguments.shrink || arguments.verbose)) {
    std::fprintf(stderr, "kvkeep-sim: --shrink and --verbose are of one seed\n");
    return 2;
  }
  if (arguments.shrink) return kvkeep::ShrinkSeed(arguments);
  if (arguments.verbose) {
    return kvkeep::RunHere({.seed = arguments.first,
                            .steps = arguments.steps,
                            .verbose = true,
                            .without = arguments.without,
                            .policy = arguments.policy,
                            .nodes = arguments.nodes});
  }
  return kvkeep::RunSeeds(arguments);
}
