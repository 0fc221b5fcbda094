#include "tiers/host/mount_files.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/memory_errors.h"
#include "tiers/base/memory_toucher.h"
#include "tiers/base/mutex.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tiers/host/arena_files.h"
#include "tiers/host/kernel_facts.h"
#include "tiers/host/piece_order.h"

namespace kvkeep {
namespace {

// Limit of one call of TakeMore: a tenth of a second's work.
constexpr uint64_t kMostAtOnce = 256 * kMiB;

// Memory of the machine left free while others hold the memory we wait for. If we took all of it,
// the kernel would kill some process.
constexpr uint64_t kStaysFreeBytes = 256 * kMiB;

// Returns whether the file is ours, for us alone and of the right length: not planted by another
// user.
bool IsWholeFile(const struct stat& info, uint64_t bytes) {
  return S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1 &&
         (info.st_mode & 0077) == 0 && static_cast<uint64_t>(info.st_size) == bytes;
}

class MountFiles final : public SegmentFiles {
 public:
  MountFiles(const ArenaGeometry& geometry, MountDirs dirs, ReuseOptions reuse)
      : geometry_(geometry),
        dirs_(std::move(dirs)),
        reuse_(reuse),
        order_(geometry, dirs_.page_bytes),
        inodes_(geometry.segment_count()) {}
  ~MountFiles() override;

  absl::Status Open(RandomSource* random);

  const ArenaGeometry& geometry() const override { return geometry_; }
  const Uuid& uuid() const override { return uuid_; }
  absl::StatusOr<Mapping> MapSegment(size_t segment, NumaPlacement& placement) override;
  absl::StatusOr<Mapping> MapMarks() override;
  absl::Status Finish() override;
  uint64_t bytes_there(size_t segment) const override {
    const uint64_t pieces = pieces_.load(std::memory_order_acquire);
    return pieces == order_.pieces() ? geometry_.bytes_of(segment)
                                     : order_.BytesThere(segment, pieces);
  }
  void TakeMore() override;
  absl::StatusOr<int> OpenForClient(size_t segment) override;
  bool survives_restart() const override { return true; }
  size_t reused_segments() const override { return reused_ ? geometry_.segment_count() : 0; }
  UniqueFd OpenNotesDirectory() const override {
    return UniqueFd(openat(dirs_.writable.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  uint64_t page_bytes() const override { return dirs_.page_bytes; }
  uint64_t replaced_pages() const override { return replaced_pages_; }
  std::string replaced_because() const override { return replaced_because_; }
  std::string describe() const override;

 private:
  absl::Status Error(absl::string_view what, int error) const {
    return absl::ErrnoToStatus(error, absl::StrCat("arena ", dirs_.mount_dir, ": ", what));
  }
  absl::Status Lock();
  // Returns why the files there cannot be used again; empty: they can.
  std::string WhyNotReusable(const std::string& id) const;
  bool IsWhole(const std::string& name, uint64_t bytes) const;
  // Has the files drop each page that a note names, and the note. Not OK: they cannot be used.
  absl::Status ReplaceBrokenPages();
  absl::Status ReplaceBrokenPage(const MemoryErrorNote& note);
  absl::Status RemoveOldFiles();
  // Unavailable: the space may come.
  absl::Status CheckSpace() const;
  bool HasRoomFor(uint64_t bytes) const;
  // Reads how much memory arena.part gives the arena that is to be used again. Not OK: the arena
  // cannot be trusted.
  absl::Status ReadPart();
  void SavePart() const;
  // Takes at most `most` pieces, as far as there is memory. Returns how many it took.
  uint64_t TakePieces(uint64_t most);
  bool TakePiece(const PieceOrder::Piece& piece) const;
  bool whole() const { return pieces_ == order_.pieces(); }
  uint64_t marks_file_bytes() const { return RoundUp(geometry_.marks_bytes(), dirs_.page_bytes); }
  // A file of full length: opened, or made.
  struct WholeFile {
    UniqueFd fd;
    ino_t inode = 0;
  };
  absl::StatusOr<WholeFile> OpenFile(const std::string& name, uint64_t bytes);
  absl::Status Allocate(int fd, const std::string& name, uint64_t bytes) const;
  absl::Status NoMemoryFor(const std::string& name, uint64_t bytes, int error) const;

  const ArenaGeometry geometry_;
  const MountDirs dirs_;
  const ReuseOptions reuse_;
  const PieceOrder order_;
  UniqueFd lock_;
  Uuid uuid_;
  bool reused_ = false;
  uint64_t replaced_pages_ = 0;
  std::string replaced_because_;
  absl::Status shortage_;            // of memory; OK: all of it is there from the start
  std::atomic<uint64_t> pieces_{0};  // that have memory
  bool finished_ = false;
  std::vector<ino_t> inodes_;      // of the segments, to know them again through readonly_dir
  std::atomic<size_t> mapped_{0};  // segments
  Mutex created_mu_;
  std::vector<std::string> created_ ABSL_GUARDED_BY(created_mu_);  // files made by this start
};

MountFiles::~MountFiles() {
  // A start that failed halfway gives its memory back; whole arenas stay for the next one.
  if (finished_ || reused_) return;
  MutexLock lock(&created_mu_);
  for (const std::string& name : created_) unlinkat(dirs_.writable.get(), name.c_str(), 0);
}

absl::Status MountFiles::Open(RandomSource* random) {
  KVKEEP_RETURN_IF_ERROR(Lock());
  const std::string id = ReadOwnLink(dirs_.writable.get(), kArenaIdName);
  pieces_ = order_.pieces();
  if (!id.empty()) {
    replaced_because_ = WhyNotReusable(id);
    if (replaced_because_.empty()) {
      uuid_ = ArenaId::Parse(id)->uuid;
      absl::Status status = ReadPart();
      if (status.ok()) status = ReplaceBrokenPages();
      replaced_because_ = std::string(status.message());
    }
    if (replaced_because_.empty()) {
      reused_ = true;
      return absl::OkStatus();
    }
  }
  if (reuse_.replaced_because != nullptr) {
    std::string& before = *reuse_.replaced_because;
    if (replaced_because_.empty()) replaced_because_ = before;
    before = replaced_because_;
  }
  KVKEEP_RETURN_IF_ERROR(RemoveOldFiles());
  uuid_ = random->Next<Uuid>();
  const absl::Status space = CheckSpace();
  const bool in_parts = absl::IsUnavailable(space) && !dirs_.hugetlbfs &&
                        HasRoomFor(marks_file_bytes() + order_.round_bytes());
  pieces_ = in_parts ? 0 : order_.pieces();
  shortage_ = in_parts ? space : absl::OkStatus();
  return in_parts ? absl::OkStatus() : space;
}

absl::Status MountFiles::ReadPart() {
  const std::string text = ReadOwnLink(dirs_.writable.get(), kArenaPartName);
  if (text.empty()) return absl::OkStatus();
  const std::optional<ArenaPart> part = ArenaPart::Parse(text);
  if (!part.has_value()) return absl::DataLossError("how much of them has memory is not known");
  if (part->uuid != uuid_) return absl::OkStatus();
  if (part->piece_bytes != order_.piece_bytes() || part->pieces > order_.pieces()) {
    return absl::DataLossError("their memory was taken in other pieces");
  }
  pieces_ = part->pieces;
  if (!whole()) shortage_ = absl::UnavailableError("the start before found no more");
  return absl::OkStatus();
}

// If arena.part cannot be written, the old one stays: the next start then takes for lost what lies
// in memory that has come since.
void MountFiles::SavePart() const {
  if (whole()) {
    unlinkat(dirs_.writable.get(), kArenaPartName, 0);
    return;
  }
  const int directory = dirs_.writable.get();
  const std::string text = ArenaPart{uuid_, order_.piece_bytes(), pieces_}.ToString();
  unlinkat(directory, kNewArenaPartName, 0);
  if (symlinkat(text.c_str(), directory, kNewArenaPartName) != 0) return;
  renameat(directory, kNewArenaPartName, directory, kArenaPartName);
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

std::string MountFiles::WhyNotReusable(const std::string& id) const {
  if (reuse_.fresh) return "a fresh arena was asked for";
  const std::optional<ArenaId> parsed = ArenaId::Parse(id);
  if (!parsed.has_value()) {
    return absl::StrCat("their format is ", id.substr(0, id.find(':')), ", this daemon's is ",
                        kArenaIdFormat);
  }
  if (parsed->geometry != geometry_) return "capacity or segment size changed";
  if (parsed->owners != reuse_.owners) {
    return "the store's identity, the tenants' shares, or who may map them, changed";
  }
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
    // Removes the note last, so that a start killed before does it again.
    if (unlinkat(dirs_.writable.get(), name.c_str(), 0) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", name));
    }
    ++replaced_pages_;
  }
  return absl::OkStatus();
}

// Punches a hole where the page was: its bytes are zeros then, which no image's header and no
// piece's checksum takes for the original. MapSegment gives the file its memory again.
absl::Status MountFiles::ReplaceBrokenPage(const MemoryErrorNote& note) {
  const bool marks = note.file == kMarksFileNumber;
  if (!marks && note.file >= geometry_.segment_count()) return absl::OkStatus();
  const std::string name = marks ? kArenaMarksName : SegmentName(note.file);
  const uint64_t bytes = marks ? marks_file_bytes() : geometry_.bytes_of(note.file);
  if (note.offset >= bytes) return absl::OkStatus();
  const UniqueFd fd(openat(dirs_.writable.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", name));
  const uint64_t page = note.offset / dirs_.page_bytes * dirs_.page_bytes;
  KVKEEP_CHECK(page + dirs_.page_bytes <= bytes);
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
  const uint64_t wanted = geometry_.capacity_bytes + marks;
  // Space that no visible file takes may come: clients still map segments that were removed.
  const uint64_t visible_bytes = BytesOfFilesIn(dirs_.writable.get());
  const uint64_t to_come = all_bytes - std::min(all_bytes, visible_bytes);
  if (limited && free_bytes < wanted) {
    const bool may_come = to_come >= wanted;
    return absl::Status(
        may_come ? absl::StatusCode::kUnavailable : absl::StatusCode::kResourceExhausted,
        absl::StrFormat("arena %s: %d MiB wanted, and %d KiB for arena.marks, %d MiB free there%s; "
                        "mount it with a larger size=%s or lower the capacity",
                        dirs_.mount_dir, geometry_.capacity_bytes / kMiB, marks / kKiB,
                        free_bytes / kMiB,
                        may_come ? " (clients still map segments of before)" : "",
                        dirs_.hugetlbfs ? ", raise vm.nr_hugepages" : ""));
  }
  if (dirs_.hugetlbfs) return absl::OkStatus();  // the memory behind it is set apart already
  const absl::Status memory = CheckMemoryFor(wanted);
  const uint64_t held = to_come - std::min(to_come, free_bytes);
  const bool may_come = limited && CheckMemoryFor(wanted - std::min(wanted, held)).ok();
  return memory.ok() || !may_come ? memory : absl::UnavailableError(memory.message());
}

bool MountFiles::HasRoomFor(uint64_t bytes) const {
  struct statfs fs {};
  if (fstatfs(dirs_.writable.get(), &fs) != 0) return false;
  const bool limited = fs.f_blocks != 0;
  return (!limited ||
          static_cast<uint64_t>(fs.f_bavail) * static_cast<uint64_t>(fs.f_bsize) >= bytes) &&
         CheckMemoryFor(bytes + kStaysFreeBytes).ok();
}

uint64_t MountFiles::TakePieces(uint64_t most) {
  uint64_t came = 0;
  while (came < most && !whole() && TakePiece(order_.at(pieces_))) {
    pieces_.fetch_add(1, std::memory_order_release);
    ++came;
  }
  return came;
}

// Opens the segment by name, as a process may not have enough descriptors for all segments.
bool MountFiles::TakePiece(const PieceOrder::Piece& piece) const {
  KVKEEP_CHECK(piece.segment < inodes_.size());
  if (!CheckMemoryFor(piece.bytes + kStaysFreeBytes).ok()) return false;
  const UniqueFd fd(openat(dirs_.writable.get(), SegmentName(piece.segment).c_str(),
                           O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0 || info.st_ino != inodes_[piece.segment]) {
    return false;
  }
  int rc = 0;
  do {
    rc = fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(piece.offset),
                   static_cast<off_t>(piece.bytes));
  } while (rc != 0 && errno == EINTR);
  return rc == 0;
}

void MountFiles::TakeMore() {
  KVKEEP_CHECK(finished_);
  if (TakePieces(std::max<uint64_t>(kMostAtOnce / order_.piece_bytes(), 1)) > 0) SavePart();
}

absl::StatusOr<MountFiles::WholeFile> MountFiles::OpenFile(const std::string& name,
                                                           uint64_t bytes) {
  KVKEEP_CHECK(bytes % dirs_.page_bytes == 0);
  const int create = reused_ ? 0 : O_CREAT | O_EXCL;
  UniqueFd fd(openat(dirs_.writable.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | create,
                     S_IRUSR | S_IWUSR));
  if (!fd.valid()) return Error(absl::StrCat("cannot open ", name), errno);
  if (!reused_) {
    {
      MutexLock lock(&created_mu_);
      created_.push_back(name);
    }
    if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
      return Error(absl::StrCat("cannot size ", name), errno);
    }
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return Error(absl::StrCat("stat of ", name), errno);
  if (!IsWholeFile(info, bytes)) {  // the name may lead elsewhere by now
    return absl::FailedPreconditionError(
        absl::StrCat("arena ", dirs_.mount_dir, ": ", name,
                     " changed while it was opened; keep others from writing to this directory"));
  }
  return WholeFile{std::move(fd), info.st_ino};
}

// Allocates memory now, so that a shortage is an error here and never a SIGBUS later. Content
// stays.
absl::Status MountFiles::Allocate(int fd, const std::string& name, uint64_t bytes) const {
  struct stat info {};
  if (fstat(fd, &info) != 0) return Error(absl::StrCat("stat of ", name), errno);
  // The number of a file's blocks does not say where its holes are.
  const bool all_there = static_cast<uint64_t>(info.st_blocks) * 512 >= bytes;
  if (all_there && static_cast<uint64_t>(info.st_size) == bytes) return absl::OkStatus();
  int rc = 0;
  do {
    rc = fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (rc != 0 && errno == EINTR);
  return rc == 0 ? absl::OkStatus() : NoMemoryFor(name, bytes, errno);
}

absl::Status MountFiles::NoMemoryFor(const std::string& name, uint64_t bytes, int error) const {
  return Error(absl::StrFormat("no memory for %s (%d KiB; %d segments in all); mount it with a "
                               "larger size=%s or lower the capacity",
                               name, bytes / kKiB, geometry_.segment_count(),
                               dirs_.hugetlbfs ? ", raise vm.nr_hugepages" : ""),
               error);
}

absl::StatusOr<Mapping> MountFiles::MapSegment(size_t segment, NumaPlacement& placement) {
  KVKEEP_CHECK(segment < inodes_.size());
  const uint64_t bytes = geometry_.bytes_of(segment);
  const std::string name = SegmentName(segment);
  KVKEEP_ASSIGN_OR_RETURN(const WholeFile file, OpenFile(name, bytes));
  inodes_[segment] = file.inode;
  ++mapped_;
  // The mapping keeps the file; the descriptor is not needed again.
  absl::StatusOr<Mapping> mapped = Mapping::Map(file.fd.get(), bytes, dirs_.page_bytes);
  // A mapping of hugetlbfs takes its pages, but for where they lie.
  if (!mapped.ok() && dirs_.hugetlbfs) return NoMemoryFor(name, bytes, ENOMEM);
  KVKEEP_ASSIGN_OR_RETURN(Mapping mapping, std::move(mapped));
  // tmpfs keeps the policy with the file. hugetlbfs keeps it with the mapping alone, so pages have
  // to be taken through that; what does not come this way is taken below.
  placement.Place(segment, mapping.memory(), reused_);
  const uint64_t there = bytes_there(segment);
  if (dirs_.hugetlbfs) MemoryToucher::TouchNow(mapping.memory().first(there));
  if (there > 0) KVKEEP_RETURN_IF_ERROR(Allocate(file.fd.get(), name, there));
  return mapping;
}

absl::StatusOr<Mapping> MountFiles::MapMarks() {
  KVKEEP_CHECK(mapped_ == geometry_.segment_count() && !finished_);
  KVKEEP_ASSIGN_OR_RETURN(const WholeFile file, OpenFile(kArenaMarksName, marks_file_bytes()));
  KVKEEP_RETURN_IF_ERROR(Allocate(file.fd.get(), kArenaMarksName, marks_file_bytes()));
  return Mapping::Map(file.fd.get(), marks_file_bytes(), dirs_.page_bytes);
}

absl::Status MountFiles::Finish() {
  KVKEEP_CHECK(mapped_ == geometry_.segment_count() && !finished_);
  if (!shortage_.ok()) {
    TakePieces(order_.pieces());
    // Somebody else took memory after HasRoomFor had seen it.
    if (!reused_ && pieces_ < order_.round_pieces()) return shortage_;
    SavePart();
  }
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
  // Checked every time: only the right file leaves the daemon, and nobody can write it.
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
