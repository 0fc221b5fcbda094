// Damaged bytes on a device are found before they are served, and only they are lost.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/e2e/device_bytes.h"
#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;
using client::PutStatus;

// Bad and good chunks on the device of a small daemon, none of them in G2.
struct Corruption {
  Corruption() : site({.g2 = "32MiB"}), engine((site.Start(), site)) {
    REQUIRE(engine.PutAll(bad));
    REQUIRE(engine.PutAll(good));
    REQUIRE(site.AwaitClean());
    PushOut();
    fd = open(site.path("nvme0/data.000").c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0);
  }
  ~Corruption() { close(fd); }

  // Floods G2 until none of these chunks is in it.
  void PushOut() {
    REQUIRE(engine.PutAll(Chunks(next_flood, 12, 4 << 20)));
    next_flood += 12;
    REQUIRE(site.AwaitClean());
    REQUIRE(engine.Find(bad).g2 + engine.Find(good).g2 == 0);
    REQUIRE(engine.Find(bad).g3 == bad.size());
  }

  const std::vector<TestChunk> bad = Chunks(1, 4, (2 << 20) + 5000);
  const std::vector<TestChunk> good = Chunks(11, 4, (2 << 20) + 5000);
  uint64_t next_flood = 1000;
  Site site;
  Engine engine;
  int fd = -1;
};

TEST_CASE("an image overwritten on the device is answered CORRUPT, counted, gone, and put anew") {
  Corruption c;
  const auto payload_of = [&](int i) { return FindPayload(c.fd, c.bad[i]); };
  Overwrite(c.fd, payload_of(0), 1);                                    // one byte at the beginning
  Overwrite(c.fd, payload_of(1) + (2 << 20) + 4999, 1);                 // the last byte
  Overwrite(c.fd, payload_of(2) - static_cast<off_t>(kBlock), kBlock);  // the header page
  Overwrite(c.fd, payload_of(3) - static_cast<off_t>(kBlock), c.bad[3].bytes);  // nearly all

  for (size_t i = 0; i < c.bad.size(); ++i) {
    INFO("chunk " << i);
    CHECK(c.engine.Get(c.bad[i]) == GetStatus::kCorrupt);
    // The answer comes with the first bad piece; the chunk goes when the last read has returned.
    CHECK(Eventually([&] { return c.site.Counter("corrupt_chunks") == i + 1; }));
    CHECK(c.engine.Get(c.bad[i]) == GetStatus::kMiss);
  }
  CHECK(c.engine.Find(c.bad).any == 0);
  CHECK(c.engine.Hits(c.good) == c.good.size());
  CHECK(c.site.Status().devices(0).state() == "ok");  // the device answered, so it is not at fault

  for (const TestChunk& chunk : c.bad) CHECK(c.engine.Put(chunk).status == PutStatus::kStored);
  REQUIRE(c.site.AwaitClean());
  CHECK(c.engine.Hits(c.bad) == c.bad.size());
  c.PushOut();
  CHECK(c.engine.Hits(c.bad) == c.bad.size());
  CHECK(c.engine.Hits(c.good) == c.good.size());
  CHECK(c.engine.wrong_bytes == 0);
  CHECK(c.site.Counter("corrupt_chunks") == c.bad.size());
}

TEST_CASE("a chunk found bad is still gone after kill -9") {
  Corruption c;
  Overwrite(c.fd, FindPayload(c.fd, c.bad[0]) + 100, 8);
  CHECK(c.engine.Get(c.bad[0]) == GetStatus::kCorrupt);
  REQUIRE(Eventually([&] { return c.site.Counter("corrupt_chunks") == 1; }));
  REQUIRE(c.site.AwaitKept());
  c.site.Kill();
  c.site.Start();
  Engine after(c.site);
  CHECK(after.Get(c.bad[0]) != GetStatus::kHit);
  CHECK(after.Hits(c.good) == c.good.size());
  // Found bad once more it goes when its last read has returned: a put before that is answered
  // PRESENT.
  REQUIRE(Eventually([&] { return after.Find({c.bad[0]}).any == 0; }));
  CHECK(after.Put(c.bad[0]).status == PutStatus::kStored);
  CHECK(after.Hits(c.bad) == c.bad.size());
}

TEST_CASE("under a lease a bad chunk is no hit either, and the lease goes on for the others") {
  Corruption c;
  Overwrite(c.fd, FindPayload(c.fd, c.bad[1]), 100);
  auto found = c.engine.client().Lookup(c.engine.ns(), KeysOf(c.bad),
                                        {.lease = client::LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  REQUIRE(found->leased_keys == c.bad.size());
  // The lease has it read ahead, so it may be found bad and gone before the get comes.
  const GetStatus got = c.engine.Get(c.bad[1], &found->lease, 1);
  CHECK((got == GetStatus::kCorrupt || got == GetStatus::kMiss));
  for (const uint32_t i : {0u, 2u, 3u}) {
    CHECK(c.engine.Get(c.bad[i], &found->lease, i) == GetStatus::kHit);
  }
  found->lease.Release();
  CHECK(Eventually([&] { return c.site.Status().g2().leased_bytes() == 0; }));
  REQUIRE(Eventually([&] { return c.engine.Find(c.bad).any == c.bad.size() - 1; }));
  CHECK(c.engine.Put(c.bad[1]).status == PutStatus::kStored);
  CHECK(c.engine.Hits(c.bad) == c.bad.size());
}

}  // namespace
}  // namespace kvkeep::e2e
