#include "tiers/host/arena_files.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "tiers/base/memory_errors.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

constexpr char kSegmentPrefix[] = "segment.";
constexpr char kArenaPartFormat[] = "v1";

absl::StatusOr<std::vector<std::string>> NamesIn(int directory) {
  UniqueFd copy(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!copy.valid()) return absl::ErrnoToStatus(errno, "cannot list");
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fdopendir(copy.get()), closedir);
  if (listing == nullptr) return absl::ErrnoToStatus(errno, "cannot list");
  copy.Release();
  std::vector<std::string> names;
  while (const dirent* entry = readdir(listing.get())) names.emplace_back(entry->d_name);
  return names;
}

}  // namespace

std::string ArenaId::ToString() const {
  return absl::StrCat(kArenaIdFormat, ":", uuid.ToHex(), ":", geometry.segment_bytes, ":",
                      geometry.capacity_bytes, ":", owners);
}

std::optional<ArenaId> ArenaId::Parse(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, ':');
  if (fields.size() != 5 || fields[0] != kArenaIdFormat || fields[1].size() != 2 * Uuid::kSize) {
    return std::nullopt;
  }
  ArenaId id;
  const absl::StatusOr<Uuid> uuid = Uuid::FromHex(fields[1]);
  if (!uuid.ok() || !absl::SimpleAtoi(fields[2], &id.geometry.segment_bytes) ||
      !absl::SimpleAtoi(fields[3], &id.geometry.capacity_bytes) ||
      !absl::SimpleAtoi(fields[4], &id.owners)) {
    return std::nullopt;
  }
  id.uuid = *uuid;
  return id;
}

std::string ArenaPart::ToString() const {
  return absl::StrCat(kArenaPartFormat, ":", uuid.ToHex(), ":", piece_bytes, ":", pieces);
}

std::optional<ArenaPart> ArenaPart::Parse(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, ':');
  if (fields.size() != 4 || fields[0] != kArenaPartFormat || fields[1].size() != 2 * Uuid::kSize) {
    return std::nullopt;
  }
  ArenaPart part;
  const absl::StatusOr<Uuid> uuid = Uuid::FromHex(fields[1]);
  if (!uuid.ok() || !absl::SimpleAtoi(fields[2], &part.piece_bytes) ||
      !absl::SimpleAtoi(fields[3], &part.pieces)) {
    return std::nullopt;
  }
  part.uuid = *uuid;
  return part;
}

std::string SegmentName(size_t segment) {
  return absl::StrFormat("%s%03d", kSegmentPrefix, segment);
}

bool IsSegmentName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kSegmentPrefix)) return false;
  return name.size() >= 3 && name.find_first_not_of("0123456789") == absl::string_view::npos;
}

bool IsArenaFile(absl::string_view name) {
  return name == kArenaIdName || name == kArenaMarksName || name == kArenaPartName ||
         name == kNewArenaPartName || IsSegmentName(name) ||
         MemoryErrorNote::FromName(std::string(name)).has_value();
}

std::string ReadOwnLink(int directory, const char* name) {
  struct stat info {};
  std::array<char, 256> target{};
  if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISLNK(info.st_mode) ||
      info.st_uid != geteuid()) {
    return "";
  }
  const ssize_t length = readlinkat(directory, name, target.data(), target.size());
  return length <= 0 ? "" : std::string(target.data(), static_cast<size_t>(length));
}

uint64_t BytesOfFilesIn(int directory) {
  uint64_t bytes = 0;
  for (const std::string& name : NamesIn(directory).value_or(std::vector<std::string>())) {
    struct stat info {};
    const bool there = fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && S_ISREG(info.st_mode)) bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}

absl::StatusOr<std::vector<std::string>> ListArenaFiles(int directory) {
  KVKEEP_ASSIGN_OR_RETURN(std::vector<std::string> names, NamesIn(directory));
  std::erase_if(names, [](const std::string& name) { return !IsArenaFile(name); });
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a != kArenaIdName, a) < std::pair(b != kArenaIdName, b);
  });
  return names;
}

}  // namespace kvkeep
