#include "client/internal/mappings.h"

#include <absl/strings/str_cat.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "tiers/base/check.h"

namespace kvkeep::client {
namespace {

// Keeps loads before the call ahead of loads after it.
void OrderLoads() {
#if defined(__x86_64__)
  asm volatile("" ::: "memory");  // the processor keeps the order itself
#elif defined(__aarch64__)
  asm volatile("dmb ishld" ::: "memory");
#else
#error "say how loads are ordered here"
#endif
}

std::span<const local::ProgressWord> Words(const MappedFile& file) {
  const std::span<const std::byte> memory = file.memory();
  return {reinterpret_cast<const local::ProgressWord*>(memory.data()),
          memory.size() / sizeof(local::ProgressWord)};
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Map(const UniqueFd& fd, bool writable,
                                                                  uint64_t min_bytes,
                                                                  uint64_t max_bytes) {
  struct stat facts {};
  if (fstat(fd.get(), &facts) != 0) return absl::ErrnoToStatus(errno, "fstat of shared memory");
  const auto bytes = static_cast<uint64_t>(facts.st_size);
  if (bytes == 0 || bytes < min_bytes || bytes > max_bytes) {
    return absl::InternalError(absl::StrCat("shared memory of ", bytes, " bytes where ", min_bytes,
                                            " to ", max_bytes, " were said"));
  }
  void* const at =
      mmap(nullptr, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mmap of ", bytes, " bytes of shared memory"));
  }
  // Neither fails on a fresh mapping. Without the first, a child could read memory that is not its
  // own.
  KVKEEP_CHECK(madvise(at, bytes, MADV_DONTFORK) == 0);
  (void)madvise(at, bytes, MADV_DONTDUMP);
  return std::shared_ptr<const MappedFile>(
      new MappedFile({static_cast<std::byte*>(at), bytes}, facts.st_dev, facts.st_ino,
                     static_cast<uint64_t>(facts.st_blocks) * 512 >= bytes));
}

MappedFile::~MappedFile() {
  if (mark_.InChild()) return;  // the mapping is not at this address in the child
  std::vector<std::weak_ptr<MappingUse>> uses;
  {
    MutexLock lock(&mu_);
    uses.swap(uses_);
  }
  for (const auto& one : uses) {
    if (const std::shared_ptr<MappingUse> use = one.lock()) use->End();
  }
  munmap(memory_.data(), memory_.size());
}

void MappedFile::AddUse(std::weak_ptr<MappingUse> use) const {
  MutexLock lock(&mu_);
  std::erase_if(uses_, [](const auto& one) { return one.expired(); });
  uses_.push_back(std::move(use));
}

bool MappedFile::IsFile(const UniqueFd& fd) const {
  struct stat facts {};
  return fstat(fd.get(), &facts) == 0 && facts.st_dev == device_ && facts.st_ino == inode_ &&
         static_cast<uint64_t>(facts.st_size) == memory_.size();
}

Mappings::Mappings(GuardedFd socket, std::shared_ptr<const ArenaMap> arena,
                   std::shared_ptr<const MappedFile> progress)
    : end_(std::make_shared<DaemonEnd>(std::move(socket))),
      arena_(std::move(arena)),
      progress_(std::move(progress)),
      words_(Words(*progress_)) {}

local::ProgressWord Mappings::Progress(uint32_t word) const {
  return __atomic_load_n(&words_[word], __ATOMIC_ACQUIRE);
}

void Mappings::WaitProgress(uint32_t word, local::ProgressWord seen,
                            std::chrono::nanoseconds timeout) const {
  const timespec limit{.tv_sec = timeout.count() / 1'000'000'000,
                       .tv_nsec = timeout.count() % 1'000'000'000};
  // The result does not matter, as the caller reads the word again.
  (void)syscall(SYS_futex, &words_[word], FUTEX_WAIT, seen, &limit, nullptr, 0);
}

bool Mappings::Alive() const {
  OrderLoads();
  if (over()) return false;
  if (Progress(0) != 0) {
    return false;
  }
  pollfd state{.fd = socket(), .events = POLLRDHUP, .revents = 0};
  return poll(&state, 1, 0) == 0;
}

// Keeps the reading side open: if it were shut, it would look as if the daemon had left.
void Mappings::Leave() const { shutdown(socket(), SHUT_WR); }

}  // namespace kvkeep::client
