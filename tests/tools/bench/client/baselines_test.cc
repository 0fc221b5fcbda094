#include "tools/bench/client/baselines.h"

#include <catch2/catch.hpp>

#include "tiers/base/units.h"

namespace kvkeep::bench {

TEST_CASE("shared pages are all there, writable, and as large as asked for") {
  auto pages = SharedPages::Create(3 * kMiB, "");
  REQUIRE(pages.ok());
  REQUIRE(pages->memory().size() == 4 * kMiB);
  pages->memory().front() = std::byte{1};
  pages->memory().back() = std::byte{2};
  CHECK(pages->huge_page_bytes() <= pages->memory().size());
  CHECK_FALSE(SharedPages::Create(kMiB, "/no/such/mount").ok());
}

TEST_CASE("a copy counts what it copied, on one thread and on two") {
  auto copy = ColdCopy::Create(8 * kMiB, "");
  REQUIRE(copy.ok());
  for (int threads : {1, 2}) {
    const Measured measured = (*copy)->Run(kMiB, threads, 0.01);
    CHECK(measured.ops >= static_cast<uint64_t>(threads));
    CHECK(measured.bytes == measured.ops * kMiB);
    CHECK(measured.latency.count() == measured.ops);
    CHECK(measured.seconds >= 0.01);
    CHECK(measured.client_cpu_seconds > 0);
  }
}

TEST_CASE("a ping-pong answers every request, at any depth, in one packet or several") {
  for (const MessageSizes sizes :
       {MessageSizes{100, 60}, MessageSizes{16440, 1088}, MessageSizes{200'000, 150'000}}) {
    auto partner = PingPong::Start(sizes);
    REQUIRE(partner.ok());
    for (int depth : {1, 2}) {
      const auto measured = (*partner)->Run(depth, 0.01);
      REQUIRE(measured.ok());
      CHECK(measured->ops >= static_cast<uint64_t>(depth));
      CHECK(measured->latency.count() == measured->ops);
      CHECK(measured->latency.min_ns() > 0);
    }
  }
  auto partner = PingPong::Start({64, 64});
  REQUIRE(partner.ok());
  CHECK(absl::IsInvalidArgument((*partner)->Run(0, 0.01).status()));
}

}  // namespace kvkeep::bench
