#include "tiers/host/mount_files.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tiers/host/kernel_facts.h"

namespace kvkeep {
namespace {

constexpr char kLockName[] = "arena.lock";
constexpr char kIdName[] = "arena.id";
constexpr char kSegmentPrefix[] = "segment.";

std::string SegmentName(size_t segment) {
  return absl::StrFormat("%s%03d", kSegmentPrefix, segment);
}

bool IsSegmentName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kSegmentPrefix)) return false;
  return name.size() >= 3 && name.find_first_not_of("0123456789") == absl::string_view::npos;
}

struct ArenaId {
  Uuid uuid;
  ArenaGeometry geometry;

  std::string ToString() const {
    return absl::StrCat("v1:", uuid.ToHex(), ":", geometry.segment_bytes, ":",
                        geometry.capacity_bytes);
  }
  // None: not ours to read (damaged, or of another version).
  static std::optional<ArenaId> Parse(absl::string_view text) {
    const std::vector<absl::string_view> fields = absl::StrSplit(text, ':');
    if (fields.size() != 4 || fields[0] != "v1" || fields[1].size() != 2 * Uuid::kSize) {
      return std::nullopt;
    }
    ArenaId id;
    const absl::StatusOr<Uuid> uuid = Uuid::FromHex(fields[1]);
    if (!uuid.ok() || !absl::SimpleAtoi(fields[2], &id.geometry.segment_bytes) ||
        !absl::SimpleAtoi(fields[3], &id.geometry.capacity_bytes)) {
      return std::nullopt;
    }
    id.uuid = *uuid;
    return id;
  }
};

// Made by us, for us alone, and as long as it should be: nothing another user planted.
bool IsWholeSegment(const struct stat& info, uint64_t bytes) {
  return S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1 &&
         (info.st_mode & 0077) == 0 && static_cast<uint64_t>(info.st_size) == bytes;
}

class MountFiles final : public SegmentFiles {
 public:
  MountFiles(const ArenaGeometry& geometry, MountDirs dirs)
      : geometry_(geometry), dirs_(std::move(dirs)) {}
  ~MountFiles() override;

  absl::Status Open(RandomSource* random);

  const ArenaGeometry& geometry() const override { return geometry_; }
  const Uuid& uuid() const override { return uuid_; }
  absl::StatusOr<Mapping> MapSegment(size_t segment) override;
  absl::Status Finish() override;
  absl::StatusOr<int> OpenForClient(size_t segment) override;
  bool survives_restart() const override { return true; }
  size_t reused_segments() const override { return reused_ ? geometry_.segment_count() : 0; }
  std::string describe() const override;

 private:
  absl::Status Error(absl::string_view what, int error) const {
    return absl::ErrnoToStatus(error, absl::StrCat("arena ", dirs_.mount_dir, ": ", what));
  }
  absl::Status Lock();
  std::optional<ArenaId> ReadId() const;
  bool AllSegmentsWhole() const;
  absl::Status RemoveOldFiles();
  absl::Status CheckSpace() const;
  absl::StatusOr<UniqueFd> OpenSegment(size_t segment);
  absl::Status Allocate(int fd, size_t segment) const;

  const ArenaGeometry geometry_;
  const MountDirs dirs_;
  UniqueFd lock_;
  Uuid uuid_;
  bool reused_ = false;
  bool finished_ = false;
  size_t created_ = 0;         // segments made by this start
  std::vector<ino_t> inodes_;  // of the segments, to know them again through readonly_dir
};

MountFiles::~MountFiles() {
  // A start that failed halfway gives its memory back; whole arenas stay for the next one.
  if (finished_ || reused_) return;
  for (size_t i = 0; i < created_; ++i) unlinkat(dirs_.writable.get(), SegmentName(i).c_str(), 0);
}

absl::Status MountFiles::Open(RandomSource* random) {
  KVKEEP_RETURN_IF_ERROR(Lock());
  const std::optional<ArenaId> id = ReadId();
  if (id && id->geometry == geometry_ && AllSegmentsWhole()) {
    reused_ = true;
    uuid_ = id->uuid;
    return absl::OkStatus();
  }
  KVKEEP_RETURN_IF_ERROR(RemoveOldFiles());
  uuid_ = random->Next<Uuid>();
  return CheckSpace();
}

absl::Status MountFiles::Lock() {
  lock_ = UniqueFd(openat(dirs_.writable.get(), kLockName,
                          O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!lock_.valid()) return Error("cannot open arena.lock", errno);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  if (errno != EWOULDBLOCK) return Error("cannot lock arena.lock", errno);
  return absl::FailedPreconditionError(
      absl::StrCat("arena ", dirs_.mount_dir,
                   ": another daemon uses it (arena.lock is locked); stop that one, or give each "
                   "daemon a mount of its own"));
}

std::optional<ArenaId> MountFiles::ReadId() const {
  struct stat info {};
  std::array<char, 256> target{};
  if (fstatat(dirs_.writable.get(), kIdName, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISLNK(info.st_mode) || info.st_uid != geteuid()) {
    return std::nullopt;
  }
  const ssize_t length = readlinkat(dirs_.writable.get(), kIdName, target.data(), target.size());
  if (length <= 0) return std::nullopt;
  return ArenaId::Parse(absl::string_view(target.data(), static_cast<size_t>(length)));
}

bool MountFiles::AllSegmentsWhole() const {
  for (size_t i = 0; i < geometry_.segment_count(); ++i) {
    struct stat info {};
    if (fstatat(dirs_.writable.get(), SegmentName(i).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return false;
    }
    if (!IsWholeSegment(info, geometry_.bytes_of(i))) return false;
  }
  return true;
}

absl::Status MountFiles::RemoveOldFiles() {
  // The identity first: a crash after it leaves segments that nobody will take for whole.
  if (unlinkat(dirs_.writable.get(), kIdName, 0) != 0 && errno != ENOENT) {
    return Error("cannot remove the old arena.id", errno);
  }
  const int fd = openat(dirs_.writable.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Error("cannot list", errno);
  std::unique_ptr<DIR, int (*)(DIR*)> dir(fdopendir(fd), closedir);
  if (dir == nullptr) {
    const int error = errno;
    close(fd);
    return Error("cannot list", error);
  }
  std::vector<std::string> old;  // unlinking while listing may skip entries
  while (const dirent* entry = readdir(dir.get())) {
    if (IsSegmentName(entry->d_name)) old.push_back(entry->d_name);
  }
  for (const std::string& name : old) {
    if (unlinkat(dirs_.writable.get(), name.c_str(), 0) != 0) {
      return Error(absl::StrCat("cannot remove the old ", name), errno);
    }
  }
  return absl::OkStatus();
}

absl::Status MountFiles::CheckSpace() const {
  struct statfs fs {};
  if (fstatfs(dirs_.writable.get(), &fs) != 0) return Error("statfs", errno);
  const bool limited = fs.f_blocks != 0;  // tmpfs with size=0 says 0
  const uint64_t free_bytes =
      static_cast<uint64_t>(fs.f_bavail) * static_cast<uint64_t>(fs.f_bsize);
  if (limited && free_bytes < geometry_.capacity_bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "arena %s: %d MiB wanted, %d MiB free there; mount it with a larger size=%s or lower the "
        "capacity",
        dirs_.mount_dir, geometry_.capacity_bytes / kMiB, free_bytes / kMiB,
        dirs_.hugetlbfs ? ", raise vm.nr_hugepages" : ""));
  }
  // Memory behind hugetlbfs is set apart already.
  return dirs_.hugetlbfs ? absl::OkStatus() : CheckMemoryFor(geometry_.capacity_bytes);
}

absl::StatusOr<UniqueFd> MountFiles::OpenSegment(size_t segment) {
  const std::string name = SegmentName(segment);
  const int create = reused_ ? 0 : O_CREAT | O_EXCL;
  UniqueFd fd(openat(dirs_.writable.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | create,
                     S_IRUSR | S_IWUSR));
  if (!fd.valid()) return Error(absl::StrCat("cannot open ", name), errno);
  if (!reused_) {
    ++created_;
    if (ftruncate(fd.get(), static_cast<off_t>(geometry_.bytes_of(segment))) != 0) {
      return Error(absl::StrCat("cannot size ", name), errno);
    }
  }
  return fd;
}

// All memory now, so that a shortage is an error here and never a SIGBUS later. Content stays.
absl::Status MountFiles::Allocate(int fd, size_t segment) const {
  const uint64_t bytes = geometry_.bytes_of(segment);
  struct stat info {};
  if (fstat(fd, &info) != 0) return Error("stat of a segment", errno);
  if (static_cast<uint64_t>(info.st_blocks) * 512 >= bytes) return absl::OkStatus();
  int rc = 0;
  do {
    rc = fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (rc != 0 && errno == EINTR);
  if (rc == 0) return absl::OkStatus();
  return Error(
      absl::StrFormat("no memory for segment %d of %d (%d MiB each); mount it with a larger "
                      "size=%s or lower the capacity",
                      segment, geometry_.segment_count(), geometry_.segment_bytes / kMiB,
                      dirs_.hugetlbfs ? ", raise vm.nr_hugepages" : ""),
      errno);
}

absl::StatusOr<Mapping> MountFiles::MapSegment(size_t segment) {
  KVKEEP_CHECK(segment == inodes_.size());
  KVKEEP_ASSIGN_OR_RETURN(const UniqueFd fd, OpenSegment(segment));
  KVKEEP_RETURN_IF_ERROR(Allocate(fd.get(), segment));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return Error("stat of a segment", errno);
  if (!IsWholeSegment(info, geometry_.bytes_of(segment))) {  // the name may lead elsewhere by now
    return absl::FailedPreconditionError(
        absl::StrCat("arena ", dirs_.mount_dir, ": ", SegmentName(segment),
                     " changed while it was opened; keep others from writing to this directory"));
  }
  inodes_.push_back(info.st_ino);
  // The mapping keeps the file; the descriptor is not needed again.
  return Mapping::Map(fd.get(), geometry_.bytes_of(segment), dirs_.page_bytes);
}

absl::Status MountFiles::Finish() {
  KVKEEP_CHECK(inodes_.size() == geometry_.segment_count());
  if (!reused_) {
    const std::string id = ArenaId{uuid_, geometry_}.ToString();
    if (symlinkat(id.c_str(), dirs_.writable.get(), kIdName) != 0) {
      return Error("cannot write arena.id", errno);
    }
  }
  finished_ = true;
  return absl::OkStatus();
}

absl::StatusOr<int> MountFiles::OpenForClient(size_t segment) {
  KVKEEP_CHECK(segment < inodes_.size());
  const std::string name = SegmentName(segment);
  UniqueFd fd(openat(dirs_.readonly.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return Error(absl::StrCat("read-only descriptor of ", name), errno);
  // Looked at every time: what leaves the daemon is the right file, and nobody can write it.
  struct stat info {};
  struct statvfs vfs {};
  if (fstat(fd.get(), &info) != 0 || fstatvfs(fd.get(), &vfs) != 0) return Error("stat", errno);
  if (info.st_dev != dirs_.device || info.st_ino != inodes_[segment]) {
    return absl::FailedPreconditionError(absl::StrCat("arena ", dirs_.mount_dir, ": ", name,
                                                      " was replaced behind the daemon's back"));
  }
  if ((vfs.f_flag & ST_RDONLY) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("arena ", dirs_.mount_dir,
                     ": readonly_dir has been remounted writable; no descriptor given"));
  }
  return fd.Release();
}

std::string MountFiles::describe() const {
  const std::string pages =
      dirs_.hugetlbfs ? absl::StrFormat("hugetlbfs, %d MiB pages", dirs_.page_bytes / kMiB)
                      : absl::StrCat("tmpfs, huge=", TmpfsHugeOption(dirs_.device));
  return absl::StrCat("mount ", dirs_.mount_dir, " (", pages, ")");
}

}  // namespace

absl::StatusOr<std::unique_ptr<SegmentFiles>> CreateMountFiles(const ArenaGeometry& geometry,
                                                               MountDirs dirs,
                                                               RandomSource* random) {
  auto files = std::make_unique<MountFiles>(geometry, std::move(dirs));
  KVKEEP_RETURN_IF_ERROR(files->Open(random));
  return files;
}

}  // namespace kvkeep
