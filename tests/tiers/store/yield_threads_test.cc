// A call that takes the store's lock in slices, and another thread that waits for it meanwhile.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/fakes/manual_executor.h"
#include "tests/fakes/memory_arena.h"
#include "tests/fakes/seeded_random.h"
#include "tests/sim/payload.h"
#include "tests/tiers/store/sleeping_thread.h"
#include "tiers/base/check.h"
#include "tiers/store/store.h"

namespace kvkeep {
namespace {

constexpr uint64_t kChunks = 10'000;
constexpr int kRounds = 1000;

// The clock of a store in which one thread walks and another waits. The store reads it under its
// lock, which is where the walker lets the other one in and sees it wait.
class Watched final : public Clock {
 public:
  MonotonicTime Now() const override {
    if (std::this_thread::get_id() == walker_) {
      OnWalker();
    } else if (waits_) {
      // Under the lock: a kNotMeasured hold reads no clock before.
      waits_ = false;
      if (slices_ > 1) ++late_;
    }
    return RealClock()->Now();
  }
  uint64_t UnixMicros() const override { return RealClock()->UnixMicros(); }

  void Walk(std::thread::id walker, pid_t waiter) {
    waiter_ = waiter;
    walker_ = walker;
  }
  void EndWalk() {
    walker_ = std::thread::id();
    over_ = true;
  }
  void OnSlice() {
    ++slices_;
    looks_ = 0;
  }
  // For the waiter: returns false if the walk is over, else it has to call the store now.
  bool Come() {
    while (!come_ && !over_) std::this_thread::yield();
    return come_.exchange(false);
  }
  int rounds() const { return rounds_; }
  int late() const { return late_; }  // came in after more than the slice that it saw

 private:
  // The first read of the time after a slice may be before the lock, the second is under it.
  void OnWalker() const {
    if (++looks_ != 2 || waits_ || rounds_ == kRounds) return;
    ++rounds_;
    slices_ = 0;
    waits_ = true;
    come_ = true;
    // Seen three times, as other waits are short sleeps too.
    for (int seen = 0; seen < 3; seen = Sleeps(waiter_) ? seen + 1 : 0) std::this_thread::yield();
  }

  std::atomic<std::thread::id> walker_{std::thread::id()};
  std::atomic<pid_t> waiter_ = 0;
  std::atomic<bool> over_ = false;
  mutable std::atomic<bool> come_ = false, waits_ = false;
  mutable std::atomic<int> rounds_ = 0, late_ = 0, slices_ = 0, looks_ = 0;
};

}  // namespace

TEST_CASE("who waits for the lock while a call takes it slice by slice gets in at the next") {
  Watched clock;
  MemoryArena arena(BlockCount(2 * kChunks), BlockCount(2 * kChunks));
  ManualExecutor executor;
  SeededRandom random(1);
  auto store =
      Store::Create({.max_chunks = kChunks, .max_reserved_bytes = 2 * kChunks * kBlockBytes},
                    {.clock = &clock,
                     .random = &random,
                     .arena = &arena,
                     .copy_executor = &executor,
                     .between_slices = [&] { clock.OnSlice(); },
                     .hold_work = 1})
          .value();
  const SessionToken session = store->OpenSession({.client_name = "test"}).value();
  const NamespaceDigest ns =
      store->OpenNamespace(session, {.model = "test", .tokens_per_chunk = 16}).value();
  const std::byte payload[1] = {};
  for (uint64_t i = 0; i < kChunks; ++i) {
    ReserveResult put =
        store->Reserve(session, {.ns = ns, .key = MakeKey(i), .shape = {.payload_bytes = 1}})
            .value();
    put.reservation.Append(payload);
    KVKEEP_CHECK(put.reservation.Seal({}).ok());
  }
  std::atomic<pid_t> waiter = 0;
  uint64_t came = 0;
  std::thread other([&] {
    waiter = static_cast<pid_t>(syscall(SYS_gettid));
    for (; clock.Come(); ++came) store->TakeLongestHoldNs();
  });
  while (waiter == 0) std::this_thread::yield();
  clock.Walk(std::this_thread::get_id(), waiter);
  CHECK(store->Clear(ns) == kChunks);
  clock.EndWalk();
  other.join();
  CHECK(clock.rounds() == kRounds);
  CHECK(came >= kRounds - 1);
  CHECK(clock.late() <= kRounds / 100);
}

}  // namespace kvkeep
