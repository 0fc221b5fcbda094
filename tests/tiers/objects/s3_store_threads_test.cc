// An S3Store over real connections, used by several threads at once, as copy threads do.
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/seeded_random.h"
#include "tests/fakes/served_bucket.h"
#include "tests/tiers/objects/scripted_bucket.h"
#include "tiers/base/crc32c.h"
#include "tiers/objects/curl_engine.h"
#include "tiers/objects/stoppable_store.h"

namespace kvkeep {

TEST_CASE("threads put and get at once, and all is there as it was put") {
  constexpr int kThreads = 4, kEach = 40;
  const auto keys = std::make_shared<const S3Keys>(S3Keys{"ID", SecretText("secret"), "", {}});
  FakeS3 bucket(RealClock(), keys);
  ScriptedServer server(
      [&](ServedConnection& connection, int) { ServeBucket(bucket, connection); });
  S3Credentials credentials(
      std::make_unique<SetKeySource>(std::make_shared<std::string>("secret")), RealClock(),
      RealRandom());
  credentials.Tick();
  auto store = std::make_unique<StoppableStore>(std::make_unique<S3Store>(
      S3Urls::Make({.endpoints = {server.url("")}, .bucket = "bucket"}).value(), S3StoreOptions{},
      CurlEngine::Make({}, RealClock()).value(), &credentials, RealClock(), RealRandom()));
  const std::string body = LongText(300'000);
  std::atomic<int> stored{0}, right{0};
  Mutex mu;
  CondVar all_ended;
  int ended = 0;
  const auto end = [&] {
    MutexLock lock(&mu);
    if (++ended == kThreads * kEach) all_ended.NotifyAll();
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const std::string name = absl::StrCat("a/", t, "-", i);
        store->Put({.name = name,
                    .body = {AsBytes(body).first(4096), AsBytes(body).subspan(4096)},
                    .crc32c = Crc32c(AsBytes(body)),
                    .if_absent = true},
                   [&, name](const ObjectAnswer& answer) {
                     if (!answer.ok()) return end();
                     ++stored;
                     auto sink = std::make_shared<TextObjectSink>();
                     store->Get({.name = name}, sink.get(), [&, sink](const ObjectAnswer& got) {
                       right += got.ok() && sink->text == body;
                       end();
                     });
                   });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  {
    MutexLock lock(&mu);
    while (ended < kThreads * kEach) all_ended.Wait(&mu);
  }
  store = nullptr;
  CHECK(stored == kThreads * kEach);
  CHECK(right == kThreads * kEach);
}

}  // namespace kvkeep
