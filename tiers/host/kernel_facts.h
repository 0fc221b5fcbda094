// Facts about memory from /proc and /sys: how much there is, and in which pages.
//
// Facts for limits and for the log line. Where a file is missing or unreadable, a function answers
// "unknown" rather than failing: the arena works without them.
#pragma once

#include <absl/status/status.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvkeep {

// The least memory limit of the cgroups (v2 or v1) around this process, and the file that says it.
struct MemoryLimit {
  uint64_t bytes = UINT64_MAX;  // none
  std::string path;
};
MemoryLimit LeastMemoryLimit();

// ResourceExhausted, naming the limit, when `bytes` more memory is above what the machine has
// available (MemAvailable) or LeastMemoryLimit.
absl::Status CheckMemoryFor(uint64_t bytes);

// MemAvailable of /proc/meminfo; `root` stands before the path, here and below, for tests.
std::optional<uint64_t> MemAvailable(const std::string& root = "");

// The chosen word of shmem_enabled: "never", "advise", "always", ...; "unknown".
std::string ShmemEnabled(const std::string& root = "");

// Returns whether vm.overcommit_memory is 2: then touching a page of shared memory may fail.
bool OvercommitIsStrict(const std::string& root = "");

// The huge= option of the tmpfs mounted as `device`: "always", ...; "never" when it has none.
std::string TmpfsHugeOption(dev_t device);

// FailedPrecondition unless the bytes of a page (tiers/base/page_bytes.h) are a power of two from
// 4 to 64 KiB.
absl::Status CheckPageSize(uint64_t page_bytes);

// Bytes of these mappings of ours that huge pages back (smaps). Walks page tables: not for hot
// paths.
uint64_t HugePageBytes(const std::vector<std::span<std::byte>>& mappings);

}  // namespace kvkeep
