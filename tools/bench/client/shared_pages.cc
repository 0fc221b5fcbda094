#include "tools/bench/client/shared_pages.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "tiers/base/page_bytes.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/host/kernel_facts.h"
#include "tiers/host/prefault.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kHugePageBytes = 2 * kMiB;
constexpr uint64_t kTouchBytes = 16 * kMiB;  // by a thread at a time

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
  absl::StatusOr<Mapping> mapping = Mapping::Map(fd.get(), bytes, PageBytes());
  if (!mapping.ok()) return mapping.status();
  return SharedPages(*std::move(mapping));
}

absl::Status SharedPages::Touch(int threads) {
  const std::span<std::byte> all = memory();
  std::atomic<uint64_t> next = 0;
  std::vector<absl::Status> went(static_cast<size_t>(threads));
  {
    std::vector<std::jthread> running;
    for (absl::Status& status : went) {
      running.emplace_back([&] {
        for (uint64_t at = 0; status.ok() && (at = next.fetch_add(kTouchBytes)) < all.size();) {
          status = Populate(all.subspan(at, std::min(kTouchBytes, all.size() - at)));
        }
      });
    }
  }
  const auto bad = std::find_if(went.begin(), went.end(), [](const auto& s) { return !s.ok(); });
  return bad == went.end() ? absl::OkStatus() : *bad;
}

uint64_t SharedPages::huge_page_bytes() const { return HugePageBytes({memory()}); }

}  // namespace kvkeep::bench
