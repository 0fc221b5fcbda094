#include "tiers/store/fair_mutex.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "tests/fakes/sanitized.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint64_t kTakes = kSanitized ? 200 : 1000;
constexpr uint64_t kHolds = 10'000;

// A thread that takes the lock kTakes times, each time in line, and keeps it until the test's own
// thread is in line; how often is told under the lock.
class Taker {
 public:
  explicit Taker(FairMutex* mu)
      : mu_(mu), thread_([this] {
          for (uint64_t i = 0; i < kTakes; ++i) {
            mu_->LockInLine();
            ++taken_;
            while (!mu_->has_waiters()) std::this_thread::yield();
            mu_->Unlock();
          }
          done_ = true;
        }) {}
  ~Taker() { thread_.join(); }
  uint64_t taken() const { return taken_; }
  bool done() const { return done_; }

 private:
  FairMutex* const mu_;
  std::atomic<uint64_t> taken_ = 0;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

bool IsFree(FairMutex& mu) {
  if (!mu.TryLock()) return false;
  mu.Unlock();
  return true;
}

}  // namespace

TEST_CASE("who stands in line has the lock before one that let go of it and stands in line") {
  FairMutex mu;
  uint64_t yields_to_somebody = 0, passed_by = 0;
  mu.Lock();
  Taker taker(&mu);
  for (uint64_t hold = 0; hold < kHolds || !taker.done(); ++hold) {
    // Each time until the other one is there: else it may come unseen, and one take is not counted.
    while (!mu.has_waiters() && !taker.done()) std::this_thread::yield();
    const uint64_t before = taker.taken();
    const bool somebody = mu.has_waiters();
    mu.Unlock();
    mu.LockInLine();
    yields_to_somebody += somebody;
    passed_by += somebody && taker.taken() == before;
  }
  mu.Unlock();
  CHECK(yields_to_somebody >= kTakes);
  CHECK(passed_by == 0);
}

TEST_CASE("who stands in line is passed by a limited number of times") {
  FairMutex mu;
  uint64_t passed = 0, most_passed = 0, waits = 0;
  mu.Lock();
  Taker taker(&mu);
  uint64_t before = 0;
  while (!taker.done()) {
    // It is in line when this hold begins; from here on it counts how many more there are.
    while (!mu.has_waiters() && !taker.done()) std::this_thread::yield();
    mu.Unlock();
    mu.Lock();
    passed = taker.taken() == before ? passed + 1 : 0;
    waits += taker.taken() != before;
    before = taker.taken();
    most_passed = std::max(most_passed, passed);
  }
  mu.Unlock();
  CHECK(waits >= kTakes - 1);
  CHECK(most_passed <= FairMutex::kMostPassed);
}

TEST_CASE("a lock that is free is taken at once, one that is held is not") {
  FairMutex mu;
  mu.Lock();
  bool free = true;
  std::thread([&] { free = IsFree(mu); }).join();
  CHECK_FALSE(free);
  CHECK_FALSE(mu.has_waiters());
  mu.Unlock();
  CHECK(IsFree(mu));
  mu.LockInLine();  // of nobody
  CHECK_FALSE(mu.has_waiters());
  mu.Unlock();
}

TEST_CASE("what many threads change under the lock is whole, and nobody is left in line") {
  constexpr int kThreads = 6;
  constexpr uint64_t kEach = kSanitized ? 5'000 : 50'000;
  FairMutex mu;
  uint64_t count = 0;
  std::atomic<int> here = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ++here;
      while (here < kThreads) std::this_thread::yield();
      for (uint64_t n = 0; n < kEach; ++n) {
        if (i % 2 == 0) {
          mu.LockInLine();
        } else if (!mu.TryLock()) {
          mu.Lock();
        }
        ++count;
        mu.Unlock();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(count == kThreads * kEach);
  CHECK_FALSE(mu.has_waiters());
  CHECK(IsFree(mu));
}

}  // namespace kvkeep::store_internal
