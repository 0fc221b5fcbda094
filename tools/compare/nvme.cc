#include "tools/compare/nvme.h"

#include <absl/strings/str_cat.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>

#include "tiers/base/status_macros.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/daemon_process.h"
#include "tools/bench/load_generator.h"

namespace kvkeep::compare {
namespace {

using bench::Json;
using bench::Measured;

constexpr uint32_t kClients = 4;  // each reads one chunk after the other
constexpr std::chrono::milliseconds kDrainPatience{300'000};

// GB/s that fio reads or writes; `until`: an option that says for how long.
absl::StatusOr<double> RunFio(const NvmeOptions& options, const std::string& direction,
                              const std::string& until) {
  const std::string command =
      absl::StrCat("fio --name=compare --filename=", options.directory,
                   "/fio.data --size=", options.data_bytes, " --bs=1M --rw=", direction, " ", until,
                   " --direct=1 --ioengine=io_uring --iodepth=16 --output-format=json 2>/dev/null");
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (pipe == nullptr) return absl::ErrnoToStatus(errno, "fio");
  std::string text;
  std::array<char, 4096> some;
  while (const size_t got = fread(some.data(), 1, some.size(), pipe.get())) {
    text.append(some.data(), got);
  }
  const size_t begin = text.find('{');  // notes may come first
  const Json json = begin == std::string::npos
                        ? Json(Json::value_t::discarded)
                        : Json::parse(text.substr(begin), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.contains("jobs")) {
    return absl::UnavailableError("fio gave no result; is it installed?");
  }
  const double bytes_per_second = json["jobs"][0][direction]["bw_bytes"];
  return bytes_per_second / 1e9;
}

class Drive {
 public:
  static absl::StatusOr<std::unique_ptr<Drive>> Start(const NvmeOptions& options) {
    std::unique_ptr<Drive> drive(new Drive);
    KVKEEP_ASSIGN_OR_RETURN(drive->daemon_,
                            bench::DaemonProcess::Start({.binary = options.daemon_binary,
                                                         .scratch_dir = options.directory,
                                                         .g2_bytes = options.g2_bytes,
                                                         .g3_bytes = 3 * options.data_bytes}));
    KVKEEP_ASSIGN_OR_RETURN(
        drive->load_, bench::LoadGenerator::Start({.endpoint = drive->daemon_->endpoint(),
                                                   .local_socket = drive->daemon_->local_socket(),
                                                   .path = "local"},
                                                  drive->daemon_->admin_endpoint(), kClients));
    return drive;
  }

  // Puts `chunks` chunks and waits until all of them are on NVMe.
  absl::StatusOr<Measured> WriteBack(uint64_t size, uint64_t chunks) {
    const double begin = bench::WallSeconds();
    KVKEEP_RETURN_IF_ERROR(load_->Load(next_, chunks, size, /*no_g3=*/false));
    KVKEEP_RETURN_IF_ERROR(load_->probe()->AwaitClean(kDrainPatience));
    next_ += chunks;
    Measured measured;
    measured.seconds = bench::WallSeconds() - begin;
    measured.ops = measured.chunks = chunks;
    measured.bytes = chunks * size;
    return measured;
  }
  // Gets of the first `chunks` that were put.
  absl::StatusOr<bench::Series> PrepareGets(uint64_t size, uint64_t chunks) {
    return load_->Prepare("", {.verb = bench::Verb::kPieces,
                               .size = size,
                               .batch = 1,
                               .depth = 1,
                               .keys = chunks,
                               .no_g3 = false});
  }
  absl::Status Run(double seconds, bench::Series* series) {
    KVKEEP_RETURN_IF_ERROR(load_->Run(seconds, series));
    const Measured& measured = series->rounds.back();
    if (measured.failed_ops == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(measured.failed_ops, " gets of ", measured.ops,
                                            " failed: ", measured.first_failure));
  }

 private:
  Drive() = default;
  std::unique_ptr<bench::DaemonProcess> daemon_;
  std::unique_ptr<bench::LoadGenerator> load_;
  uint64_t next_ = 0;  // chunk
};

absl::StatusOr<NvmeResult> RunSize(const NvmeOptions& options, uint64_t size) {
  NvmeResult result{.size = size, .reads = {}, .writes = {}, .fio_reads = {}, .fio_writes = {}};
  const std::string for_seconds = absl::StrCat("--time_based --runtime=", options.seconds);
  KVKEEP_ASSIGN_OR_RETURN(const std::unique_ptr<Drive> drive, Drive::Start(options));
  // As much at once as G2 takes while nothing of it is written yet.
  const uint64_t at_once = options.g2_bytes / 2 / size;
  uint64_t chunks = 0;
  for (; chunks * size < options.data_bytes; chunks += at_once) {
    KVKEEP_RETURN_IF_ERROR(drive->WriteBack(size, at_once).status());
  }
  KVKEEP_ASSIGN_OR_RETURN(result.reads, drive->PrepareGets(size, chunks));
  for (int round = 0; round < options.rounds; ++round) {
    KVKEEP_RETURN_IF_ERROR(drive->Run(options.seconds, &result.reads));
    KVKEEP_ASSIGN_OR_RETURN(result.fio_reads.emplace_back(), RunFio(options, "read", for_seconds));
  }
  for (int round = 0; round < options.rounds; ++round) {
    KVKEEP_ASSIGN_OR_RETURN(result.writes.rounds.emplace_back(), drive->WriteBack(size, at_once));
    KVKEEP_ASSIGN_OR_RETURN(result.fio_writes.emplace_back(),
                            RunFio(options, "write", for_seconds));
  }
  return result;
}

}  // namespace

absl::StatusOr<std::vector<NvmeResult>> CompareWithFio(const NvmeOptions& options,
                                                       const std::vector<uint64_t>& sizes) {
  KVKEEP_RETURN_IF_ERROR(RunFio(options, "write", "").status());  // its file, once over
  std::vector<NvmeResult> results;
  for (const uint64_t size : sizes) {
    KVKEEP_ASSIGN_OR_RETURN(NvmeResult result, RunSize(options, size));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace kvkeep::compare
