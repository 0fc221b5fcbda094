#include "tiers/host/mapping.h"

#include <absl/strings/str_cat.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

constexpr uint64_t kLeastAlignment = 2 * kMiB;

// The kernel maps a huge page only where address and file offset agree modulo its size. Less memory
// than a huge page gets none, however it is aligned.
uint64_t AlignmentOf(uint64_t bytes, uint64_t page_bytes) {
  const uint64_t huge = bytes >= TransparentHugePageBytes() ? TransparentHugePageBytes() : 0;
  return std::max({page_bytes, huge, kLeastAlignment});
}

// Address space of `bytes`, aligned, reserved but not usable yet. Null on failure.
std::byte* ReserveAligned(uint64_t bytes, uint64_t alignment) {
  const uint64_t reserved = bytes + alignment;
  void* raw =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  std::byte* const start = static_cast<std::byte*>(raw);
  const uint64_t head =
      RoundUp(reinterpret_cast<uint64_t>(start), alignment) - reinterpret_cast<uint64_t>(start);
  if (head > 0) KVKEEP_CHECK(munmap(start, head) == 0);
  if (head < alignment) KVKEEP_CHECK(munmap(start + head + bytes, alignment - head) == 0);
  return start + head;
}

}  // namespace

absl::StatusOr<Mapping> Mapping::Map(int fd, uint64_t bytes, uint64_t page_bytes) {
  KVKEEP_CHECK(std::has_single_bit(page_bytes) && page_bytes >= PageBytes());
  KVKEEP_CHECK(bytes > 0 && bytes % page_bytes == 0);
  std::byte* const address = ReserveAligned(bytes, AlignmentOf(bytes, page_bytes));
  if (address == nullptr) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("arena: no address space for ", bytes,
                                            " bytes; raise the limit on it (LimitAS, ulimit -v) or "
                                            "lower the capacity"));
  }
  Mapping mapping(std::span(address, bytes));  // from here on unmapped on every way out
  if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    // Not unmapped: the kernel may have done so before it failed, and have given the addresses to
    // another thread since.
    mapping.memory_ = {};
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("arena: cannot map a segment of ", bytes, " bytes"));
  }
  for (const int advice : {MADV_DONTFORK, MADV_DONTDUMP}) {
    if (madvise(address, bytes, advice) != 0) {
      return absl::ErrnoToStatus(errno,
                                 "arena: cannot keep a segment out of core dumps and children");
    }
  }
  // Only a hint: a kernel without huge pages says EINVAL, and small pages work too.
  if (page_bytes == PageBytes()) madvise(address, bytes, MADV_HUGEPAGE);
  return mapping;
}

Mapping::~Mapping() {
  if (!memory_.empty()) KVKEEP_CHECK(munmap(memory_.data(), memory_.size()) == 0);
}

Mapping::Mapping(Mapping&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(memory_, other.memory_);
  return *this;
}

}  // namespace kvkeep
