// kvkeep-lookup-bench: time to find 512 keys among many chunks.
//
// There are two kinds of request: `chain`, 512 keys that were put one after the other, as a
// prompt's are; and `random`, 512 keys from anywhere, the worst case for caches. Chains are put in
// random order. Times are the thread's CPU times, so a busy machine only adds cold caches.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "tests/bench/store/bench_keys.h"
#include "tests/fakes/aliased_arena.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/check.h"
#include "tiers/store/chunk_table.h"
#include "tiers/store/store.h"

namespace kvkeep {
namespace {

using store_internal::ChunkTable;

double ThreadMicros() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Numbers of chunks in the order in which they are put.
std::vector<uint64_t> PutOrder(uint64_t chunks, SeededRandom& random) {
  std::vector<uint64_t> chains((chunks + kLookupKeys - 1) / kLookupKeys);
  std::iota(chains.begin(), chains.end(), 0);
  for (size_t i = chains.size(); i > 1; --i) std::swap(chains[i - 1], chains[random.Below(i)]);
  std::vector<uint64_t> order;
  for (const uint64_t chain : chains) {
    for (uint64_t i = chain * kLookupKeys; i < std::min(chunks, (chain + 1) * kLookupKeys); ++i) {
      order.push_back(i);
    }
  }
  return order;
}

std::vector<ChunkKey> Request(bool chain, uint64_t chunks, SeededRandom& random) {
  std::vector<ChunkKey> keys;
  const uint64_t first = random.Below(std::max<uint64_t>(1, chunks / kLookupKeys)) * kLookupKeys;
  for (size_t i = 0; i < kLookupKeys; ++i) {
    keys.push_back(BenchKey(chain ? std::min(first + i, chunks - 1) : random.Below(chunks)));
  }
  return keys;
}

// Prints the times of `run`: the fastest tenth, the median and the slowest hundredth.
template <typename Run>
void Measure(const char* what, uint64_t chunks, size_t rounds, Run run) {
  for (const bool chain : {true, false}) {
    SeededRandom random(chunks + chain);
    std::vector<double> took;
    for (size_t i = 0; i < rounds; ++i) {
      const std::vector<ChunkKey> keys = Request(chain, chunks, random);
      const double before = ThreadMicros();
      run(keys);
      took.push_back(ThreadMicros() - before);
    }
    std::sort(took.begin(), took.end());
    std::printf("%-14s %8lu chunks  %-6s  p10 %6.1f us   median %6.1f us   p99 %6.1f us\n", what,
                chunks, chain ? "chain" : "random", took[rounds / 10], took[rounds / 2],
                took[rounds * 99 / 100]);
  }
}

void MeasureTable(uint64_t chunks, size_t rounds) {
  MemoryToucher toucher;
  ChunkTable table(std::make_shared<SlotArrays>(4 << 20, &toucher), 12345);
  toucher.Await();
  SeededRandom random(1);
  double slowest_us = 0;
  for (const uint64_t number : PutOrder(chunks, random)) {
    const ChunkId id{{}, BenchKey(number), PartId(0)};
    const double before = ThreadMicros();
    KVKEEP_CHECK(table.Create(id, {.payload_bytes = 1}) != kNoSlot);
    const double took = ThreadMicros() - before;
    slowest_us = std::max(slowest_us, took);
  }
  std::printf("%-14s %8lu chunks  slowest insert %.1f us\n", "table", chunks, slowest_us);
  uint64_t found = 0;
  std::vector<ChunkTable::Link> links(kLookupKeys);
  Measure("table", chunks, rounds, [&](const std::vector<ChunkKey>& keys) {
    const std::vector<PartId> parts = {PartId(0)};
    table.FindAll({}, keys, parts, links);
    for (const ChunkTable::Link& link : links) found += link.slot != kNoSlot;
  });
  KVKEEP_CHECK(found == 2 * rounds * kLookupKeys);
}

void MeasureStore(uint64_t chunks, size_t rounds) {
  AliasedArena arena{BlockCount(chunks * 2 + 1024)};
  ManualExecutor executor;
  SeededRandom random(1);
  auto store =
      Store::Create(
          {},
          {.clock = RealClock(), .random = &random, .arena = &arena, .copy_executor = &executor})
          .value();
  const SessionToken session = store->OpenSession({.client_name = "bench"}).value();
  const NamespaceDigest ns =
      store->OpenNamespace(session, {.model = "bench", .tokens_per_chunk = 16}).value();
  const std::byte payload[1] = {};
  for (const uint64_t number : PutOrder(chunks, random)) {
    PutRequest put{.ns = ns, .key = BenchKey(number), .shape = {.payload_bytes = 1}};
    if (number % kLookupKeys != 0) put.parent = BenchKey(number - 1);
    Reservation reservation = std::move(store->Reserve(session, put)->reservation);
    reservation.Append(payload);
    KVKEEP_CHECK(reservation.Seal({}).ok());
  }
  const std::vector<PartId> parts = {PartId(0)};
  Measure("Store::Lookup", chunks, rounds, [&](const std::vector<ChunkKey>& keys) {
    const auto found = store->Lookup(session, {.chunks = {ns, keys, parts}});
    KVKEEP_CHECK(found.ok() && found->leading_keys == kLookupKeys);
  });
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  std::vector<uint64_t> sizes = {10'000, 1'000'000};
  size_t rounds = 1000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--chunks") == 0) sizes = {value};
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = value;
  }
  for (const uint64_t chunks : sizes) kvkeep::MeasureTable(chunks, rounds);
  for (const uint64_t chunks : sizes) kvkeep::MeasureStore(chunks, rounds);
}
