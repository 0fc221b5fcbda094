#include "tiers/host/mount_files.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
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
#include "tiers/base/memory_errors.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tiers/host/arena_files.h"
#include "tiers/host/kernel_facts.h"

namespace kvkeep {
namespace {

// Made by us, for us alone, and as long as it should be: nothing another user planted.
bool IsWholeFile(const struct stat& info, uint64_t bytes) {
  return S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1 &&
         (info.st_mode & 0077) == 0 && static_cast<uint64_t>(info.st_size) == bytes;
}

class MountFiles final : public SegmentFiles {
 public:
  MountFiles(const ArenaGeometry& geometry, MountDirs dirs, ReuseOptions reuse)
      : geometry_(geometry), dirs_(std::move(dirs)), reuse_(reuse) {}
  ~MountFiles() override;

  absl::Status Open(RandomSource* random);

  const ArenaGeometry& geometry() const override { return geometry_; }
  const Uuid& uuid() const override { return uuid_; }
  absl::StatusOr<Mapping> MapSegment(size_t segment) override;
  absl::StatusOr<Mapping> MapMarks() override;
  absl::Status Finish() override;
  absl::StatusOr<int> OpenForClient(size_t segment) override;
  bool survives_restart() const override { return true; }
  size_t reused_segments() const override { return reused_ ? geometry_.segment_count() : 0; }
  UniqueFd OpenNotesDirectory() const override {
    return UniqueFd(openat(dirs_.writable.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  uint64_t replaced_pages() const override { return replaced_pages_; }
  std::string replaced_because() const override { return replaced_because_; }
  std::string describe() const override;

 private:
  absl::Status Error(absl::string_view what, int error) const {
    return absl::ErrnoToStatus(error, absl::StrCat("arena ", dirs_.mount_dir, ": ", what));
  }
  absl::Status Lock();
  // The target of arena.id; empty when there is none of ours.
  std::string ReadId() const;
  // What keeps the files there from being used again; empty: nothing.
  std::string WhyNotReusable(const std::string& id) const;
  bool IsWhole(const std::string& name, uint64_t bytes) const;
  // Has the files drop each page that a note names, and the note. Not OK: they cannot be used.
  absl::Status ReplaceBrokenPages();
  absl::Status ReplaceBrokenPage(const MemoryErrorNote& note);
  absl::Status RemoveOldFiles();
  absl::Status CheckSpace() const;
  uint64_t marks_file_bytes() const { return RoundUp(geometry_.marks_bytes(), dirs_.page_bytes); }
  // A file that is all there: opened, or made with its memory.
  struct WholeFile {
    UniqueFd fd;
    ino_t inode = 0;
  };
  absl::StatusOr<WholeFile> OpenFile(const std::string& name, uint64_t bytes);
  absl::Status Allocate(int fd, const std::string& name, uint64_t bytes) const;

  const ArenaGeometry geometry_;
  const MountDirs dirs_;
  const ReuseOptions reuse_;
  UniqueFd lock_;
  Uuid uuid_;
  bool reused_ = false;
  uint64_t replaced_pages_ = 0;
  std::string replaced_because_;
  bool finished_ = false;
  std::vector<std::string> created_;  // names of files made by this start
  std::vector<ino_t> inodes_;         // of the segments, to know them again through readonly_dir
};

MountFiles::~MountFiles() {
  // A start that failed halfway gives its memory back; whole arenas stay for the next one.
  if (finished_ || reused_) return;
  for (const std::string& name : created_) unlinkat(dirs_.writable.get(), name.c_str(), 0);
}

absl::Status MountFiles::Open(RandomSource* random) {
  KVKEEP_RETURN_IF_ERROR(Lock());
  const std::string id = ReadId();
  if (!id.empty()) {
    replaced_because_ = WhyNotReusable(id);
    if (replaced_because_.empty()) {
      if (const absl::Status replaced = ReplaceBrokenPages(); !replaced.ok()) {
        replaced_because_ = std::string(replaced.message());
      }
    }
    if (replaced_because_.empty()) {
      reused_ = true;
      uuid_ = ArenaId::Parse(id)->uuid;
      return absl::OkStatus();
    }
  }
  KVKEEP_RETURN_IF_ERROR(RemoveOldFiles());
  uuid_ = random->Next<Uuid>();
  return CheckSpace();
}

absl::Status MountFiles::Lock() {
  lock_ = UniqueFd(openat(dirs_.writable.get(), kArenaLockName,
                          O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!lock_.valid()) return Error("cannot open arena.lock", errno);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  if (errno != EWOULDBLOCK) return Error("cannot lock arena.lock", errno);
  return absl::FailedPreconditionError(
      absl::StrCat("arena ", dirs_.mount_dir,
                   ": another daemon uses it (arena.lock is locked); stop that one, or give each "
                   "daemon a mount of its own"));
}

std::string MountFiles::ReadId() const {
  struct stat info {};
  std::array<char, 256> target{};
  if (fstatat(dirs_.writable.get(), kArenaIdName, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISLNK(info.st_mode) || info.st_uid != geteuid()) {
    return "";
  }
  const ssize_t length =
      readlinkat(dirs_.writable.get(), kArenaIdName, target.data(), target.size());
  return length <= 0 ? "" : std::string(target.data(), static_cast<size_t>(length));
}

std::string MountFiles::WhyNotReusable(const std::string& id) const {
  if (reuse_.fresh) return "a fresh arena was asked for";
  const std::optional<ArenaId> parsed = ArenaId::Parse(id);
  if (!parsed.has_value()) {
    return absl::StrCat("their format is ", id.substr(0, id.find(':')), ", this daemon's is ",
                        kArenaIdFormat);
  }
  if (parsed->geometry != geometry_) return "capacity or segment size changed";
  if (parsed->owners != reuse_.owners) return "the tenants' shares, or who may map them, changed";
  for (size_t i = 0; i < geometry_.segment_count(); ++i) {
    if (!IsWhole(SegmentName(i), geometry_.bytes_of(i))) {
      return absl::StrCat(SegmentName(i), " is not whole");
    }
  }
  return IsWhole(kArenaMarksName, marks_file_bytes())
             ? ""
             : absl::StrCat(kArenaMarksName, " is not whole");
}

bool MountFiles::IsWhole(const std::string& name, uint64_t bytes) const {
  struct stat info {};
  return fstatat(dirs_.writable.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         IsWholeFile(info, bytes);
}

absl::Status MountFiles::ReplaceBrokenPages() {
  KVKEEP_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListArenaFiles(dirs_.writable.get()));
  for (const std::string& name : names) {
    const std::optional<MemoryErrorNote> note = MemoryErrorNote::FromName(name);
    if (!note.has_value()) continue;
    KVKEEP_RETURN_IF_ERROR(ReplaceBrokenPage(*note));
    // Last: a start that is killed before does it again.
    if (unlinkat(dirs_.writable.get(), name.c_str(), 0) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", name));
    }
    ++replaced_pages_;
  }
  return absl::OkStatus();
}

// A hole is punched where the page was: whatever lay in it is zeros now, which no image's header
// and no piece's checksum takes for what was written. OpenFile gives the file its memory again.
absl::Status MountFiles::ReplaceBrokenPage(const MemoryErrorNote& note) {
  const bool marks = note.file == kMarksFileNumber;
  if (!marks && note.file >= geometry_.segment_count()) return absl::OkStatus();
  const std::string name = marks ? kArenaMarksName : SegmentName(note.file);
  const uint64_t bytes = marks ? marks_file_bytes() : geometry_.bytes_of(note.file);
  if (note.offset >= bytes) return absl::OkStatus();
  const UniqueFd fd(openat(dirs_.writable.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", name));
  const uint64_t page = note.offset / dirs_.page_bytes * dirs_.page_bytes;
  if (fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(page),
                static_cast<off_t>(dirs_.page_bytes)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("a broken page of ", name, " does not go"));
  }
  return absl::OkStatus();
}

absl::Status MountFiles::RemoveOldFiles() {
  const absl::StatusOr<std::vector<std::string>> old = ListArenaFiles(dirs_.writable.get());
  if (!old.ok()) {
    return absl::Status(old.status().code(), absl::StrCat("arena ", dirs_.mount_dir, ": ",
                                                          std::string(old.status().message())));
  }
  for (const std::string& name : *old) {
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
  const auto block_bytes = static_cast<uint64_t>(fs.f_bsize);
  const uint64_t free_bytes = static_cast<uint64_t>(fs.f_bavail) * block_bytes;
  const uint64_t all_bytes = static_cast<uint64_t>(fs.f_blocks) * block_bytes;
  const uint64_t marks = marks_file_bytes();
  if (limited && free_bytes < geometry_.capacity_bytes + marks) {
    // Enough but for what no file there takes: clients still map segments that were removed.
    const uint64_t visible_bytes = BytesOfFilesIn(dirs_.writable.get());
    const uint64_t to_come = all_bytes - std::min(all_bytes, visible_bytes);
    const bool may_come = to_come >= geometry_.capacity_bytes + marks;
    return absl::Status(
        may_come ? absl::StatusCode::kUnavailable : absl::StatusCode::kResourceExhausted,
        absl::StrFormat("arena %s: %d MiB wanted, and %d KiB for arena.marks, %d MiB free there%s; "
                        "mount it with a larger size=%s or lower the capacity",
                        dirs_.mount_dir, geometry_.capacity_bytes / kMiB, marks / kKiB,
                        free_bytes / kMiB,
                        may_come ? " (clients still map segments of before)"
                                 : "",
                        dirs_.hugetlbfs ? ", raise vm.nr_hugepages" : ""));
  }
  // Memory behind hugetlbfs is set apart already.
  return dirs_.hugetlbfs ? absl::OkStatus() : CheckMemoryFor(geometry_.capacity_bytes + marks);
}

absl::StatusOr<MountFiles::WholeFile> MountFiles::OpenFile(const std::string& name,
                                                           uint64_t bytes) {
  const int create = reused_ ? 0 : O_CREAT | O_EXCL;
  UniqueFd fd(openat(dirs_.writable.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | create,
                     S_IRUSR | S_IWUSR));
  if (!fd.valid()) return Error(absl::StrCat("cannot open ", name), errno);
  if (!reused_) {
    created_.push_back(name);
    if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
      return Error(absl::StrCat("cannot size ", name), errno);
    }
  }
  KVKEEP_RETURN_IF_ERROR(Allocate(fd.get(), name, bytes));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return Error(absl::StrCat("stat of ", name), errno);
  if (!IsWholeFile(info, bytes)) {  // the name may lead elsewhere by now
    return absl::FailedPreconditionError(
        absl::StrCat("arena ", dirs_.mount_dir, ": ", name,
                     " changed while it was opened; keep others from writing to this directory"));
  }
  return WholeFile{std::move(fd), info.st_ino};
}

// All memory now, so that a shortage is an error here and never a SIGBUS later. Content stays.
absl::Status MountFiles::Allocate(int fd, const std::string& name, uint64_t bytes) const {
  struct stat info {};
  if (fstat(fd, &info) != 0) return Error(absl::StrCat("stat of ", name), errno);
  if (static_cast<uint64_t>(info.st_blocks) * 512 >= bytes) return absl::OkStatus();
  int rc = 0;
  do {
    rc = fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (rc != 0 && errno == EINTR);
  if (rc == 0) return absl::OkStatus();
  return Error(absl::StrFormat("no memory for %s (%d KiB; %d segments in all); mount it with a "
                               "larger size=%s or lower the capacity",
                               name, bytes / kKiB, geometry_.segment_count(),
                               dirs_.hugetlbfs ? ", raise vm.nr_hugepages" : ""),
               errno);
}

absl::StatusOr<Mapping> MountFiles::MapSegment(size_t segment) {
  KVKEEP_CHECK(segment == inodes_.size());
  const uint64_t bytes = geometry_.bytes_of(segment);
  KVKEEP_ASSIGN_OR_RETURN(const WholeFile file, OpenFile(SegmentName(segment), bytes));
  inodes_.push_back(file.inode);
  // The mapping keeps the file; the descriptor is not needed again.
  return Mapping::Map(file.fd.get(), bytes, dirs_.page_bytes);
}

absl::StatusOr<Mapping> MountFiles::MapMarks() {
  KVKEEP_ASSIGN_OR_RETURN(const WholeFile file, OpenFile(kArenaMarksName, marks_file_bytes()));
  return Mapping::Map(file.fd.get(), marks_file_bytes(), dirs_.page_bytes);
}

absl::Status MountFiles::Finish() {
  KVKEEP_CHECK(inodes_.size() == geometry_.segment_count());
  if (!reused_) {
    const std::string id = ArenaId{uuid_, geometry_, reuse_.owners}.ToString();
    if (symlinkat(id.c_str(), dirs_.writable.get(), kArenaIdName) != 0) {
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
                                                               MountDirs dirs, ReuseOptions reuse,
                                                               RandomSource* random) {
  auto files = std::make_unique<MountFiles>(geometry, std::move(dirs), reuse);
  KVKEEP_RETURN_IF_ERROR(files->Open(random));
  return files;
}

}  // namespace kvkeep
