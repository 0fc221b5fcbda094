// StagingMemory: sealed against shrinking, prefaulted and freed in slices so that no task takes
// long.
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "server/local/client_memory.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr uint64_t kSliceBytes = 16 * kMiB;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status Failed(const char* what, uint64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("staging memory of ", bytes, " bytes: ", what, ": ", std::strerror(errno)));
}

// A read of a hole of shared memory makes its page, as MADV_POPULATE_READ does.
void TouchByReading(const std::byte* from, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kBlockBytes) {
    static_cast<void>(*static_cast<const volatile std::byte*>(from + at));
  }
}

uint64_t Fit(const StagingWish& wish, uint64_t room) {
  uint64_t bytes = wish.bytes;
  if (!wish.named && bytes > room) bytes = std::max(room / 2, std::min(room, wish.chunk_bytes));
  // At least a page: where there is none left, that says so.
  const uint64_t most = std::min(wish.most_bytes, std::max<uint64_t>(room, kBlockBytes));
  return RoundUp(std::clamp<uint64_t>(bytes, 1, most), kBlockBytes);
}

// Whole pages that are left.
uint64_t RoomIn(uint64_t limit, uint64_t used) {
  limit = limit / kBlockBytes * kBlockBytes;
  return limit - std::min(limit, used);
}

}  // namespace

StagingMemory::StagingMemory(std::shared_ptr<const LocalContext> context,
                             std::shared_ptr<StagingAccount> account, uint64_t bytes)
    : context_(std::move(context)),
      account_(std::move(account)),
      bytes_(bytes),
      bytes_of_all_(context_->counters->staging_bytes.fetch_add(bytes_) + bytes_),
      bytes_of_tenant_(account_ == nullptr ? 0 : account_->bytes.fetch_add(bytes_) + bytes_) {}

StagingMemory::~StagingMemory() {
  if (mapped_ != nullptr) KVKEEP_CHECK(munmap(mapped_, bytes_) == 0);
  if (account_ != nullptr) account_->bytes.fetch_sub(bytes_, std::memory_order_release);
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
  void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return Failed("mmap", bytes);
  memory->mapped_ = static_cast<std::byte*>(mapped);
  // Hints: without them it works too.
  for (const int advice : {MADV_DONTFORK, MADV_DONTDUMP, MADV_HUGEPAGE}) {
    madvise(mapped, bytes, advice);
  }
  return memory;
}

void StagingMemory::Make(std::shared_ptr<const LocalContext> context, const StagingWish& wish,
                         Done done) {
  uint64_t room = RoomIn(context->limits.max_all_staging_bytes,
                         context->counters->staging_bytes.load(std::memory_order_acquire));
  if (const StagingAccount* own = wish.account.get(); own != nullptr) {
    room = std::min(room, RoomIn(own->max_bytes, own->bytes.load(std::memory_order_acquire)));
  }
  absl::StatusOr<std::unique_ptr<StagingMemory>> made =
      Create(std::move(context), wish.account, Fit(wish, room));
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
    if (madvise(memory->mapped_ + from, slice, MADV_POPULATE_READ) != 0) {
      if (errno != EINVAL) {
        std::move(done)(Failed("cannot get its pages", memory->bytes_));
        return;
      }
      TouchByReading(memory->mapped_ + from, slice);  // Linux before 5.14
    }
    if (from + slice == memory->bytes_) {
      std::move(done)(std::move(memory));
    } else {
      Populate(std::move(memory), from + slice, std::move(done));
    }
  });
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
  KVKEEP_CHECK(offset <= bytes_ && bytes <= bytes_ - offset);
  give({mapped_ + offset, bytes});
  return absl::OkStatus();
}

absl::Status StagingMemory::ReadByCall(uint64_t offset, uint64_t bytes, Give give) const {
  KVKEEP_CHECK(offset <= bytes_ && bytes <= bytes_ - offset);
  return ReadFile("staging memory", fd_, offset, bytes, give);
}

uint64_t StagingMemory::ReadWord(uint64_t offset) const {
  KVKEEP_CHECK(offset % sizeof(uint64_t) == 0 && offset < bytes_);
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(mapped_ + offset), __ATOMIC_ACQUIRE);
}

absl::StatusOr<UniqueFd> StagingMemory::Duplicate() const {
  UniqueFd fd(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return Failed("duplicating the descriptor", bytes_);
  return fd;
}

}  // namespace kvkeep
