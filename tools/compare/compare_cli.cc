#include "tools/compare/compare_cli.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <sys/utsname.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/compare/contest.h"
#include "tools/compare/report.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::compare {
namespace {

constexpr int kDone = 0, kFailed = 1, kUsage = 2;
constexpr uint64_t kLookupChunkBytes = 4 * kKiB;
constexpr uint64_t kLookupKeys = 16'384;         // at most, and
constexpr uint64_t kLookupKeyBytes = 64 * kKiB;  // that a key may take at most, by anybody
constexpr uint64_t kLookupBatch = 512;

struct Asked {
  std::string daemon;
  std::string scratch = "/var/tmp";
  std::string sizes_text = "1MiB,4MiB,32MiB";
  std::string json;
  std::vector<std::string> only;
  std::string lmcache, mooncake;  // environments
  std::string peers = "tools/compare/peers";
  std::vector<uint64_t> batches = {1};
  uint64_t capacity_mib = 1024;
  uint64_t region_mib = 256;
  double seconds = 0.5;
  int rounds = 9;
  bool quick = false;
  bool no_nvme = false;
  std::vector<uint64_t> sizes;
};

void AddOptions(CLI::App& app, Asked& asked) {
  app.add_option("--daemon", asked.daemon, "the kvkeepd to compare")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--scratch", asked.scratch, "directory on the drive to compare; left as it was")
      ->check(CLI::ExistingDirectory);
  app.add_option("--sizes", asked.sizes_text, "of chunks");
  app.add_option("--only", asked.only, "these contestants; the first is what others are shares of")
      ->delimiter(',')
      ->check(CLI::IsMember(Contest::Names()));
  app.add_option("--lmcache", asked.lmcache, "a Python environment that has LMCache")
      ->check(CLI::ExistingDirectory);
  app.add_option("--mooncake", asked.mooncake, "a Python environment that has Mooncake")
      ->check(CLI::ExistingDirectory);
  app.add_option("--peers", asked.peers, "where the programs are that drive those two");
  app.add_option("--batches", asked.batches,
                 "chunks of a call that gets or puts, where they fit a region")
      ->delimiter(',')
      ->check(CLI::Range(uint64_t{1}, uint64_t{64}));
  app.add_option("--capacity-mib", asked.capacity_mib, "that each contestant may keep")
      ->check(CLI::Range(uint64_t{64}, uint64_t{1} << 20));
  app.add_option("--region-mib", asked.region_mib, "memory that is got to, and put from")
      ->check(CLI::Range(uint64_t{32}, uint64_t{1} << 20));
  app.add_option("--seconds", asked.seconds, "of a slice")->check(CLI::Range(0.01, 60.0));
  app.add_option("--rounds", asked.rounds, "that everybody takes")->check(CLI::Range(1, 1000));
  app.add_option("--json", asked.json, "file to write all figures to");
  app.add_flag("--quick", asked.quick, "3 rounds of 0.1 s: under two minutes, figures are rough");
  app.add_flag("--no-nvme", asked.no_nvme, "leave out NVMe and fio");
}

bench::Json AboutThisMachine(const Asked& asked) {
  utsname name{};
  uname(&name);
  std::string cpu;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    cpu = line.substr(line.find(':') + 2);
    break;
  }
  return {{"cpu", cpu},
          {"cores", std::thread::hardware_concurrency()},
          {"kernel", std::string(name.release)},
          {"rounds", asked.rounds},
          {"slice_seconds", asked.seconds},
          {"capacity_bytes", asked.capacity_mib * kMiB},
          {"region_bytes", asked.region_mib * kMiB}};
}

ContestOptions ContestOf(const Asked& asked, const std::string& directory) {
  ContestOptions options{.daemon_binary = asked.daemon,
                         .directory = directory,
                         .only = asked.only,
                         .peers_directory = asked.peers,
                         .environments = {},
                         .capacity_bytes = asked.capacity_mib * kMiB,
                         .region_bytes = asked.region_mib * kMiB,
                         .seconds = asked.seconds,
                         .rounds = asked.rounds};
  if (!asked.lmcache.empty()) options.environments[kLmcache] = asked.lmcache;
  if (!asked.mooncake.empty()) options.environments[kMooncake] = asked.mooncake;
  return options;
}

struct Call {
  uint64_t size = 0;   // of a chunk
  uint64_t batch = 1;  // chunks
};

bool Fits(const Asked& asked, const Call& call) {
  return call.size * call.batch <= std::min(asked.region_mib * kMiB, asked.capacity_mib * kMiB / 2);
}

// Each size in each batch that fits.
std::vector<Call> CallsOf(const Asked& asked) {
  std::vector<Call> calls;
  for (const uint64_t size : asked.sizes) {
    for (const uint64_t batch : asked.batches) {
      if (Fits(asked, {size, batch})) calls.push_back({size, batch});
    }
  }
  return calls;
}

using Say = std::function<void(const std::string&)>;

// Everybody is started afresh for one size and batch: nobody's memory was touched before.
absl::Status CompareOne(const Asked& asked, const std::string& directory, const Call& call,
                        bool with_lookups, const Say& say, Comparison* comparison) {
  std::filesystem::create_directory(directory);
  const auto remove = absl::MakeCleanup([&] {  // once all that use it have ended
    std::error_code error;
    std::filesystem::remove_all(directory, error);
  });
  KVKEEP_ASSIGN_OR_RETURN(const std::unique_ptr<Contest> contest,
                          Contest::Start(ContestOf(asked, directory), say));
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
  const uint64_t keys = asked.capacity_mib * kMiB / 2 / call.size;
  KVKEEP_RETURN_IF_ERROR(run({Operation::kGet, Operation::kLookupAndGet, Operation::kPut},
                             call.size, keys, call.batch));
  if (!with_lookups) return absl::OkStatus();
  say("lookups");
  const uint64_t lookup_keys = std::min(kLookupKeys, asked.capacity_mib * kMiB / kLookupKeyBytes);
  return run({Operation::kLookup}, kLookupChunkBytes, lookup_keys, kLookupBatch);
}

absl::Status Compare(const Asked& asked, const std::string& directory, std::ostream& err,
                     Comparison* comparison) {
  const Say say = [&err](const std::string& text) { err << text << std::endl; };
  comparison->about = AboutThisMachine(asked);
  const std::vector<Call> calls = CallsOf(asked);
  for (size_t i = 0; i < calls.size(); ++i) {
    KVKEEP_RETURN_IF_ERROR(CompareOne(asked, absl::StrCat(directory, "/", i), calls[i],
                                      /*with_lookups=*/i + 1 == calls.size(), say, comparison));
  }
  if (asked.no_nvme) return absl::OkStatus();
  say("NVMe");
  std::vector<uint64_t> sizes;
  for (const uint64_t size : asked.sizes) {
    if (size >= 4 * kMiB) sizes.push_back(size);
  }
  absl::StatusOr<std::vector<NvmeResult>> nvme =
      CompareWithFio({.daemon_binary = asked.daemon,
                      .directory = directory,
                      .g2_bytes = kGiB,
                      .data_bytes = 3 * kGiB,
                      .seconds = std::max(1.0, asked.seconds),
                      .rounds = asked.rounds},
                     sizes);
  if (absl::IsUnavailable(nvme.status())) {
    say(absl::StrCat("NVMe is left out: ", nvme.status().message()));
    return absl::OkStatus();
  }
  KVKEEP_RETURN_IF_ERROR(nvme.status());
  comparison->nvme = *std::move(nvme);
  return absl::OkStatus();
}

int Run(const Asked& asked, std::ostream& out, std::ostream& err) {
  std::string directory = asked.scratch + "/kvkeep-compare-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    err << "kvkeep-compare: cannot make " << directory << "\n";
    return kFailed;
  }
  const auto remove = absl::MakeCleanup([&] {
    std::error_code error;
    std::filesystem::remove_all(directory, error);
  });
  Comparison comparison;
  const absl::Status status = Compare(asked, directory, err, &comparison);
  if (!comparison.disciplines.empty()) out << ToText(comparison);
  if (!status.ok()) {
    err << "kvkeep-compare: " << status << "\n";
    return kFailed;
  }
  if (!asked.json.empty()) {
    std::ofstream file(asked.json);
    file << ToJson(comparison).dump(1) << "\n";
    file.close();
    if (!file.good()) {
      err << "kvkeep-compare: cannot write " << asked.json << "\n";
      return kFailed;
    }
  }
  return WrongBytes(comparison) == 0 ? kDone : kFailed;
}

}  // namespace

int RunCompare(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Asked asked;
  CLI::App app("kvkeep beside what else keeps bytes, on this machine, in the same minutes.",
               "kvkeep-compare");
  app.option_defaults()->always_capture_default();
  AddOptions(app, asked);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error, out, err) == 0 ? kDone : kUsage;
  }
  const absl::StatusOr<std::vector<uint64_t>> sizes = tools::ParseChunkSizes(asked.sizes_text);
  if (!sizes.ok()) {
    err << "kvkeep-compare: --sizes: " << sizes.status().message() << "\n";
    return kUsage;
  }
  asked.sizes = *sizes;
  for (const uint64_t size : asked.sizes) {
    if (!Fits(asked, {.size = size})) {
      err << "kvkeep-compare: --sizes: more than --region-mib or half of --capacity-mib\n";
      return kUsage;
    }
  }
  if (CallsOf(asked).empty()) {
    err << "kvkeep-compare: --batches: none fits --region-mib and half of --capacity-mib\n";
    return kUsage;
  }
  if (asked.quick) {
    asked.rounds = 3;
    asked.seconds = 0.1;
  }
  return Run(asked, out, err);
}

}  // namespace kvkeep::compare
