// The checks on the two directories (mount_files.h).
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "tiers/base/own_directory.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/status_macros.h"
#include "tiers/host/mount_files.h"

namespace kvkeep {
namespace {

absl::StatusOr<UniqueFd> OpenDir(const char* option, const std::string& path) {
  if (path.empty()) return absl::FailedPreconditionError(absl::StrCat(option, " is not set"));
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat(option, " ", path, ": cannot open: ", strerror(errno)));
  }
  return fd;
}

absl::Status CheckWritable(const std::string& path, MountDirs& dirs) {
  struct statfs fs {};
  if (fstatfs(dirs.writable.get(), &fs) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("mount_dir ", path, ": statfs: ", strerror(errno)));
  }
  const auto type = static_cast<unsigned long>(fs.f_type);
  if (type != TMPFS_MAGIC && type != HUGETLBFS_MAGIC) {
    return absl::FailedPreconditionError(absl::StrCat(
        "mount_dir ", path,
        ": is neither tmpfs nor hugetlbfs; mount one there, as with: mount -t tmpfs -o "
        "huge=always,mode=0700,size=... kvkeep ",
        path));
  }
  dirs.hugetlbfs = type == HUGETLBFS_MAGIC;
  dirs.page_bytes = static_cast<uint64_t>(fs.f_bsize);
  if (!std::has_single_bit(dirs.page_bytes) || dirs.page_bytes < PageBytes()) {
    return absl::FailedPreconditionError(
        absl::StrCat("mount_dir ", path, ": strange page size ", dirs.page_bytes));
  }
  KVKEEP_RETURN_IF_ERROR(CheckOwnDirectory(dirs.writable.get(), absl::StrCat("mount_dir ", path)));
  if (faccessat(dirs.writable.get(), ".", W_OK | X_OK, AT_EACCESS) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("mount_dir ", path, ": not writable: ", strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status CheckReadonly(const std::string& path, MountDirs& dirs) {
  struct stat writable {};
  struct stat readonly {};
  struct statvfs vfs {};
  if (fstat(dirs.writable.get(), &writable) != 0 || fstat(dirs.readonly.get(), &readonly) != 0 ||
      fstatvfs(dirs.readonly.get(), &vfs) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("readonly_dir ", path, ": stat: ", strerror(errno)));
  }
  if (readonly.st_dev != writable.st_dev || readonly.st_ino != writable.st_ino) {
    return absl::FailedPreconditionError(
        absl::StrCat("readonly_dir ", path, ": is not a bind mount of mount_dir ", dirs.mount_dir,
                     ", but another file system or directory"));
  }
  if ((vfs.f_flag & ST_RDONLY) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("readonly_dir ", path,
                     ": is not mounted read-only; as with: mount -o remount,bind,ro ", path));
  }
  dirs.device = writable.st_dev;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MountDirs> OpenMountDirs(const std::string& mount_dir,
                                        const std::string& readonly_dir) {
  MountDirs dirs;
  dirs.mount_dir = mount_dir;
  KVKEEP_ASSIGN_OR_RETURN(dirs.writable, OpenDir("mount_dir", mount_dir));
  KVKEEP_ASSIGN_OR_RETURN(dirs.readonly, OpenDir("readonly_dir", readonly_dir));
  KVKEEP_RETURN_IF_ERROR(CheckWritable(mount_dir, dirs));
  KVKEEP_RETURN_IF_ERROR(CheckReadonly(readonly_dir, dirs));
  return dirs;
}

}  // namespace kvkeep
