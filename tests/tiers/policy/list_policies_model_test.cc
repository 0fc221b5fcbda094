// The policies with several lists against plain vectors, searched from their fronts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "tests/fakes/sanitized.h"
#include "tests/fakes/seeded_random.h"
#include "tests/tiers/policy/policy_tester.h"

namespace kvkeep {
namespace {

// Fewer than kUnparkSteps and kVictimSteps, so that bounded searches are exact.
constexpr uint32_t kSlots = 48;
constexpr uint64_t kLately = 64;

// Lists by number, the lowest number the first in Order(). Parked chunks stay in place and are
// skipped; passed over in their turn, they go aside.
class Plain {
 public:
  struct Entry {
    uint32_t slot = 0;
    uint64_t print = 0;
    uint64_t request = 0;  // of its place
    bool parked = false;
    uint64_t value = 0;
  };
  virtual ~Plain() = default;

  bool Contains(uint32_t slot) {
    Entry copy;
    return Find(slot, &copy) != nullptr;
  }
  size_t size() const { return size_; }
  void Request(const std::vector<ChunkSlot>& chain) {
    ++requests_;
    for (auto slot = chain.rbegin(); slot != chain.rend(); ++slot) {
      if (*slot == kNoSlot) continue;
      Entry entry;
      std::vector<Entry>* in = Find(slot->value(), &entry);
      const int64_t list = Touched(entry);
      in->erase(Iterator(*in, slot->value()));
      Append(list, entry);
    }
  }
  void Insert(uint32_t slot, uint64_t print, ChunkSlot parent, bool transient) {
    Entry entry{.slot = slot, .print = print, .request = requests_};
    ++size_;
    const int64_t list = Inserted(entry);
    if (transient) {
      aside_.insert(aside_.begin(), entry);
      return;
    }
    std::vector<Entry>& line = lists_[list];
    auto place = line.end();
    if (parent != kNoSlot) {
      const auto found = Iterator(line, parent.value());
      if (found != line.end() && found->request + kLately > requests_) {
        entry.request = found->request;
        place = found;
      }
    }
    line.insert(place, entry);
  }
  void Erase(uint32_t slot, bool evicted) {
    Entry entry;
    std::vector<Entry>* in = Find(slot, &entry);
    in->erase(Iterator(*in, slot));
    --size_;
    Gone(entry, in == &aside_, evicted);
  }
  std::optional<ChunkSlot> Victim() {
    for (const Entry& entry : aside_) {
      if (!entry.parked) return ChunkSlot(entry.slot);
    }
    while (true) {
      std::vector<Entry>* list = Next();
      if (list == nullptr) return std::nullopt;
      if (!list->front().parked) return ChunkSlot(list->front().slot);
      aside_.push_back(list->front());
      list->erase(list->begin());
    }
  }
  void Park(uint32_t slot) {
    Entry entry;
    std::vector<Entry>* in = Find(slot, &entry);
    entry.parked = true;
    if (in == &aside_) {
      *Iterator(aside_, slot) = entry;
    } else {
      in->erase(Iterator(*in, slot));
      aside_.push_back(entry);
    }
  }
  void Unpark(uint32_t slot) {
    Entry entry;
    Iterator(*Find(slot, &entry), slot)->parked = false;
  }
  std::vector<ChunkSlot> Order() {
    std::vector<ChunkSlot> order;
    for (const bool parked : {true, false}) {
      for (const Entry& entry : aside_) {
        if (entry.parked == parked) order.push_back(ChunkSlot(entry.slot));
      }
    }
    for (const int64_t list : ListOrder()) {
      for (const Entry& entry : lists_[list]) order.push_back(ChunkSlot(entry.slot));
    }
    return order;
  }

 protected:
  virtual int64_t Touched(Entry& entry) = 0;
  virtual int64_t Inserted(Entry& entry) = 0;
  virtual void Gone(const Entry& entry, bool was_aside, bool evicted) = 0;
  virtual std::vector<Entry>* Next() = 0;
  virtual std::vector<int64_t> ListOrder() {
    std::vector<int64_t> order;
    for (const auto& [number, list] : lists_) order.push_back(number);
    return order;
  }
  void Append(int64_t list, Entry entry) {
    entry.request = requests_;
    lists_[list].push_back(entry);
  }
  std::vector<Entry>* NonEmpty(int64_t list) {
    return lists_[list].empty() ? nullptr : &lists_[list];
  }

  std::map<int64_t, std::vector<Entry>> lists_;

 private:
  static std::vector<Entry>::iterator Iterator(std::vector<Entry>& in, uint32_t slot) {
    return std::find_if(in.begin(), in.end(), [&](const Entry& e) { return e.slot == slot; });
  }
  std::vector<Entry>* Find(uint32_t slot, Entry* copy) {
    std::vector<std::vector<Entry>*> all = {&aside_};
    for (auto& [number, list] : lists_) all.push_back(&list);
    for (std::vector<Entry>* list : all) {
      const auto found = Iterator(*list, slot);
      if (found == list->end()) continue;
      *copy = *found;
      return list;
    }
    return nullptr;
  }

  std::vector<Entry> aside_;  // the first to go in front
  size_t size_ = 0;
  uint64_t requests_ = 0;
};

class PlainLfu final : public Plain {
  int64_t Touched(Entry& entry) override {
    return age_ + static_cast<int64_t>(entry.value = std::min<uint64_t>(entry.value + 1, 63));
  }
  int64_t Inserted(Entry& entry) override { return age_ + static_cast<int64_t>(entry.value = 1); }
  void Gone(const Entry& /*entry*/, bool was_aside, bool evicted) override {
    if (evicted && !was_aside) age_ = last_;
  }
  std::vector<Entry>* Next() override {
    for (auto& [priority, list] : lists_) {
      last_ = priority;
      if (!list.empty()) return &list;
    }
    return nullptr;
  }
  int64_t age_ = 0, last_ = 0;
};

// Ghosts, the oldest in front.
std::vector<uint64_t>::iterator FindPrint(std::vector<uint64_t>& ghosts, uint64_t print) {
  return std::find(ghosts.begin(), ghosts.end(), print);
}

class PlainArc final : public Plain {
  int64_t Touched(Entry& entry) override {
    --count_[entry.value];
    ++count_[entry.value = 1];
    return 1;
  }
  int64_t Inserted(Entry& entry) override {
    const auto once = std::max<int64_t>(1, static_cast<int64_t>(ghosts_[0].size()));
    const auto again = std::max<int64_t>(1, static_cast<int64_t>(ghosts_[1].size()));
    for (int g = 0; g < 2; ++g) {
      const auto ghost = FindPrint(ghosts_[g], entry.print);
      if (ghost == ghosts_[g].end()) continue;
      ghosts_[g].erase(ghost);
      target_ += g == 0 ? std::max<int64_t>(1, again / once) : -std::max<int64_t>(1, once / again);
      target_ = std::clamp<int64_t>(target_, 0, g == 0 ? static_cast<int64_t>(size()) : target_);
      if (target_ < 0) target_ = 0;
      entry.value = 1;
    }
    ++count_[entry.value];
    return static_cast<int64_t>(entry.value);
  }
  void Gone(const Entry& entry, bool /*was_aside*/, bool evicted) override {
    --count_[entry.value];
    for (auto& ghosts : ghosts_) {
      if (evicted && FindPrint(ghosts, entry.print) != ghosts.end()) {
        ghosts.erase(FindPrint(ghosts, entry.print));
      }
    }
    if (evicted) ghosts_[entry.value].push_back(entry.print);
    for (int twice = 0; twice < 2; ++twice) {
      const bool first = !ghosts_[0].empty() && count_[0] + ghosts_[0].size() > size();
      const bool any = ghosts_[0].size() + ghosts_[1].size() > size();
      if (first || any) {
        auto& ghosts = ghosts_[first || ghosts_[1].empty() ? 0 : 1];
        ghosts.erase(ghosts.begin());
      }
    }
  }
  int64_t First() {
    const int64_t list = static_cast<int64_t>(count_[0]) > target_ + 1 ? 0 : 1;
    return lists_[list].empty() ? 1 - list : list;
  }
  std::vector<Entry>* Next() override { return NonEmpty(First()); }
  std::vector<int64_t> ListOrder() override { return {First(), 1 - First()}; }

  std::array<uint64_t, 2> count_{};
  std::array<std::vector<uint64_t>, 2> ghosts_;
  int64_t target_ = 0;
};

class Comparison {
 public:
  Comparison(uint64_t seed, const std::string& name, std::unique_ptr<Plain> plain)
      : random_(seed),
        policy_(MakeListPolicy(name, {.max_chunks = kSlots})),
        plain_(std::move(plain)) {}

  void Step() {
    const uint32_t slot = Any();
    const uint64_t choice = random_.Below(100);
    if (choice < 25) {
      Request();
    } else if (choice < 55) {
      if (!plain_->Contains(slot)) Insert(slot);
    } else if (choice < 57) {
      if (plain_->Contains(slot)) Erase(slot, EvictionPolicy::EraseReason::kRemoved);
    } else if (choice < 78) {
      const auto victim = plain_->Victim();
      if (victim.has_value()) Erase(victim->value(), EvictionPolicy::EraseReason::kEvicted);
    } else if (choice < 88) {
      const auto victim = plain_->Victim();
      if (victim.has_value()) Park(*victim);
    } else {
      policy_->Unpark(ChunkSlot(slot));
      if (plain_->Contains(slot)) plain_->Unpark(slot);
    }
    REQUIRE(policy_->size() == plain_->size());
    REQUIRE(policy_->Victim() == plain_->Victim());
    REQUIRE(policy_->EvictionOrder() == plain_->Order());
  }

 private:
  uint32_t Any() { return static_cast<uint32_t>(random_.Below(kSlots)); }
  void Request() {
    std::vector<ChunkSlot> chain;
    std::vector<EvictionPolicy::ChainLink> links;
    for (uint64_t i = random_.Below(6); i > 0; --i) {
      const uint32_t slot = Any();
      chain.push_back(plain_->Contains(slot) ? ChunkSlot(slot) : kNoSlot);
      links.push_back({.slot = chain.back()});
    }
    // Now and then much time passes, so that "lately" ends.
    for (uint64_t i = random_.Chance(0.1) ? random_.Below(80) : 0; i > 0; --i) {
      policy_->OnRequest({}, {}, EvictionPolicy::Slice::kFirst);
      plain_->Request({});
    }
    policy_->OnRequest(links, {}, EvictionPolicy::Slice::kFirst);
    plain_->Request(chain);
  }
  void Insert(uint32_t slot) {
    const uint32_t parent = Any();
    const ChunkSlot parent_slot = plain_->Contains(parent) ? ChunkSlot(parent) : kNoSlot;
    const bool transient = random_.Chance(0.1);
    const uint64_t print = random_.Below(80);  // two chunks may have the same
    policy_->OnInsert({.slot = ChunkSlot(slot),
                       .fingerprint = Fingerprint(print),
                       .parent = parent_slot,
                       .transient = transient},
                      {});
    plain_->Insert(slot, print, parent_slot, transient);
  }
  void Erase(uint32_t slot, EvictionPolicy::EraseReason reason) {
    policy_->OnErase(ChunkSlot(slot), reason);
    plain_->Erase(slot, reason == EvictionPolicy::EraseReason::kEvicted);
  }
  void Park(ChunkSlot slot) {
    policy_->Park(slot);
    plain_->Park(slot.value());
  }

  SeededRandom random_;
  const std::unique_ptr<ListPolicy> policy_;
  const std::unique_ptr<Plain> plain_;
};

template <typename Model>
void Compare(const std::string& name) {
  for (uint64_t seed = 1; seed <= (kSanitized ? 6 : 25); ++seed) {
    CAPTURE(seed);
    Comparison comparison(seed, name, std::make_unique<Model>());
    for (int step = 0; step < 2000; ++step) comparison.Step();
  }
}

}  // namespace

TEST_CASE("ArcPolicy does what plain vectors do, for any sequence of calls") {
  Compare<PlainArc>("arc");
}

TEST_CASE("LfuPolicy does what plain vectors do, for any sequence of calls") {
  Compare<PlainLfu>("lfu");
}

}  // namespace kvkeep
