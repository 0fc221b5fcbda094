// LruPolicy against one plain line of chunks, searched from its front.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"
#include "tiers/policy/lru_policy.h"

namespace kvkeep {
namespace {

// Fewer than kUnparkSteps, so that Unpark's bounded search is exact.
constexpr uint32_t kLruSlots = 48;

// All chunks in one line, the oldest in front. Parked ones stay in place and are skipped.
class Line {
 public:
  bool Contains(uint32_t slot) const { return Find(slot) != line_.end(); }
  bool IsParked(uint32_t slot) const { return Find(slot)->parked; }
  size_t size() const { return line_.size(); }

  void Request(const std::vector<ChunkSlot>& chain) {
    ++requests_;
    for (auto slot = chain.rbegin(); slot != chain.rend(); ++slot) {
      if (*slot == kNoSlot) continue;
      Entry entry = *Find(slot->value());
      line_.erase(Find(slot->value()));
      entry.request = requests_;
      entry.sidelined = false;
      line_.push_back(entry);
    }
  }
  void Insert(uint32_t slot, ChunkSlot parent, bool transient) {
    Entry entry{.slot = slot, .request = requests_};
    auto place = line_.end();
    if (transient) {
      entry.sidelined = true;
      place = line_.begin();
    } else if (parent != kNoSlot) {
      const auto found = Find(parent.value());
      if (!found->sidelined && found->request + 64 > requests_) {
        entry.request = found->request;
        place = found;
      }
    }
    line_.insert(place, entry);
  }
  void Erase(uint32_t slot) { line_.erase(Find(slot)); }
  std::optional<ChunkSlot> Victim() {
    for (Entry& entry : line_) {
      if (!entry.parked) return ChunkSlot(entry.slot);
      entry.sidelined = true;  // passed over in its turn
    }
    return std::nullopt;
  }
  void Park(uint32_t slot) {
    Find(slot)->parked = true;
    Find(slot)->sidelined = true;
  }
  void Unpark(uint32_t slot) { Find(slot)->parked = false; }
  std::vector<ChunkSlot> Order() const {
    std::vector<ChunkSlot> order;
    for (const bool off : {true, false}) {
      for (const Entry& entry : line_) {
        if ((entry.parked && entry.sidelined) == off) order.push_back(ChunkSlot(entry.slot));
      }
    }
    return order;
  }

 private:
  struct Entry {
    uint32_t slot = 0;
    uint64_t request = 0;
    bool parked = false;
    bool sidelined = false;  // transient, or parked, and not touched since
  };
  std::vector<Entry>::iterator Find(uint32_t slot) {
    return std::find_if(line_.begin(), line_.end(), [&](const Entry& e) { return e.slot == slot; });
  }
  std::vector<Entry>::const_iterator Find(uint32_t slot) const {
    return std::find_if(line_.begin(), line_.end(), [&](const Entry& e) { return e.slot == slot; });
  }

  std::vector<Entry> line_;
  uint64_t requests_ = 0;
};

class LruComparison {
 public:
  explicit LruComparison(uint64_t seed) : random_(seed), policy_({.max_chunks = kLruSlots}) {}

  void Step() {
    const uint32_t slot = Any();
    const uint64_t choice = random_.Below(100);
    if (choice < 20) {
      Request();
    } else if (choice < 55) {
      if (!line_.Contains(slot)) Insert(slot);
    } else if (choice < 65) {
      if (line_.Contains(slot)) Erase(slot);
    } else if (choice < 75) {
      if (const auto victim = line_.Victim()) Erase(victim->value());
    } else if (choice < 88) {
      if (const auto victim = line_.Victim()) Park(*victim);
    } else {
      policy_.Unpark(ChunkSlot(slot));
      if (line_.Contains(slot)) line_.Unpark(slot);
    }
    REQUIRE(policy_.size() == line_.size());
    REQUIRE(policy_.Victim() == line_.Victim());
    REQUIRE(policy_.EvictionOrder() == line_.Order());
  }
  uint64_t parked() const { return parked_; }

 private:
  uint32_t Any() { return static_cast<uint32_t>(random_.Below(kLruSlots)); }
  void Request() {
    std::vector<ChunkSlot> chain;
    std::vector<EvictionPolicy::ChainLink> links;
    for (uint64_t i = random_.Below(6); i > 0; --i) {
      const uint32_t slot = Any();
      chain.push_back(line_.Contains(slot) ? ChunkSlot(slot) : kNoSlot);
      links.push_back({.slot = chain.back()});
    }
    // Now and then much time passes, so that "lately" ends.
    for (uint64_t i = random_.Chance(0.1) ? random_.Below(80) : 0; i > 0; --i) {
      policy_.OnRequest({}, {}, EvictionPolicy::Slice::kFirst);
      line_.Request({});
    }
    policy_.OnRequest(links, {}, EvictionPolicy::Slice::kFirst);
    line_.Request(chain);
  }
  void Insert(uint32_t slot) {
    const uint32_t parent = Any();
    const bool has_parent = line_.Contains(parent);
    const bool transient = random_.Chance(0.15);
    const ChunkSlot parent_slot = has_parent ? ChunkSlot(parent) : kNoSlot;
    policy_.OnInsert({.slot = ChunkSlot(slot), .parent = parent_slot, .transient = transient}, {});
    line_.Insert(slot, parent_slot, transient);
  }
  void Erase(uint32_t slot) {
    policy_.OnErase(ChunkSlot(slot), EvictionPolicy::EraseReason::kEvicted);
    line_.Erase(slot);
  }
  void Park(ChunkSlot slot) {
    policy_.Park(slot);
    line_.Park(slot.value());
    ++parked_;
  }

  SeededRandom random_;
  LruPolicy policy_;
  Line line_;
  uint64_t parked_ = 0;
};

}  // namespace

TEST_CASE("LruPolicy does what a plain line of chunks does, for any sequence of calls") {
  uint64_t parked = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    LruComparison comparison(seed);
    for (int step = 0; step < 2000; ++step) comparison.Step();
    parked += comparison.parked();
  }
  CHECK(parked > 1000);
}

}  // namespace kvkeep
