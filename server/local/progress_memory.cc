#include "server/local/progress_memory.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

using local::ProgressWord;

constexpr size_t kBytes = local::kProgressWords * sizeof(ProgressWord);
constexpr int kProgressSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

absl::Status Failed(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("progress words: ", what, ": ", std::strerror(errno)));
}

void Wake(ProgressWord* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

absl::StatusOr<std::shared_ptr<ProgressMemory>> ProgressMemory::Create() {
  UniqueFd fd(memfd_create("kvkeep-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Failed("memfd_create");
  if (ftruncate(fd.get(), kBytes) != 0) return Failed("ftruncate");
  void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return Failed("mmap");
  std::shared_ptr<ProgressMemory> memory(
      new ProgressMemory(std::move(fd), static_cast<ProgressWord*>(mapped)));
  madvise(mapped, kBytes, MADV_DONTFORK);
  // The mode keeps other users from reopening it; the seals keep everybody from changing it.
  if (fchmod(memory->fd_.get(), S_IRUSR) != 0 ||
      fcntl(memory->fd_.get(), F_ADD_SEALS, kProgressSeals) != 0) {
    return Failed("sealing (F_SEAL_FUTURE_WRITE needs Linux 5.1)");
  }
  return memory;
}

ProgressMemory::ProgressMemory(UniqueFd fd, ProgressWord* words)
    : fd_(std::move(fd)), words_(words) {}

ProgressMemory::~ProgressMemory() { KVKEEP_CHECK(munmap(words_, kBytes) == 0); }

absl::StatusOr<UniqueFd> ProgressMemory::OpenForClient() const {
  // Through /proc: a new description that is read-only, which dup could not make.
  UniqueFd fd(open(absl::StrCat("/proc/self/fd/", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Failed("open through /proc/self/fd");
  return fd;
}

std::optional<uint32_t> ProgressMemory::TakeWord() {
  uint32_t word = next_unused_;
  if (!given_back_.empty()) {
    word = given_back_.back();
    given_back_.pop_back();
  } else if (next_unused_ < local::kProgressWords) {
    ++next_unused_;
  } else {
    return std::nullopt;
  }
  std::atomic_ref<ProgressWord>(words_[word]).store(0, std::memory_order_release);
  return word;
}

void ProgressMemory::GiveBack(uint32_t word) {
  KVKEEP_CHECK(word > 0 && word < next_unused_);
  given_back_.push_back(word);
}

void ProgressMemory::Publish(uint32_t word, ProgressWord value) {
  KVKEEP_CHECK(word > 0 && word < local::kProgressWords);
  std::atomic_ref<ProgressWord>(words_[word]).store(value, std::memory_order_release);
  Wake(&words_[word]);
}

void ProgressMemory::EndSession() {
  // An exchange and not a store: later writes, by new users of the freed memory, stay behind it.
  std::atomic_ref<ProgressWord>(words_[0]).exchange(1, std::memory_order_seq_cst);
  Wake(&words_[0]);
}

}  // namespace kvkeep
