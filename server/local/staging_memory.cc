// StagingMemory: seals it against shrinking, and prefaults and frees it in slices, so that no task
// takes long.
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "server/local/client_memory.h"
#include "tiers/base/check.h"
#include "tiers/base/page_bytes.h"

namespace kvkeep {
namespace {

constexpr uint64_t kSliceBytes = 16 * kMiB;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status Failed(const char* what, uint64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("staging memory of ", bytes, " bytes: ", what, ": ", std::strerror(errno)));
}

// Makes pages, as MADV_POPULATE_READ does: reading a hole of shared memory makes its page.
void TouchByReading(const std::byte* from, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += PageBytes()) {
    static_cast<void>(*static_cast<const volatile std::byte*>(from + at));
  }
}

}  // namespace

StagingMemory::StagingMemory(std::shared_ptr<const LocalContext> context,
                             std::shared_ptr<StagingAccount> account, uint64_t bytes)
    : context_(std::move(context)),
      account_(std::move(account)),
      bytes_(bytes),
      bytes_of_all_(context_->counters->staging_bytes.fetch_add(bytes_) + bytes_),
      bytes_of_tenant_(account_ == nullptr ? 0 : account_->bytes.fetch_add(bytes_) + bytes_) {
  context_->counters->staging_areas.fetch_add(1);
  if (account_ != nullptr) account_->areas.fetch_add(1);
}

StagingMemory::~StagingMemory() {
  if (mapped_ != nullptr) KVKEEP_CHECK(munmap(mapped_, bytes_) == 0);
  if (account_ != nullptr) {
    account_->areas.fetch_sub(1, std::memory_order_release);
    account_->bytes.fetch_sub(bytes_, std::memory_order_release);
  }
  context_->counters->staging_areas.fetch_sub(1, std::memory_order_release);
  context_->counters->staging_bytes.fetch_sub(bytes_, std::memory_order_release);
}

absl::Status StagingMemory::CheckLimits() const {
  const auto check = [this](const char* whose, uint64_t with_this, uint64_t limit,
                            const char* name) -> absl::Status {
    if (with_this <= limit) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("staging memory: ", bytes_, " bytes more, ", whose, " had ",
                     with_this - bytes_, ", allowed are at most ", limit, " (", name, ")"));
  };
  absl::Status all = check("all sessions", bytes_of_all_, context_->limits.max_all_staging_bytes,
                           "limits.staging");
  if (!all.ok() || account_ == nullptr) return all;
  return check("sessions of this tenant", bytes_of_tenant_, account_->max_bytes,
               "its staging, or part of limits.staging");
}

absl::StatusOr<std::unique_ptr<StagingMemory>> StagingMemory::Create(
    std::shared_ptr<const LocalContext> context, std::shared_ptr<StagingAccount> account,
    uint64_t bytes) {
  std::unique_ptr<StagingMemory> memory(
      new StagingMemory(std::move(context), std::move(account), bytes));
  if (absl::Status within = memory->CheckLimits(); !within.ok()) return within;
  memory->fd_ = UniqueFd(memfd_create("kvkeep-staging", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory->fd_.valid()) return Failed("memfd_create", bytes);
  const int file = memory->fd_.get();
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) return Failed("ftruncate", bytes);
  if (fchmod(file, S_IRUSR | S_IWUSR) != 0 || fcntl(file, F_ADD_SEALS, kSeals) != 0) {
    return Failed("sealing", bytes);
  }
  if (!memory->context_->limits.staging_by_calls) {
    if (absl::Status mapped = memory->Map(); !mapped.ok()) return mapped;
  }
  return memory;
}

absl::Status StagingMemory::Map() {
  void* const mapped = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd_.get(), 0);
  if (mapped == MAP_FAILED) return Failed("mmap", bytes_);
  mapped_ = static_cast<std::byte*>(mapped);
  // These are hints, so failures do not matter.
  for (const int advice : {MADV_DONTFORK, MADV_DONTDUMP, MADV_HUGEPAGE}) {
    madvise(mapped, bytes_, advice);
  }
  return absl::OkStatus();
}

void StagingMemory::Make(std::shared_ptr<const LocalContext> context,
                         std::shared_ptr<StagingAccount> account, const StagingWish& wish,
                         Done done) {
  const LocalCounters& counters = *context->counters;
  std::vector<StagingUse> uses = {
      {.limit_bytes = context->limits.max_all_staging_bytes,
       .held_bytes = counters.staging_bytes.load(std::memory_order_acquire),
       .sessions = counters.staging_areas.load(std::memory_order_acquire)}};
  if (account != nullptr) {
    uses.front().tenants = true;
    uses.push_back({.limit_bytes = account->max_bytes,
                    .held_bytes = account->bytes.load(std::memory_order_acquire),
                    .sessions = account->areas.load(std::memory_order_acquire)});
  }
  // If too little is left, a request for the least makes the error name the exceeded limit.
  const uint64_t share = StagingShare(wish, uses);
  const uint64_t bytes = share > 0 ? share : LeastStaging(wish);
  absl::StatusOr<std::unique_ptr<StagingMemory>> made =
      Create(std::move(context), std::move(account), bytes);
  if (!made.ok()) {
    std::move(done)(made.status());
    return;
  }
  const auto free = [](StagingMemory* last) { Free(std::unique_ptr<StagingMemory>(last), 0); };
  Populate(std::shared_ptr<StagingMemory>(made->release(), free), 0, std::move(done));
}

void StagingMemory::Populate(std::shared_ptr<StagingMemory> memory, uint64_t from, Done done) {
  Executor* const executor = memory->context_->copy_executor;
  executor->Post([memory = std::move(memory), from, done = std::move(done)]() mutable {
    const uint64_t slice = std::min(kSliceBytes, memory->bytes_ - from);
    if (absl::Status made = memory->MakePages(from, slice); !made.ok()) {
      std::move(done)(std::move(made));
      return;
    }
    if (from + slice == memory->bytes_) {
      std::move(done)(std::move(memory));
    } else {
      Populate(std::move(memory), from + slice, std::move(done));
    }
  });
}

absl::Status StagingMemory::MakePages(uint64_t from, uint64_t bytes) {
  if (mapped_ == nullptr) {
    const auto at = static_cast<off_t>(from), length = static_cast<off_t>(bytes);
    if (fallocate(fd_.get(), 0, at, length) == 0) return absl::OkStatus();
    return Failed("cannot get its pages", bytes_);
  }
  if (madvise(mapped_ + from, bytes, MADV_POPULATE_READ) == 0) return absl::OkStatus();
  if (errno != EINVAL) return Failed("cannot get its pages", bytes_);
  TouchByReading(mapped_ + from, bytes);  // Linux before 5.14
  return absl::OkStatus();
}

void StagingMemory::Free(std::unique_ptr<StagingMemory> memory, uint64_t from) {
  Executor* const executor = memory->context_->copy_executor;
  executor->Post([memory = std::move(memory), from]() mutable {
    const uint64_t slice = std::min(kSliceBytes, memory->bytes_ - from);
    fallocate(memory->fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(from), static_cast<off_t>(slice));
    if (from + slice < memory->bytes_) return Free(std::move(memory), from + slice);
    absl::AnyInvocable<void()&&> freed = std::move(memory->freed_);
    memory.reset();
    if (freed) std::move(freed)();
  });
}

void StagingMemory::GiveUp(std::shared_ptr<StagingMemory> last,
                           absl::AnyInvocable<void() &&> freed) {
  last->freed_ = std::move(freed);
  last.reset();
}

absl::Status StagingMemory::Read(uint64_t offset, uint64_t bytes, Give give) const {
  if (mapped_ == nullptr) return ReadByCall(offset, bytes, give);
  KVKEEP_CHECK(offset <= bytes_ && bytes <= bytes_ - offset);
  give({mapped_ + offset, bytes});
  return absl::OkStatus();
}

absl::Status StagingMemory::ReadByCall(uint64_t offset, uint64_t bytes, Give give) const {
  KVKEEP_CHECK(offset <= bytes_ && bytes <= bytes_ - offset);
  return ReadFile("staging memory", fd_, offset, bytes, give);
}

std::optional<uint64_t> StagingMemory::ReadWord(uint64_t offset) const {
  KVKEEP_CHECK(offset % sizeof(uint64_t) == 0 && offset < bytes_);
  if (mapped_ == nullptr) return ReadWordByCall(offset);
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(mapped_ + offset), __ATOMIC_ACQUIRE);
}

// A system call does not read a word atomically: during a store it could return some bytes of the
// old value and some of the new. So the word is read until two reads agree.
std::optional<uint64_t> StagingMemory::ReadWordByCall(uint64_t offset) const {
  constexpr int kTries = 4;
  std::optional<uint64_t> before;
  for (int i = 0; i < kTries; ++i) {
    uint64_t value = 0;
    const ssize_t got = pread(fd_.get(), &value, sizeof(value), static_cast<off_t>(offset));
    if (got != sizeof(value)) return std::nullopt;
    if (before == value) {
#ifndef __SANITIZE_THREAD__  // it knows no fences, and does not see another process's stores
      std::atomic_thread_fence(std::memory_order_acquire);
#endif
      return value;
    }
    before = value;
  }
  return std::nullopt;
}

absl::StatusOr<UniqueFd> StagingMemory::Duplicate() const {
  UniqueFd fd(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return Failed("duplicating the descriptor", bytes_);
  return fd;
}

}  // namespace kvkeep
