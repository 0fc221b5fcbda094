// A waiter for pieces is told once, when the last of them is ready, and costs nothing before.
#include "tiers/store/piece_waiters.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"

namespace kvkeep::store_internal {
namespace {

// Pieces that become ready, and how often each waiter was told.
struct Image {
  explicit Image(size_t count) : ready(count) { waiters.Resize(count); }

  bool IsReady(size_t piece) const { return ready[piece]; }
  size_t Wait(size_t first, size_t end, bool patient = true) {
    told.push_back(0);
    ranges.emplace_back(first, end);
    waiters.Add(
        first, end, patient, [this](size_t piece) { return IsReady(piece); },
        [this, number = told.size() - 1](const absl::Status&) { ++told[number]; });
    return told.size() - 1;
  }
  // Number of waiters that were checked.
  size_t Come(size_t piece, bool end_there = false) {
    ready[piece] = true;
    PieceWaiters::Callbacks now;
    const size_t looked_at = waiters.OnReady(
        piece, end_there, [this](size_t one) { return IsReady(one); }, &now);
    for (auto& one : now) std::move(one)(absl::OkStatus());
    return looked_at;
  }

  std::vector<bool> ready;
  PieceWaiters waiters;
  std::vector<std::pair<size_t, size_t>> ranges;
  std::vector<int> told;
};

}  // namespace

TEST_CASE("a piece that comes looks at nobody who waits for others") {
  Image image(256);
  for (size_t piece = 0; piece < 256; ++piece) {
    for (int i = 0; i < 100; ++i) image.Wait(piece, piece + 1);
  }
  image.Wait(0, 256);
  size_t looked_at = 0;
  for (size_t piece = 0; piece < 255; ++piece) {
    CHECK(image.Come(piece) == 100);
    looked_at += 100;
    CHECK(std::count(image.told.begin(), image.told.end(), 1) == static_cast<int>(looked_at));
  }
  CHECK(image.Come(255) == 101);
  CHECK(std::count(image.told.begin(), image.told.end(), 1) == 25'500);  // the end is not there
  auto rest = image.waiters.TakeAll();
  CHECK(rest.size() == 101);
  for (auto& one : rest) std::move(one)(absl::OkStatus());
  CHECK(std::all_of(image.told.begin(), image.told.end(), [](int times) { return times == 1; }));
}

TEST_CASE("whatever the order of the pieces, each waiter is told when the last of its own came") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    SeededRandom random(seed);
    const size_t pieces = random.Between(1, 20);
    const bool end_there = random.Chance(0.5);
    Image image(pieces);
    std::vector<size_t> coming(pieces);
    for (size_t i = 0; i < pieces; ++i) coming[i] = i;
    for (size_t i = pieces; i > 1; --i) std::swap(coming[i - 1], coming[random.Below(i)]);
    const auto complete = [&](const std::pair<size_t, size_t>& range) {
      for (size_t piece = range.first; piece < range.second; ++piece) {
        if (!image.ready[piece]) return false;
      }
      return range.second < pieces || end_there;
    };
    for (const size_t piece : coming) {
      for (uint64_t i = random.Below(5); i > 0; --i) {
        const size_t first = random.Below(pieces);
        const size_t end = random.Between(first + 1, pieces);
        if (!complete({first, end})) image.Wait(first, end);
      }
      image.Come(piece, end_there);
      for (size_t i = 0; i < image.told.size(); ++i) {
        REQUIRE(image.told[i] == complete(image.ranges[i]));
      }
    }
    const size_t left = std::count(image.told.begin(), image.told.end(), 0);
    CHECK(image.waiters.TakeAll().size() == left);
    CHECK((!end_there || left == 0));
  }
}

TEST_CASE("those that are not patient may go before their pieces come, the others stay") {
  Image image(3);
  const size_t patient = image.Wait(0, 2), late = image.Wait(0, 2, false);
  const size_t all = image.Wait(0, 3, false);
  for (auto& one : image.waiters.TakeImpatient()) std::move(one)(absl::OkStatus());
  CHECK(image.told[late] == 1);
  CHECK(image.told[all] == 1);
  CHECK(image.told[patient] == 0);
  for (size_t piece = 0; piece < 3; ++piece) image.Come(piece, true);
  CHECK(image.told[patient] == 1);
  CHECK(image.told[late] == 1);
}

}  // namespace kvkeep::store_internal
