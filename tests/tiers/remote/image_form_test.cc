// What a bucket's objects may not be: the plain image that a peer sends.
#include <catch2/catch.hpp>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_object_store.h"
#include "tests/tiers/remote/image_in_memory.h"
#include "tiers/remote/bucket_source.h"

namespace kvkeep {

TEST_CASE("an object in the form of a peer's image, or in plain, is not read") {
  const auto [tier, encrypted] = GENERATE(table<Tier, bool>(
      {{Tier::kG2, false}, {Tier::kG4, false}, {Tier::kG2, true}, {Tier::kG4, true}}));
  ManualClock clock;
  ManualExecutor executor;
  SeededRandom random(1);
  MemoryObjects objects;
  BucketSource source({}, KeysOf(0),
                      std::make_unique<MemoryObjectStore>(&objects, &executor, &clock, 1), &clock,
                      &random);
  Image image = Image::Make(source, Chunk(1), 100'000, 3, tier, encrypted);
  source.Write({image.id, image.shape, image.header(), image.memory(),
                [](const absl::Status& status) { CHECK(status.ok()); }});
  executor.RunAll();
  Image read = Empty(image);
  Told told;
  StartRead(source, read, &told);
  executor.RunAll();
  REQUIRE(told.ended(image.shape));
  const bool kept = tier == Tier::kG4 && encrypted;
  CHECK(told.header->ok() == kept);
  CHECK(absl::IsDataLoss(*told.header) == !kept);
  CHECK(source.counters().bad_plain == (kept ? 0 : 1));
}

}  // namespace kvkeep
