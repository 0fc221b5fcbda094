// kvkeep-copy-bench: speed of the hot paths' copies from cold memory, beside memcpy.
//
// Source and target are larger than the caches, shared memory as the arena's. Chunks of one size
// are copied one after the other; rounds of all ways take turns. Prints medians, and the median of
// the rounds' ratios to memcpy.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/stream_copy.h"

namespace kvkeep {
namespace {

std::span<std::byte> SharedMemory(size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  KVKEEP_CHECK(at != MAP_FAILED);
  std::memset(at, 1, bytes);
  return {static_cast<std::byte*>(at), bytes};
}

struct Way {
  const char* name;
  std::function<void(std::byte* to, std::span<const std::byte> from)> copy;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Run(size_t mib, size_t chunk_bytes, size_t rounds) {
  const std::span<std::byte> source = SharedMemory(mib * kMiB), target = SharedMemory(mib * kMiB);
  const Way ways[] = {
      {"memcpy", [](auto* to, auto from) { std::memcpy(to, from.data(), from.size()); }},
      {"StreamCopy", [](auto* to, auto from) { StreamCopy(to, from); }},
      {"copy and checksum",
       [](auto* to, auto from) {
         PayloadCopier copier;
         copier.Append(to, from);
         KVKEEP_CHECK(!copier.Finish().empty());
       }},
      {"of shared memory",
       [](auto* to, auto from) {
         PayloadCopier copier;
         copier.AppendShared(to, from);
         KVKEEP_CHECK(!copier.Finish().empty());
       }},
  };
  std::vector<std::vector<double>> rates(std::size(ways)), ratios(std::size(ways));
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < std::size(ways); ++i) {
      const auto began = std::chrono::steady_clock::now();
      for (size_t at = 0; at + chunk_bytes <= source.size(); at += chunk_bytes) {
        ways[i].copy(target.data() + at, source.subspan(at, chunk_bytes));
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      rates[i].push_back(static_cast<double>(source.size()) / took.count() / 1e9);
      ratios[i].push_back(rates[i].back() / rates[0].back());
    }
  }
  for (size_t i = 0; i < std::size(ways); ++i) {
    std::printf("%6.2f MiB  %-18s %6.2f GB/s  %.2f of memcpy\n",
                static_cast<double>(chunk_bytes) / kMiB, ways[i].name, Median(rates[i]),
                Median(ratios[i]));
  }
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  size_t mib = 512, rounds = 9;
  for (int i = 1; i + 1 < argc; i += 2) {
    const size_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--mib") == 0) mib = value;
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = value;
  }
  if (mib < 64 || rounds == 0) {
    std::fprintf(stderr, "kvkeep-copy-bench [--mib N, at least 64] [--rounds N, at least 1]\n");
    return 2;
  }
  for (const size_t bytes : {kvkeep::kMiB / 8, kvkeep::kMiB, 4 * kvkeep::kMiB, 32 * kvkeep::kMiB}) {
    kvkeep::Run(mib, bytes, rounds);
  }
}
