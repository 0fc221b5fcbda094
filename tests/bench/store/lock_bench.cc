// kvkeep-lock-bench: how often, and for how long, each kind of call takes the store's lock.
//
// N callers on threads of their own use simulated drives that take no time, so that they wait for
// the lock alone. Kinds: `put` of a chunk with its write-back; `get`, a read that promotes the
// chunk from its drive; `hit`, a read of a chunk in G2; `lookup` of 512 keys in G2. Prints for each
// kind calls a second, takes of the lock and microseconds held by call, and the bucket that
// contains 99 of 100 waits for the lock. Counts of takes are exact; times are this machine's.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/store/bench_keys.h"
#include "tests/bench/store/simulated_device.h"
#include "tiers/base/check.h"
#include "tiers/base/executor.h"
#include "tiers/base/random.h"
#include "tiers/base/units.h"
#include "tiers/host/arena.h"
#include "tiers/store/store.h"

namespace kvkeep {
namespace {

struct LockAsked {
  int callers = 2, devices = 1;
  uint64_t chunk_bytes = 2 * kMiB, data_bytes = 512 * kMiB;
  double seconds = 1;
  double lookups_per_second = 0;  // 0: the machine's number
  std::string policy = "lru";
};

// A store whose G2 has half of the data, all of which is on the drives.
class LockNode {
 public:
  explicit LockNode(const LockAsked& asked)
      : asked_(asked), chunks_(asked.data_bytes / asked.chunk_bytes), payload_(asked.chunk_bytes) {
    arena_ = CreateArena({.capacity_bytes = RoundUp(asked.data_bytes / 2 + 64 * kMiB, 2 * kMiB),
                          .backing = ArenaBacking::kMemfd},
                         &copy_)
                 .value();
    StoreDeps deps{.clock = RealClock(),
                   .random = RealRandom(),
                   .arena = arena_.get(),
                   .copy_executor = &copy_};
    const auto devices = static_cast<uint64_t>(asked.devices);
    for (uint64_t i = 0; i < devices; ++i) {
      const uint64_t bytes = RoundUp(asked.data_bytes * 3 / devices + 64 * kMiB, kBlockBytes);
      drives_.push_back(std::make_unique<SimulatedDevice>(
          SimulatedDrive{.bytes = bytes, .bytes_per_second = 1e12}, static_cast<uint8_t>(i + 1)));
      deps.devices.push_back({.device = drives_.back().get(),
                              .index_executor = &index_,
                              .sync_executor = &index_});
    }
    store_ = Store::Create({.g2_policy = asked.policy,
                            .g3_policy = asked.policy,
                            .dirty_budget_bytes = arena_->capacity_bytes(),
                            .max_leased_bytes = arena_->capacity_bytes(),
                            .max_reserved_bytes = arena_->capacity_bytes()},
                           deps)
                 .value();
    session_ = store_->OpenSession({.client_name = "lock bench"}).value();
    ns_ = store_->OpenNamespace(session_, {.model = "lock", .tokens_per_chunk = 16}).value();
    for (uint64_t i = 0; i < chunks_; ++i) Put(i);
    Settle();
  }

  void Put(uint64_t number) {
    PutRequest put{.ns = ns_,
                   .key = BenchKey(number),
                   .shape = {.payload_bytes = static_cast<uint32_t>(payload_.size())}};
    for (;;) {
      ReserveResult reserved = store_->Reserve(session_, put).value();
      if (reserved.outcome == ReserveResult::Outcome::kPresent) return;
      if (reserved.reservation) {
        reserved.reservation.Append(payload_);
        KVKEEP_CHECK(reserved.reservation.Seal({}).ok());
        return;
      }
      store_->Tick();  // everything is dirty: the drives have to come after
      std::this_thread::yield();
    }
  }
  // Returns whether the chunk came from a drive.
  bool Get(uint64_t number) {
    ReadResult read =
        store_->Read(session_, {ns_, BenchKey(number), PartId(0)}, LeaseId(0), false).value();
    if (read.outcome != ReadOutcome::kHit) return false;
    Mutex mu;
    CondVar ready;
    bool is_ready = false;
    read.reader.WhenReady(0, read.reader.shape().pieces(), [&](const absl::Status& status) {
      KVKEEP_CHECK(status.ok());
      MutexLock lock(&mu);
      is_ready = true;
      ready.NotifyAll();
    });
    MutexLock lock(&mu);
    while (!is_ready) ready.Wait(&mu);
    return read.from_g3;
  }
  void Lookup(const std::vector<ChunkKey>& keys) {
    const std::vector<PartId> parts = {PartId(0)};
    KVKEEP_CHECK(store_->Lookup(session_, {.chunks = {ns_, keys, parts}}).ok());
  }
  // Waits until nothing is dirty.
  void Settle() {
    while (store_->snapshot().dirty_chunks > 0) {
      store_->Tick();
      std::this_thread::yield();
    }
  }
  Store& store() { return *store_; }
  uint64_t chunks() const { return chunks_; }

 private:
  const LockAsked asked_;
  const uint64_t chunks_;
  const std::vector<std::byte> payload_;
  ThreadPool copy_{"copy", 2}, index_{"index", 1};
  std::vector<std::unique_ptr<SimulatedDevice>> drives_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Store> store_;
  SessionToken session_;
  NamespaceDigest ns_;
};

// Runs `call` with a number of its own, again and again, on each caller's thread. It returns
// whether the call was of this kind; only such calls are counted. `per_second`: limit of all
// callers together; 0: none.
template <typename Call>
void Measure(const char* kind, LockNode& node, const LockAsked& asked, Call call,
             double per_second = 0) {
  const StoreSnapshot before = node.store().snapshot();
  std::atomic<uint64_t> calls{0}, numbers{0};
  std::vector<std::thread> callers;
  const MonotonicTime began = RealClock()->Now();
  const MonotonicTime until = began + MonotonicTime(static_cast<int64_t>(asked.seconds * 1e9));
  const auto await_turn = [&](uint64_t number) {
    if (per_second == 0) return;
    const double turn = static_cast<double>(number) / per_second;
    const MonotonicTime at = began + MonotonicTime(static_cast<int64_t>(turn * 1e9));
    while (RealClock()->Now() < at) std::this_thread::yield();
  };
  for (int i = 0; i < asked.callers; ++i) {
    callers.emplace_back([&] {
      while (RealClock()->Now() < until) {
        const uint64_t number = numbers++;
        await_turn(number);
        calls += call(number) ? 1 : 0;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  node.Settle();
  const StoreSnapshot after = node.store().snapshot();
  HistogramCounts waits = after.lock_wait;
  for (size_t i = 0; i < waits.counts.size(); ++i) waits.counts[i] -= before.lock_wait.counts[i];
  uint64_t all = 0, below = 0, p99 = 0;
  for (const uint64_t bucket : waits.counts) all += bucket;
  for (size_t i = 0; i < waits.bounds->size(); ++i) {
    below += waits.counts[i];
    p99 = waits.bounds->bound(i);
    if (below * 100 >= all * 99) break;
  }
  const auto each = [&](uint64_t now, uint64_t then) {
    return static_cast<double>(now - then) / static_cast<double>(std::max<uint64_t>(1, calls));
  };
  std::printf("%-7s %8.0f calls/s  %6.2f takes  %8.2f us held a call  wait p99 %6.1f us\n", kind,
              static_cast<double>(calls) / asked.seconds,
              each(after.counters.lock_acquisitions, before.counters.lock_acquisitions),
              each(after.counters.lock_held_ns, before.counters.lock_held_ns) / 1e3,
              static_cast<double>(p99) / 1e3);
  std::fflush(stdout);
}

int Run(const LockAsked& asked) {
  // The store ends with its process: nothing of its threads is waited for.
  LockNode& node = *new LockNode(asked);
  const uint64_t chunks = node.chunks();
  std::printf("%d callers, %d devices, %s, chunks of %lu KiB\n", asked.callers, asked.devices,
              asked.policy.c_str(), asked.chunk_bytes / kKiB);
  const uint64_t hot = std::min<uint64_t>(chunks / 8, 8);
  for (uint64_t i = 0; i < hot; ++i) node.Get(chunks - 1 - i);
  Measure("hit", node, asked,
          [&](uint64_t number) { return !node.Get(chunks - 1 - number % hot); });
  std::vector<ChunkKey> keys;
  for (size_t i = 0; i < kLookupKeys; ++i) keys.push_back(BenchKey(i % chunks));
  Measure(
      "lookup", node, asked,
      [&](uint64_t) {
        node.Lookup(keys);
        return true;
      },
      asked.lookups_per_second);
  Measure("get", node, asked, [&](uint64_t number) { return node.Get(number % chunks); });
  Measure("put", node, asked, [&](uint64_t number) {
    node.Put(chunks + number);
    return true;
  });
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  kvkeep::LockAsked asked;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (more && std::strcmp(argv[i], "--callers") == 0) {
      asked.callers = std::atoi(argv[++i]);
    } else if (more && std::strcmp(argv[i], "--devices") == 0) {
      asked.devices = std::atoi(argv[++i]);
    } else if (more && std::strcmp(argv[i], "--chunk-kib") == 0) {
      asked.chunk_bytes = std::strtoull(argv[++i], nullptr, 10) * kvkeep::kKiB;
    } else if (more && std::strcmp(argv[i], "--mib") == 0) {
      asked.data_bytes = std::strtoull(argv[++i], nullptr, 10) * kvkeep::kMiB;
    } else if (more && std::strcmp(argv[i], "--seconds") == 0) {
      asked.seconds = std::atof(argv[++i]);
    } else if (more && std::strcmp(argv[i], "--lookups") == 0) {
      asked.lookups_per_second = std::atof(argv[++i]);
    } else if (more && std::strcmp(argv[i], "--policy") == 0) {
      asked.policy = argv[++i];
    } else {
      std::fprintf(stderr,
                   "kvkeep-lock-bench [--callers N] [--devices N] [--chunk-kib N] [--mib N] "
                   "[--seconds S] [--lookups PER_SECOND] [--policy NAME]\n");
      return 2;
    }
  }
  const bool good = asked.callers > 0 && asked.devices > 0 && asked.devices <= 64 &&
                    asked.chunk_bytes >= 4 * kvkeep::kKiB &&
                    asked.data_bytes >= 32 * asked.chunk_bytes && asked.seconds > 0;
  if (!good) {
    std::fprintf(stderr, "at least 1 caller, 1 to 64 devices, 32 chunks of 4 KiB or more\n");
    return 2;
  }
  return kvkeep::Run(asked);
}
