#include "tiers/nvme/removal_log.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tiers/nvme/posix_file.h"

namespace kvkeep {
namespace {

constexpr size_t kNoteBytes = 64, kNoteChecksumAt = 56;
constexpr absl::string_view kRemovalsMagic = "KVKREMOV";
constexpr uint32_t kRemovalsVersion = 1;
constexpr uint32_t kToBeRemoved = 1, kRemoved = 2;
// A file is written anew when it has more notes than this beyond twice the live ones.
constexpr uint64_t kSpareNotes = 4096;
// More bytes than any process leaves: notes of all tenants, and their ends.
constexpr size_t kMostBytes = 1 * kGiB;

using Bytes = std::array<std::byte, kNoteBytes>;

void Seal(Bytes& note) {
  StoreAt<uint64_t>(&note[kNoteChecksumAt], Xxh3(std::span(note).first(kNoteChecksumAt)));
}

bool IsSealed(const std::byte* note) {
  return LoadAt<uint64_t>(note + kNoteChecksumAt) == Xxh3(std::span(note, kNoteChecksumAt));
}

Bytes FirstNote() {
  Bytes note{};
  std::memcpy(note.data(), kRemovalsMagic.data(), kRemovalsMagic.size());
  StoreAt<uint32_t>(&note[kRemovalsMagic.size()], kRemovalsVersion);
  Seal(note);
  return note;
}

void AppendNote(const RemovalLog::Note& note, std::string* to) {
  Bytes bytes{};
  std::memcpy(&bytes[0], note.id.ns.bytes.data(), NamespaceDigest::kSize);
  std::memcpy(&bytes[16], note.id.key.bytes.data(), ChunkKey::kSize);
  StoreAt<uint32_t>(&bytes[48], note.id.part.value());
  StoreAt<uint32_t>(&bytes[52], note.ended ? kRemoved : kToBeRemoved);
  Seal(bytes);
  absl::StrAppend(to, AsText(bytes));
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileRemovalLog>> FileRemovalLog::Open(const std::string& path) {
  std::unique_ptr<FileRemovalLog> log(new FileRemovalLog(path));
  KVKEEP_RETURN_IF_ERROR(log->Read());
  KVKEEP_RETURN_IF_ERROR(log->WriteAnew());
  log->left_.assign(log->live_.begin(), log->live_.end());
  log->thread_ = std::make_unique<ThreadPool>("kvkeep-removed", 1);
  return log;
}

absl::Status FileRemovalLog::Read() {
  const absl::StatusOr<UniqueFd> fd = OpenAt(AT_FDCWD, path_, O_RDONLY | O_NONBLOCK, 0, path_);
  if (absl::IsNotFound(fd.status())) return absl::OkStatus();
  KVKEEP_RETURN_IF_ERROR(fd.status());
  struct stat st;
  if (fstat(fd->get(), &st) != 0) return ErrnoStatus(errno, path_, "stat");
  // ReadWhole takes memory for all that it may read.
  const size_t most = std::min(static_cast<size_t>(st.st_size), kMostBytes);
  KVKEEP_ASSIGN_OR_RETURN(const std::string all, ReadWhole(fd->get(), most, path_));
  if (all.size() < kNoteBytes) return absl::OkStatus();  // a start that was cut short made it
  const std::byte* const bytes = AsBytes(all).data();
  if (std::memcmp(bytes, FirstNote().data(), kNoteBytes) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, ": is no log of removals that this build reads; start the kvkeep that wrote it, or"
               " remove the file: then chunks of G4 that were deleted may be found again"));
  }
  for (size_t at = kNoteBytes; at + kNoteBytes <= all.size(); at += kNoteBytes) {
    const std::byte* const note = bytes + at;
    if (!IsSealed(note)) continue;
    ChunkId id;
    std::memcpy(id.ns.bytes.data(), note, NamespaceDigest::kSize);
    std::memcpy(id.key.bytes.data(), note + 16, ChunkKey::kSize);
    id.part = PartId(LoadAt<uint32_t>(note + 48));
    if (LoadAt<uint32_t>(note + 52) == kToBeRemoved) {
      live_.insert(id);
    } else {
      live_.erase(id);
    }
  }
  return absl::OkStatus();
}

// The old file stays until the new one is whole.
absl::Status FileRemovalLog::WriteAnew() {
  const std::string temporary = path_ + ".new";
  unlink(temporary.c_str());  // of a process that was cut short
  std::string notes(AsText(FirstNote()));
  for (const ChunkId& id : live_) AppendNote({.id = id}, &notes);
  KVKEEP_ASSIGN_OR_RETURN(
      UniqueFd fd, OpenAt(AT_FDCWD, temporary, O_WRONLY | O_CREAT | O_EXCL, 0600, temporary));
  KVKEEP_RETURN_IF_ERROR(WriteAt(fd.get(), 0, AsBytes(notes), temporary));
  KVKEEP_RETURN_IF_ERROR(FlushFile(fd.get(), temporary));
  if (rename(temporary.c_str(), path_.c_str()) != 0) return ErrnoStatus(errno, path_, "rename");
  fd_ = std::move(fd);
  bytes_ = notes.size();
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  const UniqueFd dir(open(parent.empty() ? "." : parent.c_str(),
                          O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir.valid()) return ErrnoStatus(errno, parent, "open");
  return FlushFile(dir.get(), parent);
}

absl::Status FileRemovalLog::Append(const std::deque<Note>& notes, bool sync) {
  std::string bytes;
  for (const Note& note : notes) {
    AppendNote(note, &bytes);
    note.ended ? static_cast<void>(live_.erase(note.id))
               : static_cast<void>(live_.insert(note.id));
  }
  if (bytes_ + bytes.size() > (2 * live_.size() + kSpareNotes) * kNoteBytes) return WriteAnew();
  // Overwrites bytes that a failed write has left behind the good end.
  KVKEEP_RETURN_IF_ERROR(WriteAt(fd_.get(), bytes_, AsBytes(bytes), path_));
  bytes_ += bytes.size();
  return sync ? FlushFile(fd_.get(), path_) : absl::OkStatus();
}

void FileRemovalLog::Write(Notes notes, bool sync,
                           std::function<void(absl::Status)> done) {
  thread_->Post([this, notes = std::move(notes), sync, done = std::move(done)] {
    done(Append(*notes, sync));
  });
}

}  // namespace kvkeep
