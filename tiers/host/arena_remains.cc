#include "tiers/host/arena_remains.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <array>
#include <cerrno>
#include <vector>

#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/host/arena_files.h"
#include "tiers/host/kernel_facts.h"

namespace kvkeep {
namespace {

// The directory of an arena, and whether its lock is held.
class Mount {
 public:
  static absl::StatusOr<Mount> Open(const std::string& dir);

  bool in_use() const { return in_use_; }
  const std::string& filesystem() const { return filesystem_; }
  absl::StatusOr<std::vector<std::string>> ArenaFiles() const;
  absl::StatusOr<uint64_t> HeldBytes(const std::string& name) const;
  std::string ReadId() const;
  absl::Status Remove(const std::string& name) const;
  // Returns 0 for a mount without a limit, where the kernel counts no free bytes.
  uint64_t FreeBytes() const;

  absl::Status Error(absl::string_view what, int error) const {
    return absl::ErrnoToStatus(error, absl::StrCat("arena ", dir_, ": ", what));
  }

 private:
  explicit Mount(const std::string& dir) : dir_(dir) {}
  absl::Status CheckFileSystem();
  absl::Status TryLock();

  std::string dir_, filesystem_;
  UniqueFd fd_, lock_;
  bool in_use_ = false;
};

absl::StatusOr<Mount> Mount::Open(const std::string& dir) {
  Mount mount(dir);
  mount.fd_ = UniqueFd(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!mount.fd_.valid()) return mount.Error("cannot open", errno);
  KVKEEP_RETURN_IF_ERROR(mount.CheckFileSystem());
  KVKEEP_RETURN_IF_ERROR(mount.TryLock());
  return mount;
}

absl::Status Mount::CheckFileSystem() {
  struct statfs fs {};
  struct stat info {};
  if (fstatfs(fd_.get(), &fs) != 0 || fstat(fd_.get(), &info) != 0) return Error("statfs", errno);
  const auto type = static_cast<unsigned long>(fs.f_type);
  if (type == TMPFS_MAGIC) {
    filesystem_ = absl::StrCat("tmpfs, huge=", TmpfsHugeOption(info.st_dev));
  } else if (type == HUGETLBFS_MAGIC) {
    filesystem_ =
        absl::StrCat("hugetlbfs, ", static_cast<uint64_t>(fs.f_bsize) / kMiB, " MiB pages");
  } else {
    return absl::FailedPreconditionError(
        absl::StrCat("arena ", dir_, ": is neither tmpfs nor hugetlbfs, so no arena's mount"));
  }
  return absl::OkStatus();
}

absl::Status Mount::TryLock() {
  lock_ = UniqueFd(openat(fd_.get(), kArenaLockName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!lock_.valid()) {
    return errno == ENOENT ? absl::OkStatus() : Error("cannot open arena.lock", errno);
  }
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  if (errno != EWOULDBLOCK) return Error("cannot lock arena.lock", errno);
  in_use_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Mount::ArenaFiles() const {
  absl::StatusOr<std::vector<std::string>> names = ListArenaFiles(fd_.get());
  if (names.ok()) return names;
  return absl::Status(names.status().code(),
                      absl::StrCat("arena ", dir_, ": ", std::string(names.status().message())));
}

absl::StatusOr<uint64_t> Mount::HeldBytes(const std::string& name) const {
  struct stat info {};
  if (fstatat(fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return 0;
    return Error(absl::StrCat("cannot look at ", name), errno);
  }
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

std::string Mount::ReadId() const {
  std::array<char, 256> target{};
  const ssize_t length = readlinkat(fd_.get(), kArenaIdName, target.data(), target.size());
  return length <= 0 ? "" : std::string(target.data(), static_cast<size_t>(length));
}

absl::Status Mount::Remove(const std::string& name) const {
  if (unlinkat(fd_.get(), name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
  return Error(absl::StrCat("cannot remove ", name), errno);
}

uint64_t Mount::FreeBytes() const {
  struct statfs fs {};
  if (fstatfs(fd_.get(), &fs) != 0 || fs.f_blocks == 0) return 0;
  return static_cast<uint64_t>(fs.f_bfree) * static_cast<uint64_t>(fs.f_bsize);
}

}  // namespace

absl::StatusOr<ArenaRemains> LookAtArena(const std::string& mount_dir) {
  KVKEEP_ASSIGN_OR_RETURN(const Mount mount, Mount::Open(mount_dir));
  ArenaRemains remains{
      .filesystem = mount.filesystem(), .in_use = mount.in_use(), .id = mount.ReadId()};
  KVKEEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, mount.ArenaFiles());
  for (const std::string& name : names) {
    KVKEEP_ASSIGN_OR_RETURN(const uint64_t held, mount.HeldBytes(name));
    remains.held_bytes += held;
    remains.files += 1;
    remains.segments += IsSegmentName(name);
  }
  return remains;
}

absl::StatusOr<DroppedArena> DropArena(const std::string& mount_dir) {
  KVKEEP_ASSIGN_OR_RETURN(const Mount mount, Mount::Open(mount_dir));
  if (mount.in_use()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "arena ", mount_dir, ": a daemon uses it (arena.lock is locked); stop it first"));
  }
  KVKEEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, mount.ArenaFiles());
  const uint64_t free_before = mount.FreeBytes();
  DroppedArena dropped;
  for (const std::string& name : names) {
    KVKEEP_ASSIGN_OR_RETURN(const uint64_t held, mount.HeldBytes(name));
    KVKEEP_RETURN_IF_ERROR(mount.Remove(name));
    dropped.bytes += held;
    dropped.files += 1;
  }
  // A mount without a limit does not count what is free.
  const uint64_t free_after = mount.FreeBytes();
  if (free_after > 0) {
    const uint64_t freed = free_after > free_before ? free_after - free_before : 0;
    dropped.still_held_bytes = dropped.bytes > freed ? dropped.bytes - freed : 0;
  }
  return dropped;
}

}  // namespace kvkeep
