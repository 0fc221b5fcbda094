// kvkeep-g2-start-bench: duration of a start over a G2 full of images, and speed of their
// verification after it.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/bench/store/bench_keys.h"
#include "tests/fakes/memory_arena.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tiers/base/units.h"
#include "tiers/store/store.h"

namespace kvkeep {
namespace {

using std::chrono::steady_clock;

double SecondsSince(steady_clock::time_point began) {
  return std::chrono::duration<double>(steady_clock::now() - began).count();
}

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

void Fill(Store& store, uint64_t chunks, const std::vector<std::byte>& payload) {
  const SessionToken session = store.OpenSession({.client_name = "bench"}).value();
  const NamespaceDigest ns =
      store.OpenNamespace(session, {.model = "bench", .tokens_per_chunk = 16}).value();
  for (uint64_t i = 0; i < chunks; ++i) {
    const PutRequest put{.ns = ns,
                         .key = BenchKey(i),
                         .shape = {.payload_bytes = static_cast<uint32_t>(payload.size())}};
    Reservation reservation = std::move(store.Reserve(session, put)->reservation);
    reservation.Append(payload);
    KVKEEP_CHECK(reservation.Seal({}).ok());
  }
}

void Run(uint64_t chunks, uint64_t payload_bytes, int threads) {
  const std::vector<std::byte> payload(payload_bytes, std::byte{1});
  const uint64_t blocks = chunks * (1 + DivideRoundUp(payload_bytes, kBlockBytes));
  MemoryArena arena(BlockCount(blocks + 1024), BlockCount(kGiB / kBlockBytes), true);
  ThreadPool pool("bench-copy", threads);
  SeededRandom random(1);
  const StoreDeps deps{.clock = RealClock(),
                       .random = &random,
                       .arena = &arena,
                       .copy_executor = &pool,
                       .background_executor = pool.background(),
                       .recovery_threads = threads};
  Fill(*Store::Create({}, deps).value(), chunks, payload);

  const double cpu_began = CpuSeconds();
  const steady_clock::time_point began = steady_clock::now();
  const std::unique_ptr<Store> store = Store::Create({}, deps).value();
  const double served = SecondsSince(began);
  const double cpu = CpuSeconds() - cpu_began;
  StoreSnapshot snapshot = store->snapshot();
  std::printf(
      "%lu images of %lu bytes, %d threads: serves after %.3f s (%.3f s of CPU) with %lu of them\n",
      chunks, payload_bytes, threads, served, cpu, snapshot.counters.recovered_g2_chunks);
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  while (!store->Tick()) never.WaitFor(&mu, std::chrono::milliseconds(100));
  const double all = SecondsSince(began);
  snapshot = store->snapshot();
  KVKEEP_CHECK(snapshot.counters.recovered_g2_chunks == chunks);
  std::printf("all verified after %.3f s: %.2f GB/s; longest hold of the lock %.1f us\n", all,
              static_cast<double>(blocks * kBlockBytes) / (all - served) / 1e9,
              static_cast<double>(snapshot.counters.lock_worked_ns_max) / 1e3);
  AwaitTurn(pool);
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  uint64_t chunks = 300'000, bytes = 1;
  int threads = 2;
  for (int i = 1; i + 1 < argc; i += 2) {
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--chunks") == 0) chunks = value;
    if (std::strcmp(argv[i], "--bytes") == 0) bytes = value;
    if (std::strcmp(argv[i], "--threads") == 0) threads = static_cast<int>(value);
  }
  kvkeep::Run(chunks, bytes, threads);
}
