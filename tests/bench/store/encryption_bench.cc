// kvkeep-encryption-bench: cost of encryption at rest in write-back and promotion.
//
// The real store runs over a disk in memory, so that only the CPU limits it: puts until everything
// is written back (the put's own copy included), then a restart and a promotion of everything.
// Rounds with encryption and without take turns. Prints the median of each, in GB per second and
// per CPU second of the process, and the ratio to the plain one.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fakes/threaded_store.h"
#include "tests/sim/payload.h"

namespace kvkeep {
namespace {

struct Took {
  double wall = 0, cpu = 0;  // seconds
};

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

template <typename Run>
Took Measure(Run run) {
  const Took before{Seconds(CLOCK_MONOTONIC), Seconds(CLOCK_PROCESS_CPUTIME_ID)};
  run();
  return {Seconds(CLOCK_MONOTONIC) - before.wall, Seconds(CLOCK_PROCESS_CPUTIME_ID) - before.cpu};
}

struct Rates {
  std::vector<double> wall, cpu;  // GB/s

  void Add(double bytes, const Took& took) {
    wall.push_back(bytes / took.wall / 1e9);
    cpu.push_back(bytes / took.cpu / 1e9);
  }
  static double Median(std::vector<double> rates) {
    std::sort(rates.begin(), rates.end());
    return rates[rates.size() / 2];
  }
};

void Print(const char* what, const Rates& plain, const Rates& encrypted) {
  const auto line = [what](const char* unit, double off, double on) {
    std::printf("%-11s %-14s plain %6.2f   encrypted %6.2f   ratio %.2f\n", what, unit, off, on,
                on / off);
  };
  line("GB/s", Rates::Median(plain.wall), Rates::Median(encrypted.wall));
  line("GB/CPU second", Rates::Median(plain.cpu), Rates::Median(encrypted.cpu));
}

void Run(size_t mib, size_t rounds) {
  constexpr size_t kChunkBytes = 4 * kMiB;
  const size_t chunks = std::max<size_t>(1, mib * kMiB / kChunkBytes);
  const double bytes = static_cast<double>(chunks * kChunkBytes);
  const uint64_t blocks = chunks * (kChunkBytes / kBlockBytes + 1);
  const std::vector<std::byte> payload = MakePayload(1, 1, kChunkBytes);
  const std::shared_ptr<KeyRing> keys = KeyRing::InMemory({""}, RealRandom());
  Rates down[2], up[2];
  for (size_t round = 0; round < 2 * rounds; ++round) {
    const bool on = round % 2 == 1;
    ThreadedStore threaded(
        {.g2_blocks = 2 * blocks, .device_blocks = 2 * blocks, .keys = on ? keys : nullptr});
    down[on].Add(bytes, Measure([&] {
                   for (size_t i = 0; i < chunks; ++i) threaded.Put(MakeKey(i), payload);
                   threaded.AwaitDurable();
                 }));
    threaded.Restart();
    up[on].Add(bytes, Measure([&] {
                 std::vector<ChunkReader> readers;
                 for (size_t i = 0; i < chunks; ++i) readers.push_back(threaded.Read(MakeKey(i)));
                 for (ChunkReader& reader : readers) {
                   KVKEEP_CHECK(reader && ThreadedStore::AwaitReady(reader).ok());
                 }
               }));
  }
  Print("write-back", down[0], down[1]);
  Print("promotion", up[0], up[1]);
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  size_t mib = 256, rounds = 7;
  for (int i = 1; i + 1 < argc; i += 2) {
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--mib") == 0) mib = value;
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max<uint64_t>(1, value);
  }
  kvkeep::Run(mib, rounds);
}
