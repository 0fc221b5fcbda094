// Copies of cold memory.
#include <absl/strings/numbers.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/baselines.h"
#include "tools/bench/cpu_time.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kUsualCacheBytes = 32 * kMiB;
constexpr uint64_t kMinColdBytes = 256 * kMiB;
constexpr uint64_t kCaches = 4;

}  // namespace

// As the kernel tells, not sysconf: that one counts a virtual machine's cores wrongly.
uint64_t LastLevelCacheBytes() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::string text;  // "32768K"
  uint64_t kib = 0;
  if (!(file >> text) || text.back() != 'K') return kUsualCacheBytes;
  text.pop_back();
  return absl::SimpleAtoi(text, &kib) && kib > 0 ? kib * kKiB : kUsualCacheBytes;
}

uint64_t ColdBytes() { return std::max(kMinColdBytes, kCaches * LastLevelCacheBytes()); }

absl::StatusOr<std::unique_ptr<ColdCopy>> ColdCopy::Create(uint64_t bytes,
                                                           const std::string& mount_dir) {
  KVKEEP_ASSIGN_OR_RETURN(SharedPages source, SharedPages::Create(bytes, mount_dir));
  KVKEEP_ASSIGN_OR_RETURN(SharedPages target, SharedPages::Create(bytes, mount_dir));
  std::memset(source.memory().data(), 1, source.memory().size());
  return std::unique_ptr<ColdCopy>(new ColdCopy(std::move(source), std::move(target)));
}

uint64_t ColdCopy::huge_page_bytes() const {
  return source_.huge_page_bytes() + target_.huge_page_bytes();
}

Measured ColdCopy::CopyOnOneThread(uint64_t size, int thread, int threads, double seconds) {
  const std::span<std::byte> from = source_.memory();
  const std::span<std::byte> to = target_.memory();
  Measured measured;
  const double begin = WallSeconds();
  const double cpu_begin = ThreadCpuSeconds();
  for (uint64_t n = round_ * static_cast<uint64_t>(threads) + static_cast<uint64_t>(thread);
       measured.seconds < seconds; n += static_cast<uint64_t>(threads)) {
    const uint64_t from_at = n % (from.size() / size) * size;
    const uint64_t to_at = n % (to.size() / size) * size;
    std::memcpy(to.data() + to_at, from.data() + from_at, size);
    const double now = WallSeconds();
    measured.latency.RecordSeconds(now - begin - measured.seconds);
    measured.seconds = now - begin;
    ++measured.ops;
  }
  measured.client_cpu_seconds = ThreadCpuSeconds() - cpu_begin;
  measured.chunks = measured.ops;
  measured.bytes = measured.copied_bytes = measured.ops * size;
  return measured;
}

Measured ColdCopy::Run(uint64_t size, int threads, double seconds) {
  KVKEEP_CHECK(threads > 0 && size > 0);
  KVKEEP_CHECK(size <= std::min(source_.memory().size(), target_.memory().size()));
  std::vector<Measured> parts(static_cast<size_t>(threads));
  {
    std::latch ready(threads);
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&, i] {
        ready.arrive_and_wait();
        parts[static_cast<size_t>(i)] = CopyOnOneThread(size, i, threads, seconds);
      });
    }
  }
  Measured all;
  for (const Measured& part : parts) all.Add(part, /*side_by_side=*/true);
  round_ += all.ops / static_cast<uint64_t>(threads);
  return all;
}

}  // namespace kvkeep::bench
