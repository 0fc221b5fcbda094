#include "tools/compare/compare_cli.h"

#include <absl/algorithm/container.h>
#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/compare/about.h"
#include "tools/compare/contest.h"
#include "tools/compare/plan.h"
#include "tools/compare/report.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::compare {
namespace {

constexpr int kDone = 0, kFailed = 1, kUsage = 2;
constexpr uint64_t kLookupChunkBytes = 4 * kKiB;
constexpr uint64_t kLookupKeys = 16'384;         // at most, and
constexpr uint64_t kLookupKeyBytes = 64 * kKiB;  // that a key may take at most, by anybody
constexpr uint64_t kLookupBatch = 512;
constexpr uint64_t kContestantsReckoned = 8;  // before they are known: all but peers

struct Line {
  std::string daemon;
  std::string scratch = "/var/tmp";
  std::string sizes_text = "1MiB,4MiB,32MiB";
  std::string json;
  std::string revision;
  std::vector<std::string> only;
  std::string lmcache, mooncake;  // environments
  std::string peers = "tools/compare/peers";
  std::vector<uint64_t> batches;
  uint64_t capacity_mib = 1024;
  uint64_t region_mib = 256;
  uint64_t nvme_round_mib = 1536;
  double seconds = 0.2;
  int rounds = 9;
  bool quick = false;
  bool no_nvme = false;
};

void AddOptions(CLI::App& app, Line& line) {
  app.add_option("--daemon", line.daemon, "the kvkeepd to compare")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--scratch", line.scratch, "directory on the drive to compare; left as it was")
      ->check(CLI::ExistingDirectory);
  app.add_option("--sizes", line.sizes_text, "of chunks");
  app.add_option("--only", line.only, "these contestants; the first is what others are shares of")
      ->delimiter(',')
      ->check(CLI::IsMember(Contest::Names()));
  app.add_option("--lmcache", line.lmcache, "a Python environment that has LMCache")
      ->check(CLI::ExistingDirectory);
  app.add_option("--mooncake", line.mooncake, "a Python environment that has Mooncake")
      ->check(CLI::ExistingDirectory);
  app.add_option("--peers", line.peers, "where the programs are that drive those two");
  app.add_option("--batches", line.batches,
                 "chunks of a call that gets or puts, where they fit a region; by default 1, and 8 "
                 "of 4 MiB too")
      ->delimiter(',')
      ->check(CLI::Range(uint64_t{1}, uint64_t{64}));
  app.add_option("--capacity-mib", line.capacity_mib, "that each contestant may keep")
      ->check(CLI::Range(uint64_t{64}, uint64_t{1} << 20));
  app.add_option("--region-mib", line.region_mib, "memory that is got to, and put from")
      ->check(CLI::Range(uint64_t{32}, uint64_t{1} << 20));
  app.add_option("--seconds", line.seconds, "of a slice")->check(CLI::Range(0.01, 60.0));
  app.add_option("--rounds", line.rounds, "that everybody takes")->check(CLI::Range(1, 1000));
  app.add_option("--nvme-round-mib", line.nvme_round_mib,
                 "of a round of writes; less where drive or memory have no room")
      ->check(CLI::Range(uint64_t{64}, uint64_t{1} << 16));
  app.add_option("--json", line.json, "file to write all figures to");
  app.add_option("--revision", line.revision, "of the sources, to be noted with the figures");
  app.add_flag("--quick", line.quick,
               "3 rounds of 0.1 s: under two minutes, figures are rough; where "
               "the machine is too slow for that, the last sizes and NVMe are left out");
  app.add_flag("--no-nvme", line.no_nvme, "leave out NVMe and fio");
}

Asked AskedBy(const Line& line, std::vector<uint64_t> sizes) {
  return {.sizes = std::move(sizes),
          .batches = line.batches,
          .capacity_bytes = line.capacity_mib * kMiB,
          .region_bytes = line.region_mib * kMiB,
          .seconds = line.seconds,
          .rounds = line.rounds,
          .nvme_round_bytes = line.nvme_round_mib * kMiB,
          .nvme = !line.no_nvme,
          .quick = line.quick};
}

ContestOptions ContestOf(const Line& line, const Plan& plan, const std::string& directory) {
  ContestOptions options{.daemon_binary = line.daemon,
                         .directory = directory,
                         .only = line.only,
                         .peers_directory = line.peers,
                         .environments = {},
                         .capacity_bytes = plan.capacity_bytes,
                         .region_bytes = plan.region_bytes,
                         .seconds = plan.seconds,
                         .rounds = plan.rounds};
  if (!line.lmcache.empty()) options.environments[kLmcache] = line.lmcache;
  if (!line.mooncake.empty()) options.environments[kMooncake] = line.mooncake;
  return options;
}

using Say = std::function<void(const std::string&)>;

// Everybody is started afresh for one size and batch: nobody's memory was touched before.
absl::Status CompareOne(const Line& line, const Plan& plan, const std::string& directory,
                        const Call& call, const Say& say, Comparison* comparison) {
  std::filesystem::create_directory(directory);
  const auto remove = absl::MakeCleanup([&] {  // once all that use it have ended
    std::error_code error;
    std::filesystem::remove_all(directory, error);
  });
  KVKEEP_ASSIGN_OR_RETURN(const std::unique_ptr<Contest> contest,
                          Contest::Start(ContestOf(line, plan, directory), say));
  comparison->names = contest->present();
  for (const auto& [name, version] : contest->versions()) comparison->about[name] = version;
  const auto run = [&](const std::vector<Operation>& operations, uint64_t of_size, uint64_t keys,
                       uint64_t of_batch) -> absl::Status {
    KVKEEP_ASSIGN_OR_RETURN(const std::vector<Discipline> disciplines,
                            contest->Run(operations, of_size, keys, of_batch));
    comparison->disciplines.insert(comparison->disciplines.end(), disciplines.begin(),
                                   disciplines.end());
    return absl::OkStatus();
  };
  say(absl::StrCat(call.batch, " x ", tools::FormatBytes(call.size)));
  // Half of what may be kept: nobody has evicted any of it.
  const uint64_t keys = plan.capacity_bytes / 2 / call.size;
  KVKEEP_RETURN_IF_ERROR(run({Operation::kGet, Operation::kLookupAndGet, Operation::kPut},
                             call.size, keys, call.batch));
  if (&call != &plan.calls.back()) return absl::OkStatus();
  say("lookups");
  const uint64_t lookup_keys = std::min(kLookupKeys, plan.capacity_bytes / kLookupKeyBytes);
  return run({Operation::kLookup}, kLookupChunkBytes, lookup_keys, kLookupBatch);
}

// `plan` becomes what was done.
absl::Status CompareNvme(const Line& line, const std::string& directory, const Say& say,
                         NvmePlan* plan, Comparison* comparison) {
  say("NVMe");
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  absl::StatusOr<NvmePlan> fits =
      FitNvme(*plan, error ? 0 : space.available, AvailableMemoryBytes());
  if (!fits.ok()) {
    say(absl::StrCat("NVMe is left out: ", fits.status().message()));
    *plan = {};
    return absl::OkStatus();
  }
  if (fits->round_bytes < plan->round_bytes) {
    say(absl::StrCat("room for rounds of ", tools::FormatBytes(fits->round_bytes), " only"));
  }
  *plan = *std::move(fits);
  absl::StatusOr<std::vector<NvmeResult>> nvme =
      CompareWithFio({.daemon_binary = line.daemon, .directory = directory, .plan = *plan});
  if (absl::IsUnavailable(nvme.status())) {
    say(absl::StrCat("NVMe is left out: ", nvme.status().message()));
    *plan = {};
    return absl::OkStatus();
  }
  KVKEEP_RETURN_IF_ERROR(nvme.status());
  comparison->nvme = *std::move(nvme);
  return absl::OkStatus();
}

absl::Status Compare(const Line& line, Plan plan, const std::string& directory, std::ostream& err,
                     Comparison* comparison) {
  const Say say = [&err](const std::string& text) { err << text << std::endl; };
  const double begin = bench::WallSeconds();
  QuickBudget budget;
  const auto has_room = [&](const char* what, double most_seconds) {
    if (!line.quick || budget.HasRoomFor(most_seconds, bench::WallSeconds() - begin)) return true;
    say(absl::StrCat("no time left for ", what));
    return false;
  };
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    const uint64_t contestants =
        comparison->names.empty() ? kContestantsReckoned : comparison->names.size();
    if (!has_room("more sizes", MostCallSeconds(plan, contestants))) break;
    KVKEEP_RETURN_IF_ERROR(
        CompareOne(line, plan, absl::StrCat(directory, "/", i), plan.calls[i], say, comparison));
  }
  if (plan.nvme.sizes.empty() || !has_room("NVMe", MostNvmeSeconds(plan.nvme))) {
    plan.nvme = {};
  } else {
    KVKEEP_RETURN_IF_ERROR(CompareNvme(line, directory, say, &plan.nvme, comparison));
  }
  const double took = bench::WallSeconds() - begin;
  comparison->about.update(
      About({.revision = line.revision, .quick = line.quick, .plan = plan, .took_seconds = took}));
  say(absl::StrFormat("took %.0f s", took));
  return absl::OkStatus();
}

bool Refused(const Comparison& comparison) {
  return absl::c_any_of(comparison.nvme, [](const NvmeResult& one) { return one.refused(); });
}

int Run(const Line& line, const Plan& plan, std::ostream& out, std::ostream& err) {
  std::string directory = line.scratch + "/kvkeep-compare-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    err << "kvkeep-compare: cannot make " << directory << "\n";
    return kFailed;
  }
  const auto remove = absl::MakeCleanup([&] {
    std::error_code error;
    std::filesystem::remove_all(directory, error);
  });
  Comparison comparison;
  const absl::Status status = Compare(line, plan, directory, err, &comparison);
  if (!comparison.disciplines.empty()) out << ToText(comparison);
  if (!status.ok()) {
    err << "kvkeep-compare: " << status << "\n";
    return kFailed;
  }
  if (!line.json.empty()) {
    std::ofstream file(line.json);
    file << ToJson(comparison).dump(1) << "\n";
    file.close();
    if (!file.good()) {
      err << "kvkeep-compare: cannot write " << line.json << "\n";
      return kFailed;
    }
  }
  if (Refused(comparison)) err << "kvkeep-compare: not all that was read came from NVMe\n";
  return WrongBytes(comparison) == 0 && !Refused(comparison) ? kDone : kFailed;
}

}  // namespace

int RunCompare(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Line line;
  CLI::App app("kvkeep beside what else keeps bytes, on this machine, in the same minutes.",
               "kvkeep-compare");
  app.option_defaults()->always_capture_default();
  AddOptions(app, line);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error, out, err) == 0 ? kDone : kUsage;
  }
  const absl::StatusOr<std::vector<uint64_t>> sizes = tools::ParseChunkSizes(line.sizes_text);
  if (!sizes.ok()) {
    err << "kvkeep-compare: --sizes: " << sizes.status().message() << "\n";
    return kUsage;
  }
  for (const uint64_t size : *sizes) {
    if (size <= std::min(line.region_mib, line.capacity_mib / 2) * kMiB) continue;
    err << "kvkeep-compare: --sizes: more than --region-mib or half of --capacity-mib\n";
    return kUsage;
  }
  const Plan plan = PlanOf(AskedBy(line, *sizes));
  if (plan.calls.empty()) {
    err << "kvkeep-compare: --batches: none fits --region-mib and half of --capacity-mib\n";
    return kUsage;
  }
  return Run(line, plan, out, err);
}

}  // namespace kvkeep::compare
