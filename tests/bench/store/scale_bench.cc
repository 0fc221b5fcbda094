// kvkeep-scale-bench: costs a chunk, from ten thousand chunks to ten million.
//
// Each count runs in a process of its own. It writes records of that many chunks to one device or
// several (the real RocksDB, in a directory each), drops the page cache where that is allowed,
// takes memory and gives it back. Then it starts the store, which serves G2 first while the devices
// join, each on a thread of its own. Images are nowhere: the device takes writes and keeps nothing.
// The last count is where the table's maps have just grown, so that an entry takes the most memory.
//
// It prints the seconds until G2 was served and until all devices had joined, and memory an entry
// (resident after the start, and at its most). It prints CPU times of lookups of 512 keys and of
// puts that are written back. It prints the longest hold of the store's lock, in CPU time of the
// holder: of all holds, which include what the host or an interrupt takes once, and of a tenth of
// the puts (median of ten), which show what the code takes. At last it clears everything, in
// slices, while another thread looks up a key now and then, and prints the wall times of these
// lookups and of the waits for the lock.
//
// --json: an array, which tests/bench/store/scale keeps.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/bench/store/bench_keys.h"
#include "tests/fakes/aliased_arena.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/memory_nvme_device.h"
#include "tests/fakes/null_device.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/check.h"
#include "tiers/base/growing_memory.h"
#include "tiers/base/mutex.h"
#include "tiers/index/rocksdb_index.h"
#include "tiers/store/store.h"

namespace kvkeep {
namespace {

constexpr uint64_t kBlocksPerChunk = 2;  // header and payload
constexpr uint64_t kArenaBlocks = 64 * 1024;
constexpr size_t kPuts = 20'000;
constexpr size_t kRounds = 1000;
constexpr size_t kBatch = 256;
constexpr size_t kParts = 10;  // of the puts
constexpr auto kBetweenLooks = std::chrono::microseconds(50);
// Nine in ten of the 8,192 shards hold more than two thirds of 2,048, and so have just doubled.
constexpr uint64_t kRightAfterGrowth = 11'500'000;

double SecondsOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Returns "VmRSS" and the like of this process.
uint64_t BytesOf(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) {
      return std::strtoull(line.c_str() + field.size() + 1, nullptr, 10) * kKiB;
    }
  }
  return 0;
}

struct Times {
  double p50_us = 0, p99_us = 0, p999_us = 0;

  static Times Of(std::vector<double> took) {
    std::sort(took.begin(), took.end());
    const size_t all = took.size();
    return {took[all / 2], took[all * 99 / 100], took[all * 999 / 1000]};
  }
};

// Measures the CPU time of this thread in each of `rounds` calls.
template <typename Run>
Times Measure(size_t rounds, Run run) {
  std::vector<double> took;
  for (size_t i = 0; i < rounds; ++i) {
    const double before = SecondsOf(CLOCK_THREAD_CPUTIME_ID);
    run(i);
    took.push_back((SecondsOf(CLOCK_THREAD_CPUTIME_ID) - before) * 1e6);
  }
  return Times::Of(std::move(took));
}

// One device: an index in a directory, without images.
struct Place {
  explicit Place(uint64_t chunks)
      : device((chunks * kBlocksPerChunk + 256 * 1024) * kBlockBytes) {}

  void Open(const std::string& dir, uint8_t number, bool create) {
    Uuid uuid;
    uuid.bytes[0] = 1;
    uuid.bytes[1] = number;
    index = OpenRocksDbIndex(dir, uuid, {.create = create, .may_wait = create}).value();
    nvme = std::make_unique<MemoryNvmeDevice>(&device, index.get(), 1);
  }
  StoreDeps::DeviceDeps deps() {
    return {.device = nvme.get(), .index_executor = &executor, .sync_executor = &executor};
  }

  NullDevice device;
  ManualExecutor executor;
  std::unique_ptr<ChunkIndex> index;
  std::unique_ptr<MemoryNvmeDevice> nvme;
};

// A store over this many devices, which are still to come.
class Node {
 public:
  Node(uint64_t chunks, size_t devices) : arena_(BlockCount(kArenaBlocks)) {
    StoreDeps deps{.clock = RealClock(),
                   .random = &random_,
                   .arena = &arena_,
                   .copy_executor = &executor_,
                   .work_clock = ThreadCpuClock()};
    for (size_t i = 0; i < devices; ++i) {
      places_.push_back(std::make_unique<Place>(chunks / devices + 1));
      deps.devices.push_back({.coming = true});
    }
    store_ = Store::Create({.max_chunks = chunks + chunks / 4 + 100'000}, deps).value();
    session_ = store_->OpenSession({.client_name = "bench"}).value();
    ns_ = store_->OpenNamespace(session_, {.model = "bench", .tokens_per_chunk = 16}).value();
  }
  ~Node() { Settle(); }

  // Joins the devices, each on a thread of its own, as a daemon does.
  void Join(const std::string& dir) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < places_.size(); ++i) {
      threads.emplace_back([this, i, &dir] {
        Place& place = *places_[i];
        place.Open(DirOf(dir, i), static_cast<uint8_t>(i), /*create=*/false);
        store_->Attach(i, place.deps(),
                       [](const absl::Status& joined) { KVKEEP_CHECK(joined.ok()); });
        place.executor.RunAll();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  static std::string DirOf(const std::string& dir, size_t device) {
    return dir + "/" + std::to_string(device);
  }
  void Put(uint64_t number) {
    const std::byte payload[1] = {};
    PutRequest put{.ns = ns_, .key = BenchKey(number), .shape = {.payload_bytes = 1}};
    if (number % kLookupKeys != 0) put.parent = BenchKey(number - 1);
    Reservation reservation = std::move(store_->Reserve(session_, put)->reservation);
    KVKEEP_CHECK(static_cast<bool>(reservation));
    reservation.Append(payload);
    KVKEEP_CHECK(reservation.Seal({}).ok());
    executor_.RunAll();
  }
  // Returns how many of the leading keys are in NVMe.
  uint64_t Lookup(const std::vector<ChunkKey>& keys) {
    const std::vector<PartId> parts = {PartId(0)};
    return store_->Lookup(session_, {.chunks = {ns_, keys, parts}})->leading_keys;
  }
  void Settle() {
    bool idle = true;
    do {
      executor_.RunAll();
      idle = executor_.idle();
      for (const auto& place : places_) {
        place->executor.RunAll();
        idle = idle && place->executor.idle();
      }
    } while (!idle || !executor_.idle());
  }
  Store& store() { return *store_; }
  const NamespaceDigest& ns() const { return ns_; }

 private:
  AliasedArena arena_;
  SeededRandom random_{1};
  ManualExecutor executor_;
  std::vector<std::unique_ptr<Place>> places_;
  std::unique_ptr<Store> store_;
  SessionToken session_;
  NamespaceDigest ns_;
};

// Writes records of this many chunks, in turn on each device.
void MakeIndexes(const std::string& dir, uint64_t chunks, size_t devices) {
  const NamespaceDigest ns = Node(1, 0).ns();
  for (size_t device = 0; device < devices; ++device) {
    Place place(chunks / devices + 1);
    std::filesystem::create_directories(Node::DirOf(dir, device));
    place.Open(Node::DirOf(dir, device), static_cast<uint8_t>(device), /*create=*/true);
    uint64_t made = 0;
    for (uint64_t i = device; i < chunks;) {
      IndexBatch batch;
      for (; i < chunks && batch.adds.size() < kBatch; i += devices, ++made) {
        batch.adds.push_back(
            {.id = {ns, BenchKey(i), PartId(0)},
             .shape = {.payload_bytes = 1},
             .incarnation = Incarnation(1),
             .generation = Generation(i + 1),
             .sequence = CommitSequence(made + 1),
             .extents = {{BlockNumber(1 + made * kBlocksPerChunk), BlockCount(kBlocksPerChunk)}}});
      }
      KVKEEP_CHECK(place.index->Commit(batch).ok());
    }
    KVKEEP_CHECK(place.index->Sync({.boot_id = {}, .sequence = CommitSequence(made)}).ok());
  }
}

// Takes memory and gives it back in huge pages, as an earlier process leaves its table's. The host
// of a virtual machine may need ten times as long to give memory that was not used for a while as
// the kernel needs to clear it.
void TouchMemory(uint64_t chunks) {
  const GrowingMemory memory(chunks * 300);
  MemoryToucher::TouchNow({memory.data(), memory.bytes()});
}

// Returns false if that is not allowed here.
bool DropPageCache() {
  sync();
  std::ofstream drop("/proc/sys/vm/drop_caches");
  drop << "3" << std::flush;
  return drop.good();
}

// Measures the wall time of lookups of one key while everything is cleared. Pauses between them, as
// a client does: otherwise most would come right after another one, which took the lock from the
// walk.
Times LookWhileCleared(Node& node, const std::vector<ChunkKey>& keys) {
  std::atomic<bool> looks = false, cleared = false;
  std::vector<double> took;
  std::thread reader([&] {
    Mutex mu;
    CondVar pauses;  // of nobody
    MutexLock lock(&mu);
    for (size_t i = 0; !cleared || took.empty(); ++i) {
      const double before = SecondsOf(CLOCK_MONOTONIC);
      node.Lookup({keys[i % keys.size()]});
      took.push_back((SecondsOf(CLOCK_MONOTONIC) - before) * 1e6);
      looks = true;
      pauses.WaitFor(&mu, kBetweenLooks);
    }
  });
  while (!looks) std::this_thread::yield();
  node.store().Clear(std::nullopt);
  cleared = true;
  reader.join();
  return Times::Of(std::move(took));
}

// Returns the upper bound of the bucket below which this share of all waits since `before` lies.
double WaitUs(const HistogramCounts& before, const HistogramCounts& now, double share) {
  const auto wanted = static_cast<double>(now.count() - before.count()) * share;
  uint64_t seen = 0;
  for (size_t i = 0; i < now.bounds->size(); ++i) {
    seen += now.counts[i] - before.counts[i];
    if (static_cast<double>(seen) >= wanted) return static_cast<double>(now.bounds->bound(i)) / 1e3;
  }
  return static_cast<double>(now.bounds->bound(now.bounds->size() - 1)) / 1e3;
}

void ReportClear(Node& node, const std::vector<ChunkKey>& keys, bool json) {
  const HistogramCounts waits = node.store().snapshot().lock_wait;
  const double begin = SecondsOf(CLOCK_MONOTONIC);
  const Times look = LookWhileCleared(node, keys);
  const double seconds = SecondsOf(CLOCK_MONOTONIC) - begin;
  const double wait_us = WaitUs(waits, node.store().snapshot().lock_wait, 0.999);
  std::printf(json ? ", \"clear_seconds\": %.3f, \"look_while_cleared_p50_us\": %.2f, "
                     "\"look_while_cleared_p99_us\": %.2f, \"look_while_cleared_p999_us\": %.2f, "
                     "\"lock_wait_p999_us\": %.1f}"
                   : "          cleared in %.2f s  a lookup of 1 meanwhile: p50 %.1f p99 %.1f "
                     "p99.9 %.1f us  all waits for the lock: p99.9 below %.1f us\n",
              seconds, look.p50_us, look.p99_us, look.p999_us, wait_us);
}

void Report(const std::string& dir, uint64_t chunks, size_t devices, bool json) {
  const bool cold = DropPageCache();
  const uint64_t before = BytesOf("VmRSS");
  const double begin = SecondsOf(CLOCK_MONOTONIC), begin_cpu = SecondsOf(CLOCK_PROCESS_CPUTIME_ID);
  Node node(chunks, devices);
  const double serves_s = SecondsOf(CLOCK_MONOTONIC) - begin;
  node.Join(dir);
  const double ready_s = SecondsOf(CLOCK_MONOTONIC) - begin;
  const double ready_cpu_s = SecondsOf(CLOCK_PROCESS_CPUTIME_ID) - begin_cpu;
  KVKEEP_CHECK(node.store().snapshot().g3.chunks == chunks);
  const double resident = static_cast<double>(BytesOf("VmRSS") - before);
  const double most = static_cast<double>(BytesOf("VmHWM") - before);
  SeededRandom random(chunks);
  std::vector<std::vector<ChunkKey>> asked(kRounds);
  for (auto& keys : asked) {
    const uint64_t first = random.Below(std::max<uint64_t>(1, chunks - kLookupKeys));
    for (size_t k = 0; k < kLookupKeys; ++k) keys.push_back(BenchKey((first + k) % chunks));
  }
  uint64_t found = 0;
  const Times lookup = Measure(kRounds, [&](size_t i) { found += node.Lookup(asked[i]); });
  KVKEEP_CHECK(found == kRounds * kLookupKeys);
  std::vector<double> holds;  // the longest, of the start and then of each part of the puts
  const auto note_hold = [&] {
    holds.push_back(static_cast<double>(node.store().TakeLongestHoldNs()) / 1e3);
  };
  const Times put = Measure(kPuts, [&](size_t i) {
    if (i % (kPuts / kParts) == 0) note_hold();
    node.Put(chunks + i);
    if (i % 64 == 0) node.Settle();
  });
  node.Settle();
  note_hold();
  const double lock_us = *std::max_element(holds.begin(), holds.end());
  std::sort(holds.begin() + 1, holds.end());
  const double lock_usual_us = holds[1 + kParts / 2];
  const double entries = static_cast<double>(chunks);
  if (json) {
    std::printf(
        "{\"chunks\": %lu, \"devices\": %zu, \"cold\": %s, \"serves_seconds\": %.3f, "
        "\"ready_seconds\": %.3f, \"ready_cpu_seconds\": %.3f, \"bytes_per_entry\": %.1f, "
        "\"bytes_per_entry_most\": %.1f, \"lookup_p50_us\": %.2f, \"lookup_p99_us\": %.2f, "
        "\"put_p50_us\": %.2f, \"put_p99_us\": %.2f, \"lock_us_max\": %.1f, "
        "\"lock_us_usual_max\": %.1f, \"right_after_growth\": %s",
        chunks, devices, cold ? "true" : "false", serves_s, ready_s, ready_cpu_s,
        resident / entries, most / entries, lookup.p50_us, lookup.p99_us, put.p50_us, put.p99_us,
        lock_us, lock_usual_us,
        chunks == kRightAfterGrowth ? "true" : "false");
  } else {
    std::printf(
        "%9lu chunks on %zu  serves G2 in %.3f s, all in %.2f s (%s, %.2f s of CPU)  %4.0f bytes "
        "an entry, %4.0f at most  lookup of %zu: p50 %5.1f p99 %6.1f us  put: p50 %4.1f p99 %5.1f "
        "us  lock at most %.0f us, usually %.0f\n",
        chunks, devices, serves_s, ready_s, cold ? "cold" : "warm", ready_cpu_s,
        resident / entries, most / entries, kLookupKeys, lookup.p50_us, lookup.p99_us, put.p50_us,
        put.p99_us, lock_us, lock_usual_us);
  }
  ReportClear(node, asked[0], json);
  std::fflush(stdout);
}

// Runs in a process of its own, so that memory is that of this step alone.
template <typename Run>
void InChild(Run run) {
  const pid_t child = fork();
  KVKEEP_CHECK(child >= 0);
  if (child == 0) {
    run();
    std::_Exit(0);
  }
  int status = 0;
  KVKEEP_CHECK(waitpid(child, &status, 0) == child);
  KVKEEP_CHECK(status == 0);
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  std::vector<uint64_t> counts;
  std::string scratch = "/var/tmp";
  bool json = false;
  size_t devices = 1;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (more && std::strcmp(argv[i], "--chunks") == 0) {
      counts.push_back(std::strtoull(argv[++i], nullptr, 10));
    } else if (more && std::strcmp(argv[i], "--devices") == 0) {
      devices = std::max<size_t>(1, std::strtoull(argv[++i], nullptr, 10));
    } else if (more && std::strcmp(argv[i], "--scratch") == 0) {
      scratch = argv[++i];
    } else {
      std::fprintf(stderr,
                   "kvkeep-scale-bench [--chunks N]... [--devices N] [--scratch DIR] [--json]\n");
      return 2;
    }
  }
  if (counts.empty()) counts = {10'000, 100'000, 1'000'000, 10'000'000, kvkeep::kRightAfterGrowth};
  const std::filesystem::path dir =
      std::filesystem::path(scratch) / ("kvkeep-scale-" + std::to_string(getpid()));
  if (json) std::printf("[");
  for (const uint64_t chunks : counts) {
    const std::string index = dir / std::to_string(chunks);
    std::filesystem::create_directories(index);
    kvkeep::InChild([&] { kvkeep::MakeIndexes(index, chunks, devices); });
    if (json && chunks != counts.front()) std::printf(",\n ");
    std::fflush(stdout);
    kvkeep::InChild([&] { kvkeep::TouchMemory(chunks); });
    kvkeep::InChild([&] { kvkeep::Report(index, chunks, devices, json); });
    std::filesystem::remove_all(index);
  }
  if (json) std::printf("]\n");
  std::filesystem::remove_all(dir);
}
