#include "tools/compare/nvme.h"

#include <absl/strings/str_cat.h>

#include <chrono>
#include <memory>

#include "tiers/base/status_macros.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/daemon_process.h"
#include "tools/bench/fio.h"
#include "tools/bench/load_generator.h"

namespace kvkeep::compare {
namespace {

using bench::Measured;

constexpr uint32_t kClients = 4;  // each reads one chunk after the other
constexpr std::chrono::milliseconds kDrainPatience{300'000};

// Room for what is read, and for the rounds of first fills.
uint64_t G3Bytes(const NvmeOptions& options) {
  return options.data_bytes + (options.rounds + 2) * options.g2_bytes / 2;
}

class Drive {
 public:
  static absl::StatusOr<std::unique_ptr<Drive>> Start(const NvmeOptions& options) {
    std::unique_ptr<Drive> drive(new Drive);
    KVKEEP_ASSIGN_OR_RETURN(drive->daemon_,
                            bench::DaemonProcess::Start({.binary = options.daemon_binary,
                                                         .scratch_dir = options.directory,
                                                         .g2_bytes = options.g2_bytes,
                                                         .g3_bytes = G3Bytes(options)}));
    drive->bytes_left_ = static_cast<int64_t>(G3Bytes(options));
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
    bytes_left_ -= static_cast<int64_t>(chunks * size);
    Measured measured;
    measured.seconds = bench::WallSeconds() - begin;
    measured.ops = measured.chunks = chunks;
    measured.bytes = chunks * size;
    return measured;
  }
  // Of G3, that nothing was written to.
  uint64_t bytes_left() const { return bytes_left_ > 0 ? bytes_left_ : 0; }
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
  int64_t bytes_left_ = 0;
};

absl::StatusOr<NvmeResult> RunSize(const NvmeOptions& options, const bench::Fio& fio,
                                   uint64_t size) {
  NvmeResult result;
  result.size = size;
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
    KVKEEP_ASSIGN_OR_RETURN(result.fio_reads.emplace_back(), fio.Read());
  }
  for (int round = 0; round < options.rounds; ++round) {
    KVKEEP_ASSIGN_OR_RETURN(result.first_fills.rounds.emplace_back(),
                            drive->WriteBack(size, at_once));
    KVKEEP_ASSIGN_OR_RETURN(result.fio_first_fills.emplace_back(), fio.FillFirst());
  }
  // Until each byte was written once, and what is new takes the place of what is old.
  while (drive->bytes_left() > 0) {
    KVKEEP_RETURN_IF_ERROR(drive->WriteBack(size, at_once).status());
  }
  for (int round = 0; round < options.rounds; ++round) {
    KVKEEP_ASSIGN_OR_RETURN(result.overwrites.rounds.emplace_back(),
                            drive->WriteBack(size, at_once));
    KVKEEP_ASSIGN_OR_RETURN(result.fio_overwrites.emplace_back(), fio.Overwrite());
  }
  return result;
}

}  // namespace

absl::StatusOr<std::vector<NvmeResult>> CompareWithFio(const NvmeOptions& options,
                                                       const std::vector<uint64_t>& sizes) {
  KVKEEP_ASSIGN_OR_RETURN(const std::unique_ptr<bench::Fio> fio,
                          bench::Fio::Make({.directory = options.directory,
                                            .data_bytes = options.data_bytes,
                                            .fresh_bytes = options.g2_bytes / 2,
                                            .seconds = options.seconds}));
  std::vector<NvmeResult> results;
  for (const uint64_t size : sizes) {
    KVKEEP_ASSIGN_OR_RETURN(NvmeResult result, RunSize(options, *fio, size));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace kvkeep::compare
