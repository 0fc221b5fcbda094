// Threads that put, look up, read, delete and evict the same few chunks. A chunk's bytes tell which
// version was read, and a clock when each came and went.
//
// The threads' notes of versions are relaxed on purpose: they must not give an order that the store
// has to give. A note that is not seen yet only makes the test miss something.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "tests/fakes/sanitized.h"
#include "tests/fakes/seeded_random.h"
#include "tests/fakes/threaded_store.h"
#include "tests/sim/payload.h"

namespace kvkeep {
namespace {

constexpr size_t kNames = 6, kThreads = 4;
constexpr size_t kSteps = kSanitized ? 700 : 4'000;  // of each thread in a round
constexpr uint64_t kMostRounds = 20;
constexpr std::array<uint32_t, kNames> kSizes = {64,      4096,    70'000,
                                                 150'000, 300'000, kPieceBytes + 100};

// Nanoseconds of one clock for all threads; 0: never.
uint64_t Now() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// When the puts of a name were answered STORED, and when a delete that began later had ended.
class History {
 public:
  uint64_t NewVersion() {
    const uint64_t version = next_.fetch_add(1, std::memory_order_relaxed);
    KVKEEP_CHECK(version < versions_.size());
    return version;
  }
  void NoteStored(uint64_t version) { versions_[version].stored.store(1, kRelaxed); }
  std::vector<uint64_t> Stored() const {
    std::vector<uint64_t> stored;
    const uint64_t end = std::min<uint64_t>(next_.load(kRelaxed), versions_.size());
    for (uint64_t v = 0; v < end; ++v) {
      if (versions_[v].stored.load(kRelaxed) != 0) stored.push_back(v);
    }
    return stored;
  }
  void NoteDeleted(const std::vector<uint64_t>& versions, uint64_t at) {
    for (const uint64_t version : versions) {
      uint64_t none = 0;  // the first one counts
      versions_[version].deleted.compare_exchange_strong(none, at, kRelaxed);
    }
  }
  bool WasPut(uint64_t version) const { return version < next_.load(kRelaxed); }
  bool WasDeletedBefore(uint64_t version, uint64_t time) const {
    const uint64_t at = versions_[version].deleted.load(kRelaxed);
    return at != 0 && at < time;
  }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;
  struct Version {
    std::atomic<uint64_t> stored{0}, deleted{0};
  };
  std::atomic<uint64_t> next_{0};
  std::vector<Version> versions_ = std::vector<Version>(kThreads * kSteps);
};

struct Counts {
  uint64_t stored = 0, present = 0, refused = 0, aborted = 0;
  uint64_t hits = 0, misses = 0, from_g3 = 0, leased = 0, deleted_but_leased = 0;
  uint64_t deleted = 0, evicted = 0;
  uint64_t wrong = 0, stale = 0, changed = 0, broken_leases = 0, failed = 0;

  void Add(const Counts& more) {
    using C = Counts;
    for (uint64_t C::*count :
         {&C::stored, &C::present, &C::refused, &C::aborted, &C::hits, &C::misses, &C::from_g3,
          &C::leased, &C::deleted_but_leased, &C::deleted, &C::evicted, &C::wrong, &C::stale,
          &C::changed, &C::broken_leases, &C::failed}) {
      this->*count += more.*count;
    }
  }
};

// A put's bytes: its version, then some that only this version of this name has. Compared in place,
// as making them anew costs much under a sanitizer.
std::span<const std::byte> Rest(uint64_t name, uint64_t version) {
  constexpr size_t kMost = 2 * kMiB, kOffsets = 65'521;
  static const std::vector<std::byte> bytes = MakePayload(0, 0, kMost);
  return std::span(bytes).subspan((version * kNames + name) % kOffsets,
                                  kSizes[name] - sizeof(version));
}

class Worker {
 public:
  Worker(Store* store, std::array<History, kNames>* histories, uint64_t number, uint64_t round)
      : store_(store),
        histories_(*histories),
        ticks_(number == 0),
        random_(round * kThreads + number) {
    session_ = store->OpenSession({.client_name = "worker"}).value();
    ns_ = store->OpenNamespace(session_, {.model = "m", .tokens_per_chunk = 16}).value();
  }

  void Run() {
    for (size_t step = 0; step < kSteps; ++step) {
      if (ticks_ && step % 10 == 0) store_->Tick();
      const uint64_t name = random_.Below(kNames), dice = random_.Below(100);
      if (dice < 35) {
        Put(name);
      } else if (dice < 65) {
        const uint64_t began = Now();
        Read(name, LeaseId(0), began);
      } else if (dice < 85) {
        ReadRun(name);
      } else if (dice < 95) {
        Delete(name);
      } else {
        Evict();
      }
    }
    store_->CloseSession(session_);
  }
  const Counts& counts() const { return counts_; }

 private:
  void Put(uint64_t name) {
    const auto reserved = Reserve(name);
    if (!reserved.ok()) {
      ++counts_.failed;
    } else if (reserved->outcome == ReserveResult::Outcome::kPresent) {
      ++counts_.present;
    } else if (reserved->outcome == ReserveResult::Outcome::kRejected) {
      ++counts_.refused;
    }
  }
  absl::StatusOr<ReserveResult> Reserve(uint64_t name) {
    auto reserved = store_->Reserve(
        session_, {.ns = ns_, .key = MakeKey(name), .shape = {.payload_bytes = kSizes[name]}});
    if (!reserved.ok() || !reserved->reservation) return reserved;
    const uint64_t version = histories_[name].NewVersion();
    reserved->reservation.Append(std::as_bytes(std::span(&version, 1)));
    if (random_.Chance(0.1)) {
      ++counts_.aborted;
      reserved->reservation.Abort();
      return reserved;
    }
    reserved->reservation.Append(Rest(name, version));
    const absl::StatusOr<SealOutcome> sealed = reserved->reservation.Seal({});
    counts_.failed += !sealed.ok();
    if (!sealed.ok()) return reserved;
    if (*sealed == SealOutcome::kStored) histories_[name].NoteStored(version);
    ++(*sealed == SealOutcome::kStored ? counts_.stored : counts_.present);
    return reserved;
  }

  // `began`: no version that was deleted before then may be read.
  void Read(uint64_t name, LeaseId lease, uint64_t began) {
    auto read = store_->Read(session_, {ns_, MakeKey(name), PartId(0)}, lease, random_.Chance(0.2));
    counts_.failed += !read.ok();
    if (!read.ok()) return;
    const bool hit =
        read->outcome == ReadOutcome::kHit && ThreadedStore::AwaitReady(read->reader).ok();
    counts_.broken_leases += !hit && lease != LeaseId(0);
    ++(hit ? counts_.hits : counts_.misses);
    if (!hit) return;
    counts_.from_g3 += read->from_g3;
    const uint64_t version = Judge(name, read->reader);
    const History& history = histories_[name];
    if (!history.WasPut(version)) return;
    counts_.stale += history.WasDeletedBefore(version, began);
    counts_.deleted_but_leased += lease != LeaseId(0) && history.WasDeletedBefore(version, Now());
    // In place, and unchanged while it is held.
    std::this_thread::yield();
    counts_.changed += Judge(name, read->reader) != version;
  }

  // Returns which version all of it is.
  uint64_t Judge(uint64_t name, const ChunkReader& reader) {
    uint64_t version = 0;
    KVKEEP_CHECK(reader.shape().payload_bytes == kSizes[name]);
    const auto first = reader.Payload(0, sizeof(version));
    KVKEEP_CHECK(first.size() == sizeof(version));  // a run is at least a block
    std::memcpy(&version, first.data(), sizeof(version));
    bool same = histories_[name].WasPut(version);
    const std::span<const std::byte> rest = Rest(name, version);
    for (size_t at = 0; same && at < rest.size();) {
      const auto run = reader.Payload(sizeof(version) + at, rest.size() - at);
      same = std::memcmp(run.data(), rest.data() + at, run.size()) == 0;
      at += run.size();
    }
    counts_.wrong += !same;
    return version;
  }

  // Leased chunks are readable, whatever the others do meanwhile.
  void ReadRun(uint64_t first) {
    std::vector<ChunkKey> keys;
    for (uint64_t name = first; name < kNames; ++name) keys.push_back(MakeKey(name));
    const std::vector<PartId> parts = {PartId(0)};
    const uint64_t began = Now();
    const auto found = store_->Lookup(
        session_, {.chunks = {ns_, keys, parts}, .lease_mode = LeaseMode::kLeadingRun});
    counts_.failed += !found.ok();
    if (!found.ok() || found->leased_keys == 0) return;
    for (uint64_t name = first; name < first + found->leased_keys; ++name) {
      ++counts_.leased;
      Read(name, found->lease, began);
    }
    counts_.failed += !store_->Release(session_, found->lease, 0).ok();
  }

  void Delete(uint64_t name) {
    const std::vector<uint64_t> stored = histories_[name].Stored();
    const std::vector<ChunkKey> keys = {MakeKey(name)};
    const std::vector<PartId> parts = {PartId(0)};
    const absl::StatusOr<uint64_t> deleted = store_->Delete(session_, {ns_, keys, parts});
    counts_.failed += !deleted.ok();
    if (!deleted.ok()) return;
    counts_.deleted += *deleted;
    histories_[name].NoteDeleted(stored, Now());
  }

  void Evict() {
    const absl::StatusOr<EvictResult> evicted =
        store_->Evict({.of_g3 = random_.Chance(0.3), .bytes = random_.Between(1, kMiB)});
    counts_.failed += !evicted.ok();
    if (evicted.ok()) counts_.evicted += evicted->chunks;
  }

  Store* const store_;
  std::array<History, kNames>& histories_;
  const bool ticks_;  // one thread does the work of the daemon's maintenance thread
  SeededRandom random_;
  SessionToken session_;
  NamespaceDigest ns_;
  Counts counts_;
};

// All threads on a store of their own.
Counts RunRound(uint64_t round) {
  // All chunks fit into G2, but not together with those that are being put.
  ThreadedStore threaded({.g2_blocks = 1'200, .device_blocks = 4'000, .threads = 2});
  Store& store = threaded.store();
  const auto histories = std::make_unique<std::array<History, kNames>>();
  std::vector<std::unique_ptr<Worker>> workers;
  for (size_t i = 0; i < kThreads; ++i) {
    workers.push_back(std::make_unique<Worker>(&store, histories.get(), i, round));
  }
  std::vector<std::thread> threads;
  for (const auto& worker : workers) threads.emplace_back([&worker] { worker->Run(); });
  for (std::thread& thread : threads) thread.join();
  while (store.snapshot().dirty_chunks > 0) store.Tick();
  store.CheckInvariants();
  const StoreSnapshot end = store.snapshot();
  CHECK(end.g2.leased_bytes == 0);
  CHECK(end.g2.reserved_bytes == 0);
  Counts sum;
  for (const auto& worker : workers) sum.Add(worker->counts());
  return sum;
}

}  // namespace

TEST_CASE("threads on the same chunks read what was stored, whole, and nothing that was deleted") {
  // The scheduler decides how the threads meet, so they go on until everything happened often
  // enough.
  Counts sum;
  uint64_t rarest = 0;
  for (uint64_t round = 0; round < kMostRounds && rarest <= 10; ++round) {
    sum.Add(RunRound(round));
    rarest = std::min({sum.stored, sum.present, sum.aborted, sum.hits, sum.misses, sum.from_g3,
                       sum.leased, sum.deleted_but_leased, sum.deleted, sum.evicted});
  }
  INFO("stored " << sum.stored << " present " << sum.present << " refused " << sum.refused
                 << " aborted " << sum.aborted << " hits " << sum.hits << " misses " << sum.misses
                 << " from G3 " << sum.from_g3 << " leased " << sum.leased << " deleted meanwhile "
                 << sum.deleted_but_leased << " deleted " << sum.deleted << " evicted "
                 << sum.evicted);
  CHECK(sum.wrong == 0);
  CHECK(sum.stale == 0);
  CHECK(sum.changed == 0);
  CHECK(sum.broken_leases == 0);
  CHECK(sum.failed == 0);
  CHECK(rarest > 10);
}

}  // namespace kvkeep
