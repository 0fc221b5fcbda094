#include "tiers/base/private_file.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

absl::Status Wrong(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::Status CheckAccess(const std::string& path, const struct stat& info, Secrecy secrecy) {
  if (!S_ISREG(info.st_mode)) return Wrong(path, "is no regular file");
  if (info.st_uid != 0 && info.st_uid != geteuid()) {
    return Wrong(path, absl::StrCat("belongs to uid ", info.st_uid, "; it must be the daemon's, ",
                                    geteuid(), ", or root's"));
  }
  const mode_t forbidden = secrecy == Secrecy::kSecret ? 0027 : 0022;
  if ((info.st_mode & forbidden) == 0) return absl::OkStatus();
  return Wrong(path, absl::StrFormat("has mode %04o: %s; chmod it to %s", info.st_mode & 07777,
                                     secrecy == Secrecy::kSecret
                                         ? "others may have no access, and its group may not write"
                                         : "its group and others may not write it",
                                     secrecy == Secrecy::kSecret ? "0600" : "0644"));
}

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, size_t max_bytes,
                                            Secrecy secrecy) {
  // Opens without blocking: it may be a pipe, which is refused below.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    return Wrong(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
  }
  const absl::Status allowed = CheckAccess(path, info, secrecy);
  if (!allowed.ok()) return allowed;
  std::string text(max_bytes + 1, '\0');  // one more, so that a longer file is seen to be one
  size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + bytes, text.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Wrong(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
  }
  if (bytes > max_bytes) {
    return Wrong(path, absl::StrCat("has more than ", max_bytes, " bytes, the most allowed"));
  }
  text.resize(bytes);
  return text;
}

FileChanges::FileChanges(std::vector<std::string> paths)
    : paths_(std::move(paths)), read_(Look()), seen_(read_) {}

bool FileChanges::Due() {
  std::vector<Stamp> now = Look();
  const bool stood_still = now == seen_;
  seen_ = std::move(now);
  if (!stood_still || seen_ == read_) return false;
  read_ = seen_;
  return true;
}

std::vector<FileChanges::Stamp> FileChanges::Look() const {
  std::vector<Stamp> stamps;
  for (const std::string& path : paths_) {
    Stamp& stamp = stamps.emplace_back();
    struct stat info {};
    if (path.empty() || stat(path.c_str(), &info) != 0) continue;
    stamp = {info.st_dev, info.st_ino, info.st_size, Nanoseconds(info.st_mtim),
             Nanoseconds(info.st_ctim)};
  }
  return stamps;
}

}  // namespace kvkeep
