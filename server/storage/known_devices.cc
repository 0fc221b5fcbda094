#include "server/storage/known_devices.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

absl::Status Failed(const std::string& path, const char* what, int error) {
  return absl::UnavailableError(absl::StrCat(path, ": cannot ", what, ": ", std::strerror(error),
                                             "; make the state directory writable"));
}

absl::Status Write(const std::string& path, const std::string& text) {
  unlink(path.c_str());  // a leftover of an interrupted Add
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return Failed(path, "make", errno);
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd.get(), text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(path, "write", errno);
    at += static_cast<size_t>(n);
  }
  return fsync(fd.get()) == 0 ? absl::OkStatus() : Failed(path, "flush", errno);
}

absl::Status FlushDirectory(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd.valid() && fsync(fd.get()) == 0 ? absl::OkStatus() : Failed(path, "flush", errno);
}

}  // namespace

std::set<std::string> ParseKnownDevices(absl::string_view text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

std::string PrintKnownDevices(const std::set<std::string>& dirs) {
  std::string text;
  for (const std::string& dir : dirs) absl::StrAppend(&text, dir, "\n");
  return text;
}

absl::StatusOr<KnownDevices> KnownDevices::Load(const std::string& path) {
  KnownDevices known(path);
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) return known;
    return Failed(path, "open", errno);
  }
  std::string text(kMaxKnownDevicesBytes + 1, '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t n = read(fd.get(), text.data() + got, text.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(path, "read", errno);
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  if (got > kMaxKnownDevicesBytes) return Failed(path, "read", EFBIG);
  known.dirs_ = ParseKnownDevices(absl::string_view(text.data(), got));
  return known;
}

absl::Status KnownDevices::Add(const std::string& dir) {
  if (!dirs_.insert(dir).second) return absl::OkStatus();
  const std::string next = path_ + ".new";
  if (absl::Status status = Write(next, PrintKnownDevices(dirs_)); !status.ok()) return status;
  if (rename(next.c_str(), path_.c_str()) != 0) return Failed(path_, "replace", errno);
  return FlushDirectory(std::filesystem::path(path_).parent_path());
}

}  // namespace kvkeep
