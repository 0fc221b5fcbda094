#include "client/c/completion_queue.h"

#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>
#include <vector>

using kvkeep::client::CompletionQueue;
using std::chrono::milliseconds;

namespace {

bool Readable(const CompletionQueue& queue) {
  pollfd ready = {.fd = queue.fd(), .events = POLLIN};
  return poll(&ready, 1, 0) == 1;
}

kvkeep_completion Numbered(uintptr_t number) {
  return {.user_data = reinterpret_cast<void*>(number), .op = KVKEEP_OP_GET};
}

}  // namespace

TEST_CASE("the event fd is readable while completions wait and not otherwise") {
  const auto queue = CompletionQueue::Create(3).value();
  for (uintptr_t i = 1; i <= 3; ++i) REQUIRE(queue->Reserve().ok());
  CHECK_FALSE(Readable(*queue));
  for (uintptr_t i = 1; i <= 3; ++i) queue->Complete(Numbered(i));
  kvkeep_completion out[3];
  CHECK(Readable(*queue));
  CHECK(queue->Poll(out, 2) == 2);
  CHECK(out[0].user_data == Numbered(1).user_data);
  CHECK(out[1].user_data == Numbered(2).user_data);
  CHECK(Readable(*queue));
  CHECK(queue->Poll(out, 3) == 1);
  CHECK_FALSE(Readable(*queue));
}

TEST_CASE("what is in flight and what waits share the capacity") {
  const auto queue = CompletionQueue::Create(2).value();
  REQUIRE(queue->Reserve().ok());
  REQUIRE(queue->Reserve().ok());
  CHECK(queue->in_flight() == 2);
  CHECK(absl::IsResourceExhausted(queue->Reserve()));
  queue->Complete(Numbered(1));
  CHECK(queue->in_flight() == 1);
  CHECK(absl::IsResourceExhausted(queue->Reserve()));
  kvkeep_completion out;
  CHECK(queue->Poll(&out, 1) == 1);
  CHECK(queue->Reserve().ok());
  queue->Unreserve();
  CHECK(queue->Reserve().ok());
}

TEST_CASE("many threads complete and many poll, and nothing is lost or seen twice") {
  constexpr uintptr_t kEach = 5'000, kProducers = 3, kConsumers = 3;
  const auto queue = CompletionQueue::Create(KVKEEP_MAX_QUEUE_CAPACITY).value();
  std::vector<std::vector<uintptr_t>> seen(kConsumers);
  std::atomic<uintptr_t> taken{0};
  std::vector<std::thread> threads;
  for (uintptr_t c = 0; c < kConsumers; ++c) {
    threads.emplace_back([&, c] {
      kvkeep_completion out[5];
      // Another consumer may take the last completions, so this waits only shortly.
      for (int idle = 0; taken < kEach * kProducers && idle < 100;) {
        const uint32_t got = queue->Wait(out, 5, milliseconds(200));
        idle = got == 0 ? idle + 1 : 0;
        for (uint32_t i = 0; i < got; ++i) {
          seen[c].push_back(reinterpret_cast<uintptr_t>(out[i].user_data));
        }
        taken += got;
      }
    });
  }
  for (uintptr_t p = 0; p < kProducers; ++p) {
    threads.emplace_back([&, p] {
      for (uintptr_t i = 0; i < kEach; ++i) {
        if (!queue->Reserve().ok()) return;
        queue->Complete(Numbered(p * kEach + i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uintptr_t> all;
  size_t count = 0;
  for (const auto& mine : seen) {
    all.insert(mine.begin(), mine.end());
    count += mine.size();
  }
  CHECK(count == kEach * kProducers);
  CHECK(all.size() == kEach * kProducers);
  CHECK_FALSE(Readable(*queue));
}

// Works as an event loop: empties the queue, then sleeps on the fd. Every completion is the first.
TEST_CASE("a consumer that empties the queue and sleeps is woken for every completion") {
  constexpr uintptr_t kCount = 20'000;
  const auto queue = CompletionQueue::Create(1).value();
  std::atomic<uintptr_t> taken{0};
  std::atomic<bool> gave_up{false};
  std::thread producer([&] {
    for (uintptr_t i = 0; i < kCount; ++i) {
      while (taken < i && !gave_up) std::this_thread::yield();
      if (gave_up || !queue->Reserve().ok()) return;
      queue->Complete(Numbered(i));
    }
  });
  kvkeep_completion out;
  while (taken < kCount) {
    while (queue->Poll(&out, 1) == 1) ++taken;
    pollfd ready = {.fd = queue->fd(), .events = POLLIN};
    if (taken < kCount && poll(&ready, 1, 10'000) != 1) break;
  }
  CHECK(taken == kCount);
  gave_up = true;
  producer.join();
}

TEST_CASE("a completion wakes the one that waits long before its time is up") {
  const auto queue = CompletionQueue::Create(1).value();
  REQUIRE(queue->Reserve().ok());
  std::thread later([&] { queue->Complete(Numbered(1)); });
  kvkeep_completion out;
  CHECK(queue->Wait(&out, 1, milliseconds(3'600'000)) == 1);
  later.join();
}
