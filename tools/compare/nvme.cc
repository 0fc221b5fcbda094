#include "tools/compare/nvme.h"

#include <absl/functional/function_ref.h>

#include <chrono>
#include <memory>

#include "tiers/base/status_macros.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/daemon_process.h"
#include "tools/bench/fio.h"
#include "tools/bench/load_generator.h"
#include "tools/bench/statistics.h"
#include "tools/compare/cold_reads.h"

namespace kvkeep::compare {
namespace {

using bench::Fio;
using bench::Measured;

// With two chunks of 4 MiB asked for by each 32 MiB are under way; of fio, 16 blocks of 1 or 4 MiB.
constexpr uint32_t kReaders = 4;
constexpr std::chrono::milliseconds kDrainPatience{300'000};

class Drive {
 public:
  static absl::StatusOr<std::unique_ptr<Drive>> Start(const NvmeOptions& options) {
    std::unique_ptr<Drive> drive(new Drive(options.plan));
    KVKEEP_ASSIGN_OR_RETURN(drive->daemon_,
                            bench::DaemonProcess::Start({.binary = options.daemon_binary,
                                                         .scratch_dir = options.directory,
                                                         .g2_bytes = options.plan.g2_bytes(),
                                                         .g3_bytes = options.plan.g3_bytes()}));
    KVKEEP_ASSIGN_OR_RETURN(
        drive->load_, bench::LoadGenerator::Start(drive->target(), drive->daemon_->admin_endpoint(),
                                                  /*clients=*/1));
    return drive;
  }

  // Puts a round's chunks and waits until all of them are on NVMe.
  absl::StatusOr<Measured> WriteBack(uint64_t size) {
    const uint64_t chunks = plan_.round_bytes / size;
    const double begin = bench::WallSeconds();
    KVKEEP_RETURN_IF_ERROR(load_->Load(put_, chunks, size, /*no_g3=*/false));
    KVKEEP_RETURN_IF_ERROR(load_->probe()->AwaitClean(kDrainPatience));
    Measured measured;
    measured.seconds = bench::WallSeconds() - begin;
    measured.ops = measured.chunks = chunks;
    measured.bytes = chunks * size;
    put_ += chunks;
    return measured;
  }
  uint64_t put() const { return put_; }  // chunks so far

  // Of the chunks that were put first.
  absl::Status PrepareReads(uint64_t size) {
    KVKEEP_ASSIGN_OR_RETURN(reads_, ColdReads::Start({.target = target(),
                                                      .clients = kReaders,
                                                      .size = size,
                                                      .chunks = plan_.read_bytes() / size,
                                                      .held_bytes = plan_.g2_bytes() / 2}));
    return absl::OkStatus();
  }
  // One round more of them, and what the daemon read from NVMe meanwhile.
  absl::Status Read(bench::Series* series, uint64_t* promoted_bytes) {
    KVKEEP_ASSIGN_OR_RETURN(const uint64_t before, PromotedBytes());
    const double cpu = bench::CpuSecondsOf(daemon_->pid()).value_or(0);
    KVKEEP_ASSIGN_OR_RETURN(series->rounds.emplace_back(), reads_->Run(plan_.seconds));
    series->has_daemon = true;
    series->daemon.cpu_seconds += bench::CpuSecondsOf(daemon_->pid()).value_or(cpu) - cpu;
    KVKEEP_ASSIGN_OR_RETURN(const uint64_t after, PromotedBytes());
    *promoted_bytes += after - before;
    return absl::OkStatus();
  }

 private:
  explicit Drive(NvmePlan plan) : plan_(std::move(plan)) {}
  bench::ClientTarget target() const {
    return {
        .endpoint = daemon_->endpoint(), .local_socket = daemon_->local_socket(), .path = "local"};
  }
  absl::StatusOr<uint64_t> PromotedBytes() {
    KVKEEP_ASSIGN_OR_RETURN(const bench::DaemonStatus status, load_->Status());
    return status.counter("promoted_bytes");
  }

  const NvmePlan plan_;
  std::unique_ptr<bench::DaemonProcess> daemon_;
  std::unique_ptr<bench::LoadGenerator> load_;
  std::unique_ptr<ColdReads> reads_;
  uint64_t put_ = 0;
};

// So many rounds of kvkeep and of fio with each kind of blocks; who is first moves on by one.
absl::Status Alternate(int rounds, absl::FunctionRef<absl::Status()> kvkeep,
                       absl::FunctionRef<absl::StatusOr<double>(uint64_t block_bytes)> fio,
                       BesideFio* beside) {
  constexpr size_t kContestants = kFioBlocks.size() + 1;
  for (int round = 0; round < rounds; ++round) {
    for (size_t place = 0; place < kContestants; ++place) {
      const size_t who = (place + static_cast<size_t>(round)) % kContestants;
      if (who == kFioBlocks.size()) {
        KVKEEP_RETURN_IF_ERROR(kvkeep());
        continue;
      }
      KVKEEP_ASSIGN_OR_RETURN(beside->fio[who].emplace_back(), fio(kFioBlocks[who]));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<NvmeResult> RunSize(const NvmeOptions& options, const Fio& fio, uint64_t size) {
  const NvmePlan& plan = options.plan;
  NvmeResult result;
  result.size = size;
  KVKEEP_ASSIGN_OR_RETURN(const std::unique_ptr<Drive> drive, Drive::Start(options));
  while (drive->put() * size < plan.put_first_bytes()) {
    KVKEEP_RETURN_IF_ERROR(drive->WriteBack(size).status());
  }
  KVKEEP_RETURN_IF_ERROR(drive->PrepareReads(size));
  KVKEEP_RETURN_IF_ERROR(Alternate(
      plan.rounds, [&] { return drive->Read(&result.reads.kvkeep, &result.promoted_bytes); },
      [&](uint64_t block) { return fio.Read(block); }, &result.reads));
  const auto write_into = [&](BesideFio* beside) {
    return [&drive, beside, size]() -> absl::Status {
      KVKEEP_ASSIGN_OR_RETURN(beside->kvkeep.rounds.emplace_back(), drive->WriteBack(size));
      return absl::OkStatus();
    };
  };
  KVKEEP_RETURN_IF_ERROR(Alternate(
      plan.rounds, write_into(&result.first_fills),
      [&](uint64_t block) { return fio.FillFirst(block); }, &result.first_fills));
  // Until each byte was written once, and what is new takes the place of what is old.
  while (drive->put() * size < plan.g3_bytes()) {
    KVKEEP_RETURN_IF_ERROR(drive->WriteBack(size).status());
  }
  KVKEEP_RETURN_IF_ERROR(Alternate(
      plan.rounds, write_into(&result.overwrites),
      [&](uint64_t block) { return fio.Overwrite(block); }, &result.overwrites));
  return result;
}

}  // namespace

size_t BesideFio::better() const {
  size_t better = 0;
  for (size_t i = 1; i < fio.size(); ++i) {
    if (bench::Summarize(fio[i]).median > bench::Summarize(fio[better]).median) better = i;
  }
  return better;
}

double NvmeResult::from_nvme() const {
  const uint64_t got = reads.kvkeep.total().bytes;
  return got == 0 ? 0 : static_cast<double>(promoted_bytes) / static_cast<double>(got);
}

absl::StatusOr<std::vector<NvmeResult>> CompareWithFio(const NvmeOptions& options) {
  const NvmePlan& plan = options.plan;
  KVKEEP_ASSIGN_OR_RETURN(const std::unique_ptr<Fio> fio,
                          Fio::Make({.directory = options.directory,
                                     .data_bytes = plan.read_bytes(),
                                     .fresh_bytes = plan.round_bytes,
                                     .seconds = plan.seconds}));
  std::vector<NvmeResult> results;
  for (const uint64_t size : plan.sizes) {
    KVKEEP_ASSIGN_OR_RETURN(results.emplace_back(), RunSize(options, *fio, size));
  }
  return results;
}

}  // namespace kvkeep::compare
