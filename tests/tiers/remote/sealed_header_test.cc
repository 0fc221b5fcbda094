#include "tiers/remote/sealed_header.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

using Page = std::array<std::byte, kHeaderBytes>;

Page PlainPage() {
  Page page{};
  std::fill(page.begin(), page.begin() + 2800, std::byte{'h'});
  return page;
}

Secret SealKey(uint8_t byte) {
  std::array<std::byte, 32> bytes;
  bytes.fill(std::byte{byte});
  return Secret(bytes);
}

}  // namespace

TEST_CASE("a header page that is sealed shows nothing, and opens with its key alone") {
  SeededRandom random(1);
  const Page plain = PlainPage();
  Page page = plain;
  SealHeader(SealKey(1), &random, page);
  CHECK(std::count(page.begin(), page.end(), std::byte{'h'}) < 60);
  Page again = plain;
  SealHeader(SealKey(1), &random, again);
  CHECK(page != again);  // another nonce
  Page other = page;
  CHECK_FALSE(OpenHeader(SealKey(2), other));
  CHECK(other == Page{});
  CHECK(OpenHeader(SealKey(1), page));
  CHECK(page == plain);
}

TEST_CASE("a sealed page with any byte changed does not open") {
  SeededRandom random(1);
  Page sealed = PlainPage();
  SealHeader(SealKey(1), &random, sealed);
  for (size_t at = 0; at < sealed.size(); at += at < 4060 ? 97 : 1) {
    CAPTURE(at);
    Page page = sealed;
    page[at] ^= std::byte{4};
    CHECK_FALSE(OpenHeader(SealKey(1), page));
  }
}

}  // namespace kvkeep
