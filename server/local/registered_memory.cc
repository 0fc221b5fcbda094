// RegisteredMemory: a client's own memory.
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "server/local/client_memory.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// Only files in memory have seals: memfds, tmpfs, hugetlbfs. Reading a file of a disk, a network or
// a FUSE daemon could take for ever; so could fstat, which comes after this check.
absl::Status CheckIsMemory(int fd) {
  struct stat info {};
  if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
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
    std::shared_ptr<const LocalContext> context, ExpendableFd fd, uint64_t bytes) {
  if (absl::Status memory = CheckIsMemory(fd.get()); !memory.ok()) return memory;
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || bytes == 0 || bytes > static_cast<uint64_t>(info.st_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes is ", bytes, ", the file has ", info.st_size));
  }
  return std::shared_ptr<RegisteredMemory>(
      new RegisteredMemory(std::move(context), std::move(fd), bytes));
}

RegisteredMemory::RegisteredMemory(std::shared_ptr<const LocalContext> context, ExpendableFd fd,
                                   uint64_t bytes)
    : context_(std::move(context)), fd_(std::move(fd)), bytes_(bytes) {
  context_->counters->registered_bytes.fetch_add(bytes_, std::memory_order_relaxed);
}

RegisteredMemory::~RegisteredMemory() {
  context_->counters->registered_bytes.fetch_sub(bytes_, std::memory_order_relaxed);
}

absl::Status RegisteredMemory::ReadByCall(uint64_t offset, uint64_t bytes, Give give) const {
  KVKEEP_CHECK(offset <= bytes_ && bytes <= bytes_ - offset);
  return ReadFile("registered memory", fd_.fd(), offset, bytes, give);
}

}  // namespace kvkeep
