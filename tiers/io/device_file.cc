#include "tiers/io/device_file.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tiers/io/errno_status.h"

namespace kvkeep {
namespace {

absl::Status OpenError(int error, const std::string& path) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat(path, ": no such file; create and size it first"));
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": out of file descriptors; raise LimitNOFILE"));
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": not a file or block device (errno ", error, ")"));
    default:
      return ErrnoStatus(error, absl::StrCat(path, ": open"));
  }
}

int OpenRetrying(const std::string& path, int flags) {
  int fd;
  do {
    fd = open(path.c_str(), flags);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

absl::StatusOr<DeviceFile> DeviceFile::Open(const DeviceOptions& options) {
  const std::string& path = options.path;
  const int flags = (options.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC;
  std::string why_buffered;
  int fd = OpenRetrying(path, flags | O_DIRECT);
  if (fd < 0 && errno == EINVAL) {  // what file systems without O_DIRECT answer
    why_buffered = "the file system refuses O_DIRECT";
    fd = OpenRetrying(path, flags);
  }
  if (fd < 0) return OpenError(errno, path);

  DeviceFile file(fd, path, options.read_only);
  if (options.lock) KVKEEP_RETURN_IF_ERROR(file.Lock());
  KVKEEP_RETURN_IF_ERROR(file.ReadSize());
  file.why_buffered_ = std::move(why_buffered);
  if (file.direct()) {
    file.why_buffered_ = file.WhyNotDirect();
    // O_DIRECT is a status flag of the open file: F_SETFL takes it off without a second open.
    if (!file.direct() && fcntl(fd, F_SETFL, 0) != 0) {
      return ErrnoStatus(errno, absl::StrCat(path, ": turn O_DIRECT off"));
    }
  }
  return file;
}

DeviceFile::DeviceFile(DeviceFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      read_only_(other.read_only_),
      locked_(other.locked_),
      size_bytes_(other.size_bytes_),
      why_buffered_(std::move(other.why_buffered_)) {}

DeviceFile::~DeviceFile() {
  if (fd_ < 0) return;
  // No I/O of ours is left. Said aloud, since a child that was just forked may hold the descriptor
  // until it execs, and the lock with it.
  if (locked_) flock(fd_, LOCK_UN);
  close(fd_);
}

absl::Status DeviceFile::Lock() {
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    switch (errno) {
      case EINTR:
        continue;
      case EWOULDBLOCK:
        return absl::UnavailableError(
            absl::StrCat(path_,
                         ": locked by another process, or by I/O that one left behind; stop "
                         "it or wait for its end"));
      case ENOLCK:
        return absl::ResourceExhaustedError(absl::StrCat(path_, ": the kernel is out of locks"));
      default:
        return ErrnoStatus(errno, absl::StrCat(path_, ": flock"));
    }
  }
  locked_ = true;
  return absl::OkStatus();
}

absl::Status DeviceFile::ReadSize() {
  struct stat info;
  if (fstat(fd_, &info) != 0) return ErrnoStatus(errno, absl::StrCat(path_, ": fstat"));
  uint64_t bytes = 0;
  if (S_ISREG(info.st_mode)) {
    bytes = static_cast<uint64_t>(info.st_size);
  } else if (S_ISBLK(info.st_mode)) {
    if (ioctl(fd_, BLKGETSIZE64, &bytes) != 0) {
      return ErrnoStatus(errno, absl::StrCat(path_, ": size of the block device"));
    }
  } else {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": neither a regular file nor a block device"));
  }
  size_bytes_ = bytes / kBlockBytes * kBlockBytes;
  if (size_bytes_ == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, ": ", bytes, " bytes, less than a block of ", kBlockBytes, "; size it first"));
  }
  return absl::OkStatus();
}

std::string DeviceFile::WhyNotDirect() const {
  struct statfs fs;
  if (fstatfs(fd_, &fs) == 0 && fs.f_type == TMPFS_MAGIC) return "on tmpfs, which is memory";

  struct statx info = {};
  if (statx(fd_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    const uint64_t memory = info.stx_dio_mem_align;
    const uint64_t offset = info.stx_dio_offset_align;
    if (memory == 0 || offset == 0) return "O_DIRECT is not supported on this file";
    if (kBlockBytes % memory != 0 || kBlockBytes % offset != 0) {
      return absl::StrCat("O_DIRECT wants memory aligned to ", memory, " and offsets to ", offset,
                          ", more than a block of ", kBlockBytes);
    }
    return "";
  }
  // A kernel before 6.1, or a file system that does not tell: try. Only a refusal counts; a medium
  // error is for the operation that meets it.
  std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(kBlockBytes, kBlockBytes),
                                                    &std::free);
  if (block == nullptr) return "there is no memory to try O_DIRECT with";
  if (pread(fd_, block.get(), kBlockBytes, 0) < 0 && errno == EINVAL) {
    return absl::StrCat("O_DIRECT refuses blocks of ", kBlockBytes);
  }
  return "";
}

absl::Status DeviceFile::Sync() const {
  while (fdatasync(fd_) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, absl::StrCat(path_, ": fdatasync"));
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
