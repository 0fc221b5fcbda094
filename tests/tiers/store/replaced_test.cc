#include "tiers/store/replaced.h"

#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "tests/fakes/seeded_random.h"
#include "tests/sim/payload.h"

namespace kvkeep::store_internal {
namespace {

ChunkId IdOf(uint64_t name) { return {{}, MakeKey(name), PartId(0)}; }

KnownRecord OneBlock() { return {.shape = {.payload_bytes = 1}, .sequence = CommitSequence(7)}; }

ExtentList At(uint64_t block) {
  return {Extent{BlockNumber(block), OneBlock().shape.blocks()}};
}

}  // namespace

TEST_CASE("a replaced record is held, then kept, then taken") {
  ReplacedRecords records;
  const ReplacedAt at{IdOf(1), 2};
  CHECK(records.Find(at) == nullptr);
  records.Hold(at, ChunkSlot(5));
  records.CheckInvariants();
  CHECK(records.Find(at)->holder == ChunkSlot(5));
  CHECK(records.HasAny(IdOf(1)));
  CHECK(!records.AnyKept(2, std::nullopt).has_value());
  records.Keep(at, TenantId(3), At(10), OneBlock());
  records.CheckInvariants();
  CHECK((records.AnyKept(2, std::nullopt) == at));
  CHECK((records.AnyKept(2, TenantId(3)) == at));
  CHECK(!records.AnyKept(2, TenantId(4)).has_value());
  CHECK(!records.AnyKept(1, std::nullopt).has_value());
  const Replaced taken = records.Take(at);
  CHECK(taken.owner == TenantId(3));
  CHECK((taken.extents == At(10)));
  CHECK(taken.record.sequence == CommitSequence(7));
  CHECK(records.all().empty());
  records.CheckInvariants();
}

TEST_CASE("a replaced record that is only held goes with who holds it") {
  ReplacedRecords records;
  records.Hold({IdOf(1), 0}, ChunkSlot(5));
  records.Drop({IdOf(1), 0});
  CHECK(!records.HasAny(IdOf(1)));
  records.CheckInvariants();
}

TEST_CASE("replaced records are found by chunk, and by device and owner") {
  const uint64_t seed = GENERATE(1, 2, 3);
  INFO("seed " << seed);
  SeededRandom random(seed);
  ReplacedRecords records;
  std::map<ReplacedAt, std::optional<TenantId>> model;  // no owner: held
  const auto any_kept = [&](uint16_t device, std::optional<TenantId> owner) {
    for (const auto& [at, of] : model) {
      if (at.device == device && of.has_value() && (!owner || of == owner)) return true;
    }
    return false;
  };
  for (int step = 0; step < 4000; ++step) {
    const ReplacedAt at{IdOf(random.Below(20)), static_cast<uint16_t>(random.Below(4))};
    const TenantId owner(static_cast<uint32_t>(random.Below(3)));
    const auto found = model.find(at);
    if (found == model.end() && random.Chance(0.5)) {
      records.Hold(at, ChunkSlot(1));
      model[at] = std::nullopt;
    } else if (found == model.end() || (!found->second.has_value() && random.Chance(0.5))) {
      records.Keep(at, owner, At(step), OneBlock());
      model[at] = owner;
    } else if (found->second.has_value()) {
      REQUIRE(records.Take(at).owner == *found->second);
      model.erase(found);
    } else {
      records.Drop(at);
      model.erase(found);
    }
    records.CheckInvariants();
    REQUIRE(records.all().size() == model.size());
    for (uint16_t device = 0; device < 4; ++device) {
      for (uint32_t t = 0; t <= 3; ++t) {
        const std::optional<TenantId> of = t < 3 ? std::optional(TenantId(t)) : std::nullopt;
        const std::optional<ReplacedAt> kept = records.AnyKept(device, of);
        REQUIRE(kept.has_value() == any_kept(device, of));
        if (!kept.has_value()) continue;
        REQUIRE(kept->device == device);
        REQUIRE(model.at(*kept).has_value());
        REQUIRE((!of || model.at(*kept) == of));
      }
    }
    std::vector<ReplacedAt> of_chunk;
    for (auto next = records.Next(at.id, 0); next; next = records.Next(at.id, next->device + 1u)) {
      of_chunk.push_back(*next);
    }
    size_t expected = 0;
    for (const auto& [where, of] : model) expected += where.id == at.id;
    REQUIRE(of_chunk.size() == expected);
  }
}

}  // namespace kvkeep::store_internal
