#include "tiers/nvme/probe.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "tiers/base/status_macros.h"
#include "tiers/nvme/device_names.h"
#include "tiers/nvme/posix_file.h"
#include "tiers/nvme/superblock.h"

namespace kvkeep {
namespace {

constexpr uint64_t kRoomBytes = 16 * kMiB;  // an index writes about so much when it is opened

}  // namespace

absl::Status ProbeDevice(const std::string& dir) {
  KVKEEP_ASSIGN_OR_RETURN(const UniqueFd at, OpenAt(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY, 0, dir));
  // A mount point without its file system has no superblock.
  if (faccessat(at.get(), kSuperblockName, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
    return ErrnoStatus(errno, absl::StrCat(dir, "/", kSuperblockName), "look");
  }
  const std::string path = absl::StrCat(dir, "/", kProbeName);
  KVKEEP_ASSIGN_OR_RETURN(const UniqueFd file,
                          OpenAt(at.get(), kProbeName, O_RDWR | O_CREAT | O_TRUNC, 0600, path));
  const absl::Cleanup remove = [&at] { unlinkat(at.get(), kProbeName, 0); };
  Block written, read{};
  written.fill(std::byte{0xa5});
  KVKEEP_RETURN_IF_ERROR(Preallocate(file.get(), 0, kRoomBytes, path));
  KVKEEP_RETURN_IF_ERROR(WriteAt(file.get(), 0, written, path));
  KVKEEP_RETURN_IF_ERROR(FlushFile(file.get(), path));
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);  // so that the drive is read, not the cache
  KVKEEP_RETURN_IF_ERROR(ReadAt(file.get(), 0, read, path));
  if (read != written) return absl::DataLossError(absl::StrCat(path, ": not what was written"));
  return absl::OkStatus();
}

}  // namespace kvkeep
