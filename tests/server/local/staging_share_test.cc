// The share of the staging memory that a session gets.
#include "server/local/staging_share.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/fakes/scoped_page_bytes.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

uint64_t Share(const StagingWish& wish, const StagingUse& use) {
  return StagingShare(wish, {&use, 1});
}

StagingWish First(uint64_t chunk_bytes = kMiB) {
  return {.bytes = 4 * kMiB, .chunk_bytes = chunk_bytes, .most_bytes = kGiB, .shares = true};
}

StagingWish More(uint64_t bytes) {
  return {.bytes = bytes, .chunk_bytes = kMiB, .most_bytes = kGiB, .named = true, .shares = true};
}

}  // namespace

TEST_CASE("staging: whoever came first leaves room for who comes next") {
  StagingUse use{.limit_bytes = 256 * kMiB};
  CHECK(Share(First(), use) == 4 * kMiB);
  CHECK(Share(More(256 * kMiB), use) == 256 * kMiB);  // alone
  const StagingUse second{.limit_bytes = 256 * kMiB, .held_bytes = 4 * kMiB, .sessions = 1};
  CHECK(Share(More(255 * kMiB), second) == RoundUp(256 * kMiB / 3, PageBytes()));
  // Each takes all it can, one after the other: every session gets some before the limit is spent.
  for (; use.sessions < 32; ++use.sessions) {
    const uint64_t share = Share(First(), use);
    INFO(use.sessions << " others have " << use.held_bytes);
    REQUIRE(share >= 2 * kMiB);
    CHECK(share <= 4 * kMiB);
    use.held_bytes += share;
  }
}

TEST_CASE("staging: a part is smaller the more sessions have some, but a chunk always fits") {
  const StagingUse use{.limit_bytes = 64 * kMiB, .held_bytes = 32 * kMiB, .sessions = 30};
  CHECK(Share(More(16 * kMiB), use) == 2 * kMiB);
  StagingWish large = More(16 * kMiB);
  large.chunk_bytes = 8 * kMiB;
  CHECK(Share(large, use) == 8 * kMiB + PageBytes());  // with its word
}

TEST_CASE("staging: less than a chunk is nothing to a client that can do without") {
  const StagingUse use{.limit_bytes = 64 * kMiB, .held_bytes = 64 * kMiB - kMiB, .sessions = 3};
  CHECK(Share(First(), use) == 0);
  CHECK(LeastStaging(First()) == kMiB + PageBytes());
  CHECK(Share(First(kMiB - kBlockBytes), use) == kMiB);
  CHECK(Share(First(0), use) == kMiB);  // sizes vary
  const StagingUse full{.limit_bytes = 64 * kMiB, .held_bytes = 80 * kMiB, .sessions = 3};
  CHECK(Share(First(0), full) == 0);
}

TEST_CASE("staging: the smallest limit counts, and a session's own") {
  // Sessions of other tenants take room, but make no part smaller.
  const std::vector<StagingUse> uses = {
      {.limit_bytes = 256 * kMiB, .held_bytes = 250 * kMiB, .sessions = 100, .tenants = true},
      {.limit_bytes = 32 * kMiB, .sessions = 2}};
  CHECK(StagingShare(More(64 * kMiB), uses) == 6 * kMiB);
  StagingWish capped = More(64 * kMiB);
  capped.most_bytes = 3 * kMiB;
  CHECK(StagingShare(capped, uses) == 3 * kMiB);
}

TEST_CASE("staging: clients that cannot share get what they name, or a quarter of what is left") {
  const StagingUse use{.limit_bytes = 256 * kMiB, .held_bytes = 128 * kMiB, .sessions = 9};
  StagingWish old{.bytes = 64 * kMiB, .chunk_bytes = kMiB, .most_bytes = kGiB};
  CHECK(Share(old, use) == 32 * kMiB);
  old.chunk_bytes = 40 * kMiB;
  CHECK(Share(old, use) == 40 * kMiB);
  old.named = true;
  CHECK(Share(old, use) == 64 * kMiB);
  old.bytes = kGiB;
  CHECK(Share(old, use) == 128 * kMiB);
}

TEST_CASE("staging: what is counted is what the kernel takes, pages however large they are") {
  const ScopedPageBytes large(64 * kKiB);
  const StagingUse use{.limit_bytes = kMiB + 60 * kKiB};
  StagingWish wish{.bytes = 4096, .most_bytes = kGiB, .named = true};
  CHECK(Share(wish, use) == 64 * kKiB);
  wish.bytes = 100 * kKiB;
  CHECK(Share(wish, use) == 128 * kKiB);
  wish.bytes = 2 * kMiB;
  CHECK(Share(wish, use) == kMiB);
  CHECK(LeastStaging(First(8 * kKiB)) == 64 * kKiB);
  CHECK(LeastStaging(First(64 * kKiB)) == 128 * kKiB);
  CHECK(Share(First(), {.limit_bytes = kMiB + 60 * kKiB, .held_bytes = 64 * kKiB}) == 0);
}

}  // namespace kvkeep
