// Signals at any time of a daemon's life: while it starts, under load, while it drains.
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <thread>

#include "tests/e2e/engine.h"
#include "tests/fakes/from_environment.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::e2e {
namespace {

using std::chrono::steady_clock;

constexpr milliseconds kPause(1);

// Sends SIGHUP a thousand times a second to the next process of the site, from before its first
// instruction until its end; and SIGTERM once, after that time, if `may_end` allows it.
class Storm {
 public:
  Storm(Site& site, milliseconds until_term, std::function<bool()> may_end)
      : may_end_(std::move(may_end)) {
    std::array<int, 2> ends{-1, -1};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    read_end_ = UniqueFd(ends[0]);
    write_end_ = UniqueFd(ends[1]);
    site.before_exec = [to = ends[1]] {
      sigset_t signals;  // until the daemon waits for them: before, they would just end it
      sigemptyset(&signals);
      for (const int number : {SIGHUP, SIGTERM}) sigaddset(&signals, number);
      sigprocmask(SIG_BLOCK, &signals, nullptr);
      const pid_t self = getpid();
      if (write(to, &self, sizeof(self)) != sizeof(self)) _exit(1);
    };
    thread_ = std::thread([this, until_term] { Run(until_term); });
  }
  ~Storm() {
    stop_ = true;
    write_end_.Reset();  // when no process was started
    thread_.join();
  }
  uint64_t sent() const { return sent_; }

 private:
  void Run(milliseconds until_term) {
    pid_t daemon = 0;
    if (read(read_end_.get(), &daemon, sizeof(daemon)) != sizeof(daemon)) return;
    const UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, daemon, 0)));
    const auto send = [&handle](int number) {
      return syscall(SYS_pidfd_send_signal, handle.get(), number, nullptr, 0) == 0;
    };
    const auto term_at = steady_clock::now() + until_term;
    for (bool told = false; !stop_ && send(SIGHUP); ++sent_) {
      if (!told && steady_clock::now() >= term_at && may_end_()) told = send(SIGTERM);
      std::this_thread::sleep_for(kPause);  // the storm's rate
    }
  }

  const std::function<bool()> may_end_;
  UniqueFd read_end_, write_end_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> sent_{0};
  std::thread thread_;
};

// Puts durable chunks one after the other while a daemon accepts them.
class DurablePuts {
 public:
  explicit DurablePuts(const Site& site, uint64_t first)
      : next_(first), thread_([this, &site] {
          while (!stop_) PutWhileItGoes(site);
        }) {}
  ~DurablePuts() { Stop(); }
  bool any() const { return any_; }
  // Returns the chunks that were acknowledged.
  const std::vector<TestChunk>& Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return stored_;
  }

 private:
  void PutWhileItGoes(const Site& site) {
    try {
      Engine engine(site, {.deadline = client::Deadline(20'000)});
      while (!stop_) {
        const TestChunk chunk{.number = next_++, .bytes = 4000};
        const client::PutStatus status = engine.Put(chunk, {.durable = true}).status;
        if (status == client::PutStatus::kUnfinished) return;
        if (status != client::PutStatus::kStored) continue;
        stored_.push_back(chunk);
        any_ = true;
      }
    } catch (const std::runtime_error&) {
      std::this_thread::sleep_for(kPause);  // for a daemon that is not there
    }
  }

  uint64_t next_;
  std::vector<TestChunk> stored_;
  std::atomic<bool> stop_{false}, any_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE(
    "in a storm of SIGHUP a SIGTERM at any time ends it with 0, and nothing durable is lost") {
  const uint64_t seed = FromEnvironment("KVKEEP_CRASH_SEED", 1);
  SeededRandom random(seed);
  Site site;
  std::vector<TestChunk> stored;
  uint64_t sent = 0;
  const uint64_t cycles = FromEnvironment("KVKEEP_SIGNAL_CYCLES", kSanitized ? 3 : 6);
  for (uint64_t cycle = 0; cycle < cycles; ++cycle) {
    const milliseconds until_term(random.Below(1200));
    INFO("seed " << seed << ", cycle " << cycle << ": SIGTERM after " << until_term.count());
    DurablePuts puts(site, 1 + cycle * 1'000'000);
    // Every other daemon ends at any time, the others not before they have served.
    Storm storm(site, until_term, [&] { return cycle % 2 == 1 || puts.any(); });
    const Ending end = site.StartAndAwaitEnd();
    INFO(end.err);
    CHECK(end.exit_status == 0);
    sent += storm.sent();
    const std::vector<TestChunk>& more = puts.Stop();
    stored.insert(stored.end(), more.begin(), more.end());
  }
  site.Start();
  Engine after(site);
  const size_t hits = after.Hits(stored);
  std::printf("cycles %lu | %lu SIGHUPs, %zu durable puts, %zu lost | wrong %lu\n", cycles, sent,
              stored.size(), stored.size() - hits, after.wrong_bytes);
  CHECK(hits == stored.size());
  CHECK(after.wrong_bytes == 0);
  CHECK_FALSE(stored.empty());
}

}  // namespace kvkeep::e2e
