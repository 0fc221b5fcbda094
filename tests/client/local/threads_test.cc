// Many threads on one session: which one reads, none starves, nothing gets lost.
#include "tests/client/local/fixture.h"

namespace kvkeep::client {

TEST_CASE("threads that wait and callbacks share a session, and each gets its own answer") {
  LocalFixture f;
  for (uint64_t i = 0; i < 16; ++i) {
    f.daemon.AddChunk("m", Key(absl::StrCat("k", i)), 0, Bytes(1000 + i, i));
  }
  std::atomic<int> wrong{0}, callbacks{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 150; ++i) {
        const uint64_t number = (t * 7 + i) % 16;
        const ChunkKey key = Key(absl::StrCat("k", number));
        if (t % 3 == 0) {  // pipelined
          f.transport->Acquire(f.ns, f.spec, absl::MakeSpan(&key, 1), {}, [&, number](auto got) {
            wrong += !got.ok() || got->chunks[0].payload_bytes != 1000 + number;
            ++callbacks;
          });
          continue;
        }
        auto got = f.Acquire(absl::MakeSpan(&key, 1));
        wrong += !got.ok() || got->chunks[0].payload_bytes != 1000 + number;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(Eventually([&] { return callbacks == 300; }));
  CHECK(wrong == 0);
  CHECK(Eventually([&] { return f.daemon.released().size() == 900; }));
}

TEST_CASE("gets and puts of several threads move right bytes while the daemon restarts") {
  LocalFixture f(Deadline(2'000));
  const std::vector<std::byte> payload = Bytes(200'000, 1);
  f.daemon.AddChunk("m", Key("a"), 0, payload);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, hits{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      std::vector<std::byte> back(payload.size());
      std::span<std::byte> to(back);
      const ChunkKey key = Key("a");
      while (!stop) {
        auto got = f.Get(absl::MakeSpan(&key, 1), {.destinations = absl::MakeSpan(&to, 1)});
        if (got.ok() && got->chunks[0].status == GetStatus::kHit) {
          ++hits;
          wrong += back != payload;
        }
        (void)f.Put({{.key = key, .runs = {payload}}});
      }
    });
  }
  for (uint64_t restart = 0; restart < 3; ++restart) {
    const int before = hits;
    CHECK(Eventually([&] { return hits > before + 20; }));
    f.daemon.Stop();
    f.daemon.Start();
    CHECK(Eventually([&] { return f.transport->stats().sessions_opened >= restart + 2; }));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("gets and puts with callbacks copy on threads of the library") {
  LocalFixture f;
  const std::vector<std::byte> payload = Bytes(100'000, 1);
  std::atomic<int> stored{0}, hits{0};
  for (int i = 0; i < 50; ++i) {
    f.transport->Put(f.ns, f.spec, {{.key = Key(absl::StrCat(i)), .runs = {payload}}}, {},
                     [&](auto put) { stored += put.ok() && put->error.ok(); });
  }
  CHECK(Eventually([&] { return stored == 50; }));
  std::vector<ChunkKey> keys;
  for (int i = 0; i < 50; ++i) keys.push_back(Key(absl::StrCat(i)));
  std::vector<std::vector<std::byte>> back(50, std::vector<std::byte>(payload.size()));
  std::vector<std::span<std::byte>> to(back.begin(), back.end());
  for (int i = 0; i < 50; ++i) {
    f.transport->Get(f.ns, f.spec, absl::MakeSpan(&keys[i], 1),
                     {.destinations = absl::MakeSpan(&to[i], 1)}, [&, i](auto got) {
                       hits += got.ok() && got->chunks[0].status == GetStatus::kHit &&
                               back[i] == payload;
                     });
  }
  CHECK(Eventually([&] { return hits == 50; }));
}

}  // namespace kvkeep::client
