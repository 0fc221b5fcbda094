#include "tiers/nvme/posix_file.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kvkeep {

absl::Status ErrnoStatus(int error, absl::string_view path, absl::string_view what) {
  const std::string text = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(text);
    case ELOOP:
    case ENOTDIR:
    case EISDIR:
      return absl::FailedPreconditionError(text);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::DataLossError(text);
  }
}

absl::StatusOr<UniqueFd> OpenAt(int dir, const std::string& name, int flags, mode_t mode,
                                const std::string& path) {
  const int fd = openat(dir, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode);
  if (fd < 0) return ErrnoStatus(errno, path, "open");
  return UniqueFd(fd);
}

absl::StatusOr<std::string> ReadWhole(int fd, size_t limit, const std::string& path) {
  std::string bytes(limit + 1, '\0');
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = pread(fd, bytes.data() + got, bytes.size() - got, static_cast<off_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path, "read");
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  if (got > limit) {
    return absl::DataLossError(absl::StrCat(path, ": longer than the expected ", limit, " bytes"));
  }
  bytes.resize(got);
  return bytes;
}

absl::Status ReadAt(int fd, uint64_t offset, std::span<std::byte> out, const std::string& path) {
  while (!out.empty()) {
    const ssize_t n = pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path, "read");
    if (n == 0) return absl::DataLossError(absl::StrCat(path, ": ends at byte ", offset));
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status WriteAt(int fd, uint64_t offset, std::span<const std::byte> bytes,
                     const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path, "write");
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status FlushFile(int fd, const std::string& path) {
  if (fsync(fd) != 0) return ErrnoStatus(errno, path, "fsync");
  return absl::OkStatus();
}

absl::Status Preallocate(int fd, uint64_t from, uint64_t to, const std::string& path) {
  if (from >= to) return absl::OkStatus();
  const auto offset = static_cast<off_t>(from), length = static_cast<off_t>(to - from);
  int error = 0;
  do {
    error = fallocate(fd, 0, offset, length) == 0 ? 0 : errno;
  } while (error == EINTR);
  // Not every file system has it; the C library's emulation writes a byte into every block.
  if (error == EOPNOTSUPP) error = posix_fallocate(fd, offset, length);
  if (error == 0) return absl::OkStatus();
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": cannot reserve ", to - from,
                                                      " bytes: ", std::strerror(error),
                                                      "; lower capacity_bytes or free space"));
  }
  return ErrnoStatus(error, path, "fallocate");
}

absl::Status TryLock(int fd, const std::string& path) {
  int result = 0;
  do {
    result = flock(fd, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return absl::OkStatus();
  if (errno != EWOULDBLOCK) return ErrnoStatus(errno, path, "flock");
  return absl::UnavailableError(
      absl::StrCat(path, ": locked by another process; stop the other kvkeepd, or wait for it"));
}

}  // namespace kvkeep
