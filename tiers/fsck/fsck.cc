#include "tiers/fsck/fsck.h"

#include <absl/strings/str_cat.h>

#include "tiers/base/status_macros.h"
#include "tiers/fsck/findings.h"
#include "tiers/fsck/index_check.h"
#include "tiers/fsck/offline_device.h"
#include "tiers/nvme/device_names.h"

namespace kvkeep {
namespace {

using fsck_internal::Findings;
using fsck_internal::IndexCheck;
using fsck_internal::OfflineDevice;

constexpr char kMakeAnew[] = "kvkeep fsck --rebuild-index makes it anew from the images";

void AddIndexFinding(FsckProblem problem, const absl::Status& status, bool notice,
                     Findings* findings) {
  findings->Add({.problem = problem,
                 .notice = notice,
                 .file = kIndexName,
                 .what = std::string(status.message()),
                 .to_do = notice ? "nothing: a power cut tore its end off" : kMakeAnew});
}

// Returns false if nothing can be said about the chunks that the index names.
absl::StatusOr<bool> CheckIndex(const FsckOptions& options, const OfflineDevice& device,
                                Findings* findings, FsckReport* report) {
  absl::StatusOr<std::unique_ptr<IndexInspector>> index =
      InspectRocksDbIndex(device.path(kIndexName), device.superblock().device);
  if (absl::IsFailedPrecondition(index.status())) return index.status();
  if (!index.ok()) {
    AddIndexFinding(FsckProblem::kIndex, index.status(), false, findings);
    return false;
  }
  if (!(*index)->log_status().ok()) {
    const absl::StatusOr<StableMark> mark = (*index)->ReadStableMark();
    const bool power_cut = mark.ok() && mark->boot_id != options.boot_id && !mark->clean;
    AddIndexFinding(FsckProblem::kLog, (*index)->log_status(), power_cut, findings);
  }
  const absl::Status tables = (*index)->VerifyTables();
  if (!tables.ok()) AddIndexFinding(FsckProblem::kIndex, tables, false, findings);
  const absl::Status checked = IndexCheck(options, device, **index, *findings, *report).Run();
  if (checked.ok()) return true;
  // Most likely a finding tells this already; makes sure that one does.
  if (tables.ok()) AddIndexFinding(FsckProblem::kIndex, checked, false, findings);
  return false;
}

}  // namespace

absl::Status FsckOptions::Validate() const {
  if (dir.empty()) return absl::InvalidArgumentError("dir of the device is empty");
  if (threads < 1 || threads > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", threads, ", allowed are 1 to 64"));
  }
  if (max_findings < 1 || max_findings > 1'000'000) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_findings is ", max_findings, ", allowed are 1 to 1000000"));
  }
  return absl::OkStatus();
}

absl::StatusOr<FsckReport> Fsck(const FsckOptions& options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  Findings findings(options.max_findings);
  FsckReport report;
  KVKEEP_ASSIGN_OR_RETURN(const std::unique_ptr<OfflineDevice> device,
                          OfflineDevice::Open(options, &findings));
  if (device != nullptr) {
    report.device = device->superblock().device;
    report.data_bytes = device->geometry().data_bytes();
    KVKEEP_ASSIGN_OR_RETURN(report.complete, CheckIndex(options, *device, &findings, &report));
    report.read_bytes = device->read_bytes();
  }
  findings.MoveTo(&report);
  return report;
}

}  // namespace kvkeep
