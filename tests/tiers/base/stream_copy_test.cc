#include "tiers/base/stream_copy.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {

TEST_CASE("StreamCopy copies what it is given and touches nothing else, wherever both lie") {
  SeededRandom random(1);
  std::vector<std::byte> source(kMiB);
  random.Fill(source);
  constexpr std::byte kUntouched{0xa5};
  for (int round = 0; round < 200; ++round) {
    const size_t most = random.Between(0, 1) == 0 ? 2 * kStreamBytes : kMiB / 2;
    const size_t bytes = random.Between(0, most);
    const size_t from = random.Between(0, 5000), at = random.Between(0, 5000);
    std::vector<std::byte> target(at + bytes + 5000, kUntouched);
    const std::byte* const ahead[] = {nullptr, source.data(), source.data() + source.size()};
    StreamCopy(target.data() + at, std::span(source).subspan(from, bytes),
               ahead[random.Between(0, 2)]);
    INFO("bytes " << bytes << " from " << from << " to " << at);
    REQUIRE(std::equal(source.begin() + static_cast<ptrdiff_t>(from),
                       source.begin() + static_cast<ptrdiff_t>(from + bytes),
                       target.begin() + static_cast<ptrdiff_t>(at)));
    const auto untouched = [&](auto begin, auto end) {
      return std::all_of(begin, end, [](std::byte b) { return b == kUntouched; });
    };
    REQUIRE(untouched(target.begin(), target.begin() + static_cast<ptrdiff_t>(at)));
    REQUIRE(untouched(target.begin() + static_cast<ptrdiff_t>(at + bytes), target.end()));
  }
}

}  // namespace kvkeep
