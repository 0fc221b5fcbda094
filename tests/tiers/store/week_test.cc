// Weeks on the virtual clock, with a bucket whose objects expire: a system prompt that is used all
// the time, and conversations that go cold.
#include <catch2/catch.hpp>

#include "tests/fakes/memory_object_store.h"
#include "tests/fakes/stored_page.h"
#include "tests/tiers/store/store_tester.h"
#include "tiers/remote/bucket_source.h"
#include "tiers/remote/object_name.h"

namespace kvkeep {
namespace {

using std::chrono::hours;

constexpr hours kWeek{7 * 24};
constexpr uint64_t kSystem = 20, kOwn = 4;  // chunks of a prompt
constexpr uint64_t kRecent = 240;  // conversations; all older ones expired

class Weeks {
 public:
  explicit Weeks(hours lifetime) : s_(Options(lifetime)) {}

  // Begins a conversation each hour, used twice. Then expired objects are gone from the bucket.
  void PassHour() {
    const std::vector<uint64_t> prompt = Prompt(conversations_++);
    for (const uint64_t name : prompt) s_.Put(name);
    s_.Settle();
    s_.Lookup(prompt, LeaseMode::kNone);
    s_.Settle();
    s_.world.clock().Advance(hours(1));
    const auto now = static_cast<int64_t>(s_.world.clock().UnixMicros() / 1'000'000);
    std::erase_if(objects_.now, [&](const auto& object) {
      return now - object.second->modified.value() > std::chrono::seconds(kWeek).count();
    });
  }
  // Conversations some of whose chunks are in the bucket and cannot be reached.
  uint64_t CutShort() {
    uint64_t cut = 0;
    for (uint64_t i = conversations_ < kRecent ? 0 : conversations_ - kRecent; i < conversations_;
         ++i) {
      bool hole = false, behind = false;
      for (const uint64_t name : Prompt(i)) {
        std::string& object = object_names_[name];
        if (object.empty()) object = NameOfObject(keys_.name, {}, s_.Id(name));
        const bool there = objects_.now.contains(object);
        behind |= there && hole;
        hole |= !there;
      }
      cut += behind;
    }
    return cut;
  }
  RemoteCounters counters() { return *s_.store().snapshot().remote; }
  size_t objects() const { return objects_.now.size(); }

 private:
  static FleetKeys Keys() {
    return FleetKeys::Derive(Secret(CountedFrom<std::array<std::byte, 32>>(1)), "fleet");
  }
  WorldOptions Options(hours lifetime) {
    WorldOptions options = SmallWorld();
    options.store.remote_second_use = true;
    options.store.remote_lifetime = lifetime;
    options.make_source = [this](ManualExecutor* executor, ManualClock* clock) {
      return std::make_unique<BucketSource>(
          BucketSourceOptions{.presence_entries = 1024}, Keys(),
          std::make_unique<MemoryObjectStore>(&objects_, executor, clock), clock, &random_);
    };
    options.source_keys = KeyRing::InMemory({""}, &random_);
    return options;
  }
  static std::vector<uint64_t> Prompt(uint64_t conversation) {
    std::vector<uint64_t> names;
    for (uint64_t i = 0; i < kSystem; ++i) names.push_back(1 + i);
    for (uint64_t i = 0; i < kOwn; ++i) names.push_back(1000 + conversation * kOwn + i);
    return names;
  }

  MemoryObjects objects_;
  SeededRandom random_{1};
  const FleetKeys keys_ = Keys();
  uint64_t conversations_ = 0;
  std::map<uint64_t, std::string> object_names_;
  StoreTester s_;
};

}  // namespace

TEST_CASE("in four weeks no leading run is cut short by a head that expired",
          "[figures]") {
  const bool refreshed = GENERATE(true, false);
  Weeks weeks(refreshed ? kWeek : hours(0));
  uint64_t cut = 0;
  for (hours passed{0}; passed < 4 * kWeek; ++passed) {
    weeks.PassHour();
    cut += weeks.CutShort();
  }
  const RemoteCounters counters = weeks.counters();
  CHECK(counters.dropped_chunks + counters.dropped_refreshes + counters.failed_writes == 0);
  if (!refreshed) {
    CHECK(cut > 0);  // so this test sees it
    return;
  }
  CHECK(cut == 0);
  // The system prompt each 1/2 to 5/8 of a week, the others never.
  CHECK(counters.refreshed_chunks >= 6 * kSystem);
  CHECK(counters.refreshed_chunks <= 8 * kSystem);
  const size_t week_of_tails = kOwn * static_cast<size_t>(kWeek.count());
  CHECK(weeks.objects() <= kSystem + week_of_tails);
  CHECK(weeks.objects() >= kSystem + week_of_tails - 2 * kOwn);
}

}  // namespace kvkeep
