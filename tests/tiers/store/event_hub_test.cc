#include "tiers/store/event_hub.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/sim/payload.h"
#include "tests/tiers/store/run_tasks.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint64_t kLogEntries = 8;
const SessionToken kSession {.bytes = {1}};

ChunkId Id(uint64_t name) { return {{}, MakeKey(name), PartId(0)}; }

struct HubWorld {
  ChunkSlot Add(uint64_t name) {
    const ChunkSlot slot = table.Create(Id(name), {.payload_bytes = 1});
    table.at(slot).g2_state = G2State::kResident;
    hub.NoteTiers(table.at(slot));
    return slot;
  }
  void Store(ChunkSlot slot, uint16_t device) {
    table.at(slot).device = device;
    table.at(slot).g3_state = G3State::kStored;
    hub.NoteTiers(table.at(slot));
  }
  void Evict(ChunkSlot slot) {
    table.at(slot).g2_state = G2State::kAbsent;
    hub.NoteTiers(table.at(slot));
  }
  uint64_t Begin() {
    EventLog::Memory memory = EventLog::MakeMemory(kLogEntries);
    return hub.Begin(std::make_unique<EventReaderState>(), memory);
  }
  uint64_t BeginOfSession() {
    EventLog::Memory memory = EventLog::MakeMemory(kLogEntries);
    auto reader = std::make_unique<EventReaderState>();
    reader->session = kSession;
    reader->tenant = TenantId(1);
    return hub.Begin(std::move(reader), memory);
  }
  // Runs in a hold of its own.
  EventBatch Next(uint64_t reader) {
    hold.Begin();
    EventBatch batch;
    hub.Next(reader, &batch);
    return batch;
  }
  void ReadAll(uint64_t reader) {
    while (Next(reader).more) {
    }
  }
  // Returns whether `what` woke the reader.
  template <typename What>
  bool Wakes(uint64_t reader, const What& what) {
    bool woken = false;
    hub.WhenMore(reader, [&woken] { woken = true; }, false);
    what();
    RunTasks(hold);
    const bool by_it = woken;
    if (!by_it) {  // it waits for nothing any more
      EventLog::Memory unused;
      hub.End(reader, &unused);
      RunTasks(hold);
    }
    return by_it;
  }
  StoreCounters counters;
  ChunkTable table{std::make_shared<SlotArrays>(5000), 7};
  Hold hold{600};
  EventHub hub{kLogEntries, 2, &table, &hold, &counters};
};

}  // namespace

TEST_CASE("a reader has a snapshot first, then each change once, of each tier") {
  HubWorld w;
  const ChunkSlot one = w.Add(1);
  const uint64_t reader = w.Begin();
  EventBatch batch = w.Next(reader);
  CHECK(batch.begins_anew);
  CHECK(batch.whole);
  REQUIRE(batch.events.size() == 1);
  CHECK((batch.events[0].tier == Tier::kG2 && batch.events[0].id == Id(1)));
  w.Store(one, 0);
  w.Evict(one);
  w.hub.NoteTiers(w.table.at(one));  // nothing changed
  batch = w.Next(reader);
  CHECK_FALSE(batch.begins_anew);
  REQUIRE(batch.events.size() == 2);
  CHECK((batch.events[0].tier == Tier::kG3 && batch.events[0].stored));
  CHECK((batch.events[1].tier == Tier::kG2 && !batch.events[1].stored));
  CHECK_FALSE(w.Next(reader).tells());
}

TEST_CASE("a reader that fell out of the log begins anew, and what it missed is counted") {
  HubWorld w;
  const uint64_t reader = w.Begin();
  w.ReadAll(reader);
  for (uint64_t name = 0; name < kLogEntries + 3; ++name) w.Add(name);
  const EventBatch batch = w.Next(reader);
  CHECK(batch.begins_anew);
  CHECK(batch.events.size() == kLogEntries + 3);
  CHECK(w.counters.events_missed == 3);
  CHECK(w.counters.event_restarts == 1);
}

TEST_CASE("a device that comes or goes has every reader begin anew, without or with its chunks") {
  HubWorld w;
  w.Store(w.Add(1), 1);
  const uint64_t reader = w.Begin();
  w.ReadAll(reader);
  CHECK(w.Wakes(reader, [&] { w.hub.NoteReadable(1, false); }));
  EventBatch batch = w.Next(reader);
  CHECK(batch.begins_anew);
  CHECK(batch.events.size() == 1);  // the copy in G2
  w.hub.NoteReadable(1, false);     // as it was
  CHECK_FALSE(w.Next(reader).tells());
  w.Store(w.Add(2), 1);  // of an absent device only G2 is reported
  CHECK(w.Next(reader).events.size() == 1);
  w.hub.NoteReadable(1, true);
  batch = w.Next(reader);
  CHECK(batch.begins_anew);
  CHECK(batch.events.size() == 4);
}

TEST_CASE("a reader of a session is woken by its session's end, and counts as its tenant's") {
  HubWorld w;
  const uint64_t reader = w.BeginOfSession();
  w.ReadAll(reader);
  CHECK(w.hub.SessionReadersOf(TenantId(1)) == 1);
  CHECK(w.hub.SessionReadersOf(TenantId(0)) == 0);
  CHECK(w.hub.SessionOf(reader) == kSession);
  CHECK(w.Wakes(reader, [&] { w.hub.WakeReadersOf(kSession); }));
  CHECK_FALSE(w.Wakes(reader, [&] { w.hub.WakeReadersOf({.bytes = {2}}); }));
  CHECK(w.hub.SessionReadersOf(TenantId(1)) == 0);
}

TEST_CASE("a batch does no more than a hold may, and a snapshot goes on in the next one") {
  HubWorld w;
  for (uint64_t name = 0; name < 2000; ++name) w.Add(name);
  const uint64_t reader = w.Begin();
  size_t batches = 0, told = 0;
  for (bool more = true; more; ++batches) {
    const EventBatch batch = w.Next(reader);
    CHECK(batch.events.size() <= EventHub::kMostInBatch + 1);
    told += batch.events.size();
    more = batch.more;
  }
  CHECK(told == 2000);
  CHECK(batches >= 2000 / EventHub::kMostInBatch);
}

TEST_CASE("the log has memory while there are readers only") {
  HubWorld w;
  const uint64_t first = w.Begin(), second = w.Begin();
  EventLog::Memory unused;
  w.hub.End(first, &unused);
  CHECK(unused == nullptr);
  w.hub.End(second, &unused);
  CHECK(unused != nullptr);
  w.Add(1);  // told to nobody
  const uint64_t third = w.Begin();
  CHECK(w.Next(third).events.size() == 1);
}

}  // namespace kvkeep::store_internal
