#include "tiers/store/device_syncs.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/tiers/store/run_tasks.h"

namespace kvkeep::store_internal {
namespace {

constexpr MonotonicTime kOneSecond = std::chrono::seconds(1);

// The syncs of one device, and a hold of enough work to answer waiters.
struct Syncing {
  explicit Syncing(uint64_t max_work = 600) : hold(max_work) {}
  void Wait(uint64_t sequence, char name) {
    syncs.Wait(CommitSequence(sequence), [this, name](const absl::Status& status) {
      names += name;
      last = status;
    });
  }
  StableMark Begin(uint64_t committed, bool drains = false, bool may_be_clean = false) {
    return syncs.Begin(Uuid{}, CommitSequence(committed), drains, may_be_clean);
  }
  void Sync(uint64_t committed) { syncs.End(Begin(committed)); }
  // Returns whether all waiters that could be were answered, and tells them.
  bool Answer(const absl::Status& failed = absl::OkStatus()) {
    hold.Begin();
    const bool all = syncs.Answer(failed, hold);
    RunTasks(hold);
    return all;
  }
  Hold hold;
  DeviceSyncs syncs;
  std::string names;
  absl::Status last;
};

}  // namespace

TEST_CASE("who waits for a sync is answered when the sequence is stable, not before") {
  Syncing device;
  device.Wait(20, 'b');
  device.Wait(10, 'a');
  device.Sync(19);
  CHECK(device.names.empty());
  CHECK(device.Answer());
  CHECK(device.names == "a");
  device.Sync(20);
  CHECK(device.Answer());
  CHECK(device.names == "ab");
  CHECK(device.last.ok());
  CHECK_FALSE(device.syncs.anyone_waits());
}

TEST_CASE("a sync that failed fails all but those whose sequence was stable before") {
  const absl::Status failed = absl::UnavailableError("failed");
  Syncing device;
  device.Sync(10);
  device.Wait(10, 'a');
  CHECK(device.Answer(failed));
  CHECK(device.last.ok());
  device.Wait(11, 'b');
  device.Begin(11);
  device.syncs.EndFailed();
  CHECK_FALSE(device.syncs.IsStable(CommitSequence(11)));
  CHECK(device.Answer(failed));
  CHECK(device.names == "ab");
  CHECK(absl::IsUnavailable(device.last));
}

TEST_CASE("a hold answers no more than it may, and the next one goes on") {
  Syncing device(work::kCall);
  device.Wait(1, 'a');
  device.Wait(1, 'b');
  device.Sync(1);
  CHECK_FALSE(device.Answer());
  CHECK(device.names == "a");
  CHECK(device.Answer());
  CHECK(device.names == "ab");
}

TEST_CASE("a sync is due when its interval has passed and there is something to say, or if asked") {
  Syncing device;
  device.syncs.EndJoin(kOneSecond);
  CHECK_FALSE(device.syncs.IsDue(5 * kOneSecond, kOneSecond));
  device.syncs.NoteDirty();
  CHECK_FALSE(device.syncs.IsDue(kOneSecond * 3 / 2, kOneSecond));
  CHECK(device.syncs.IsDue(2 * kOneSecond, kOneSecond));
  device.syncs.NoteTried(2 * kOneSecond);
  CHECK_FALSE(device.syncs.IsDue(2 * kOneSecond, kOneSecond));
  device.Wait(1, 'a');
  CHECK(device.syncs.IsDue(2 * kOneSecond, kOneSecond));
}

TEST_CASE("what is noted while a sync is under way is for the next one") {
  Syncing device;
  device.syncs.NoteDirty();
  const StableMark mark = device.Begin(1);
  CHECK(device.syncs.under_way());
  device.syncs.End(mark);
  CHECK(device.syncs.at_rest());
  const StableMark next = device.Begin(2);
  device.syncs.NoteDirty();
  CHECK_FALSE(device.syncs.at_rest());
  device.syncs.End(next);
  CHECK(device.syncs.IsDue(kOneSecond, kOneSecond));
}

TEST_CASE("a sync that the index put off makes nothing stable, and another one is due") {
  Syncing device;
  device.Begin(1);
  device.syncs.PutOff();
  CHECK_FALSE(device.syncs.under_way());
  CHECK_FALSE(device.syncs.IsStable(CommitSequence(1)));
  CHECK(device.syncs.IsDue(kOneSecond, kOneSecond));
}

TEST_CASE("clean is said by the sync of a store that drains, and kept until one says otherwise") {
  Syncing device;
  CHECK_FALSE(device.Begin(1, /*drains=*/false, /*may_be_clean=*/true).clean);
  device.syncs.EndFailed();
  CHECK_FALSE(device.Begin(1, /*drains=*/true, /*may_be_clean=*/false).clean);
  device.syncs.EndFailed();
  const StableMark mark = device.Begin(1, /*drains=*/true, /*may_be_clean=*/true);
  CHECK(mark.clean);
  CHECK(device.syncs.clean());  // the index may report it by now
  device.syncs.PutOff();
  CHECK(device.syncs.clean());
  device.syncs.End(device.Begin(1, /*drains=*/false, /*may_be_clean=*/true));
  CHECK(device.syncs.clean());
  const StableMark unclean = device.Begin(1, /*drains=*/false, /*may_be_clean=*/false);
  CHECK_FALSE(unclean.clean);
  CHECK(device.syncs.clean());  // nothing is committed before the mark is there
  device.syncs.End(unclean);
  CHECK_FALSE(device.syncs.clean());
}

TEST_CASE("a device that joins is as stable and as clean as its mark says") {
  Syncing device;
  device.syncs.BeginJoin({.boot_id = Uuid{}, .sequence = CommitSequence(7), .clean = true});
  CHECK(device.syncs.IsStable(CommitSequence(7)));
  CHECK_FALSE(device.syncs.IsStable(CommitSequence(8)));
  CHECK(device.syncs.clean());
}

}  // namespace kvkeep::store_internal
