#include "tools/bench/shared_pages.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/host/kernel_facts.h"
#include "tiers/host/prefault.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kHugePageBytes = 2 * kMiB;
constexpr uint64_t kTouchBytes = 16 * kMiB;  // by a thread at a time

// As large as asked for. The address is one where huge pages can lie.
absl::StatusOr<std::byte*> MapAligned(int fd, uint64_t bytes) {
  void* const raw = mmap(nullptr, bytes + kHugePageBytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return absl::ErrnoToStatus(errno, "no address space");
  std::byte* const start = static_cast<std::byte*>(raw);
  const uint64_t address = reinterpret_cast<uint64_t>(start);
  const uint64_t head = RoundUp(address, kHugePageBytes) - address;
  if (head > 0) munmap(start, head);
  if (head < kHugePageBytes) munmap(start + head + bytes, kHugePageBytes - head);
  if (mmap(start + head, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
      MAP_FAILED) {
    const int error = errno;
    munmap(start + head, bytes);
    return absl::ErrnoToStatus(error, absl::StrCat("cannot map ", bytes, " bytes"));
  }
  return start + head;
}

absl::Status Populate(std::span<std::byte> memory) {
  if (madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE) == 0) return absl::OkStatus();
  if (errno != EINVAL) {  // else a kernel before 5.14
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", memory.size(), " bytes of shared pages"));
  }
  TouchPages(memory);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SharedPages> SharedPages::Create(uint64_t bytes, const std::string& mount_dir) {
  absl::StatusOr<SharedPages> pages = CreateUntouched(bytes, mount_dir);
  if (!pages.ok()) return pages;
  const absl::Status populated = Populate(pages->memory());
  if (!populated.ok()) return populated;
  return pages;
}

absl::StatusOr<SharedPages> SharedPages::CreateUntouched(uint64_t bytes,
                                                         const std::string& mount_dir) {
  bytes = RoundUp(bytes, kHugePageBytes);
  const UniqueFd fd(mount_dir.empty()
                        ? memfd_create("kvkeep-bench", MFD_CLOEXEC)
                        : open(mount_dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("shared pages: ", mount_dir.empty() ? "memfd_create" : mount_dir));
  }
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("shared pages: size ", bytes));
  }
  absl::StatusOr<std::byte*> address = MapAligned(fd.get(), bytes);
  if (!address.ok()) return address.status();
  SharedPages pages(std::span(*address, bytes));
  madvise(*address, bytes, MADV_DONTFORK);
  madvise(*address, bytes, MADV_HUGEPAGE);  // a hint, as the arena gives it
  return pages;
}

absl::Status SharedPages::Touch(int threads) {
  std::atomic<uint64_t> next = 0;
  std::vector<absl::Status> went(static_cast<size_t>(threads));
  {
    std::vector<std::jthread> running;
    for (absl::Status& status : went) {
      running.emplace_back([&] {
        for (uint64_t at = 0; status.ok() && (at = next.fetch_add(kTouchBytes)) < memory_.size();) {
          status = Populate(memory_.subspan(at, std::min(kTouchBytes, memory_.size() - at)));
        }
      });
    }
  }
  const auto bad = std::find_if(went.begin(), went.end(), [](const auto& s) { return !s.ok(); });
  return bad == went.end() ? absl::OkStatus() : *bad;
}

SharedPages::~SharedPages() {
  if (!memory_.empty()) KVKEEP_CHECK(munmap(memory_.data(), memory_.size()) == 0);
}

uint64_t SharedPages::huge_page_bytes() const { return HugePageBytes({memory_}); }

}  // namespace kvkeep::bench
