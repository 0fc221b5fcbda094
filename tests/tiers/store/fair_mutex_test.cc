#include "tiers/store/fair_mutex.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "tests/fakes/sanitized.h"
#include "tests/tiers/store/sleeping_thread.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint64_t kTakes = kSanitized ? 200 : 1000;
constexpr uint64_t kHolds = 10'000;

// A thread that takes the lock kTakes times, each time in line, and keeps it until the test's own
// thread is in line. It reports the number of takes under the lock.
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

// Waits until it sleeps, as a thread does that waits for the lock. Seen three times, as other waits
// are short sleeps too.
void AwaitSleep(const std::atomic<pid_t>& thread) {
  while (thread == 0) std::this_thread::yield();
  for (int seen = 0; seen < 3; seen = Sleeps(thread) ? seen + 1 : 0) std::this_thread::yield();
}

}  // namespace

TEST_CASE("who stands in line has the lock before one that let go of it and stands in line") {
  FairMutex mu;
  uint64_t yields_to_somebody = 0, passed_by = 0;
  mu.Lock();
  Taker taker(&mu);
  for (uint64_t hold = 0; hold < kHolds || !taker.done(); ++hold) {
    // Waits each time for the other one: otherwise it may come unseen, and one take is not counted.
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
    // It is in line when this hold begins; from here on it counts further takes.
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

TEST_CASE("within a turn all others come in but those who wait for a turn, who have the next one") {
  constexpr int kHoldsOfTurn = 1000;
  FairMutex mu;
  std::atomic<pid_t> id = 0;
  bool came_in = false, had_turn = false;
  mu.LockForTurn();
  std::thread waits_for_turn([&] {
    id = static_cast<pid_t>(syscall(SYS_gettid));
    mu.LockForTurn();
    had_turn = true;
    mu.EndTurn();
    mu.Unlock();
  });
  AwaitSleep(id);
  std::thread comes_in([&] {
    mu.Lock();
    came_in = true;
    mu.Unlock();
  });
  for (int hold = 0; hold < kHoldsOfTurn || !came_in; ++hold) {
    mu.Unlock();
    std::this_thread::yield();
    mu.LockInLine();
    if (had_turn) break;
  }
  CHECK(came_in);
  CHECK_FALSE(had_turn);
  mu.EndTurn();
  mu.Unlock();
  comes_in.join();
  waits_for_turn.join();
  CHECK(had_turn);
  CHECK_FALSE(mu.has_waiters());
  CHECK(IsFree(mu));
}

TEST_CASE("who waits for a turn has it though others stand in line all the time") {
  FairMutex mu;
  std::atomic<bool> over = false;
  uint64_t turns = 0;
  std::vector<std::thread> in_line;
  for (int i = 0; i < 2; ++i) {
    in_line.emplace_back([&] {
      while (!over) {
        mu.LockInLine();
        // Waits until the other one stands in line: the lock is never free.
        while (!mu.has_waiters() && !over) std::this_thread::yield();
        mu.Unlock();
      }
    });
  }
  for (; turns < 3; ++turns) {
    mu.LockForTurn();
    mu.EndTurn();
    mu.Unlock();
  }
  over = true;
  for (std::thread& thread : in_line) thread.join();
  CHECK(IsFree(mu));
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
        if (i % 3 == 2) {
          mu.LockForTurn();
          if (n % 8 != 0) {
            mu.Unlock();
            mu.LockInLine();
          }
          mu.EndTurn();
        } else if (i % 2 == 0) {
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
