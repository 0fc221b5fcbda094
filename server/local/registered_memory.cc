// RegisteredMemory: a client's own memory, read with pread.
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "server/local/client_memory.h"
#include "tiers/base/check.h"
#include "tiers/base/undumped_buffer.h"

namespace kvkeep {
namespace {

constexpr uint64_t kReadBytes = 64 * kKiB;  // at a time, so that they are copied from a cache

// The files that have seals are those of memory: memfds, tmpfs, hugetlbfs. Reading one of a disk, a
// network or a FUSE daemon could take for ever.
absl::Status CheckIsMemory(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || fcntl(fd, F_GET_SEALS) < 0) {
    return absl::InvalidArgumentError("the descriptor is not of a memfd or a shm file");
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_WRONLY) {
    return absl::InvalidArgumentError("the descriptor is not open for reading");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<RegisteredMemory>> RegisteredMemory::Open(
    std::shared_ptr<const LocalContext> context, UniqueFd fd, uint64_t bytes) {
  if (absl::Status memory = CheckIsMemory(fd.get()); !memory.ok()) return memory;
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || bytes == 0 || bytes > static_cast<uint64_t>(info.st_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes is ", bytes, ", the file has ", info.st_size));
  }
  return std::shared_ptr<RegisteredMemory>(
      new RegisteredMemory(std::move(context), std::move(fd), bytes));
}

RegisteredMemory::RegisteredMemory(std::shared_ptr<const LocalContext> context, UniqueFd fd,
                                   uint64_t bytes)
    : context_(std::move(context)), fd_(std::move(fd)), bytes_(bytes) {
  context_->counters->registered_bytes.fetch_add(bytes_, std::memory_order_relaxed);
}

RegisteredMemory::~RegisteredMemory() {
  context_->counters->registered_bytes.fetch_sub(bytes_, std::memory_order_relaxed);
}

absl::Status RegisteredMemory::Read(uint64_t offset, uint64_t bytes, Give give) const {
  KVKEEP_CHECK(offset <= bytes_ && bytes <= bytes_ - offset);
  thread_local const UndumpedBuffer own(kReadBytes);
  const std::span<std::byte> buffer = own.memory();
  if (buffer.empty()) return absl::OutOfRangeError("registered memory: no buffer to read it with");
  while (bytes > 0) {
    const ssize_t got = pread(fd_.get(), buffer.data(), std::min<uint64_t>(bytes, buffer.size()),
                              static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::OutOfRangeError(absl::StrCat("registered memory: ", std::strerror(errno)));
    }
    if (got == 0) {
      return absl::OutOfRangeError(
          absl::StrCat("registered memory ends at ", offset, ", it had ", bytes_, " bytes"));
    }
    give(buffer.first(static_cast<size_t>(got)));
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
