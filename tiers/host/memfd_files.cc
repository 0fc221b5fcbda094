#include "tiers/host/memfd_files.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/host/kernel_facts.h"

namespace kvkeep {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, Linux 6.3: newer than our headers

// Descriptors beside the segments': devices, index and connections (InDescriptorReserve).
constexpr size_t kOtherDescriptors = 512;

absl::Status TooFewDescriptors(size_t segments) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  return absl::ResourceExhaustedError(absl::StrCat(
      "arena: RLIMIT_NOFILE is ", files.rlim_cur, "; G2's ", segments,
      " segments take a descriptor each, and the rest of the daemon some ", kOtherDescriptors,
      ": raise it to ", segments + kOtherDescriptors,
      " or more (LimitNOFILE=, ulimit -n), or raise g2.segment_bytes"));
}

// `segments`: the number of all segments, for the error.
absl::StatusOr<UniqueFd> CreateMemfd(const std::string& name, size_t segments) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(memfd_create(name.c_str(), flags | kNoExecSeal));
  if (!fd.valid() && errno == EINVAL) fd = UniqueFd(memfd_create(name.c_str(), flags));
  if (!fd.valid() && errno == EMFILE) return TooFewDescriptors(segments);
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("arena: memfd_create ", name));
  return fd;
}

class MemfdFiles final : public SegmentFiles {
 public:
  MemfdFiles(const ArenaGeometry& geometry, const Uuid& uuid)
      : geometry_(geometry), uuid_(uuid), fds_(geometry.segment_count()) {}

  const ArenaGeometry& geometry() const override { return geometry_; }
  const Uuid& uuid() const override { return uuid_; }
  absl::StatusOr<Mapping> MapSegment(size_t segment, NumaPlacement& placement) override;
  absl::StatusOr<Mapping> MapMarks() override { return Mapping(); }
  absl::Status Finish() override {
    KVKEEP_CHECK(mapped_ == geometry_.segment_count());
    return absl::OkStatus();
  }
  absl::StatusOr<int> OpenForClient(size_t segment) override;
  uint64_t page_bytes() const override { return PageBytes(); }
  bool survives_restart() const override { return false; }
  size_t reused_segments() const override { return 0; }
  std::string replaced_because() const override { return ""; }
  std::string describe() const override {
    return absl::StrCat("memfd (shmem_enabled=", shmem_enabled_, ")");
  }

 private:
  const ArenaGeometry geometry_;
  const Uuid uuid_;
  const std::string shmem_enabled_ = ShmemEnabled();
  std::vector<UniqueFd> fds_;
  std::atomic<size_t> mapped_{0};
};

absl::StatusOr<Mapping> MemfdFiles::MapSegment(size_t segment, NumaPlacement& placement) {
  KVKEEP_CHECK(segment < fds_.size());
  const uint64_t bytes = geometry_.bytes_of(segment);
  const std::string name = absl::StrFormat("kvkeep-g2.%03d", segment);
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd fd, CreateMemfd(name, geometry_.segment_count()));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("arena: size of ", name));
  }
  // Its pages come with the prefault, in the background: taking them here would hold up the start
  // for most of a second per GiB. CheckMemoryFor has seen that they are there.
  KVKEEP_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd.get(), bytes, PageBytes()));
  placement.Place(segment, mapping.memory(), /*reused=*/false);
  // The mode keeps other users from reopening it; the seals keep everybody from changing it.
  if (fchmod(fd.get(), S_IRUSR) != 0 || fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("arena: cannot seal ", name, " (F_SEAL_FUTURE_WRITE needs Linux 5.1): errno ",
                     errno, "; give the arena its two mounts instead"));
  }
  KVKEEP_CHECK((fcntl(fd.get(), F_GET_SEALS) & kSeals) == kSeals);
  fds_[segment] = std::move(fd);
  ++mapped_;
  return mapping;
}

absl::StatusOr<int> MemfdFiles::OpenForClient(size_t segment) {
  KVKEEP_CHECK(segment < fds_.size());
  // Through /proc: a new description that is read-only, which dup could not make.
  const std::string path = absl::StrCat("/proc/self/fd/", fds_[segment].get());
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("arena: read-only descriptor of segment ", segment, " through ", path));
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SegmentFiles>> CreateMemfdFiles(const ArenaGeometry& geometry,
                                                               RandomSource* random) {
  KVKEEP_RETURN_IF_ERROR(CheckMemoryFor(geometry.capacity_bytes));
  return std::make_unique<MemfdFiles>(geometry, random->Next<Uuid>());
}

}  // namespace kvkeep
