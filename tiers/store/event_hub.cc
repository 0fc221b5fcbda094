#include "tiers/store/event_hub.h"

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

bool InG2(const Chunk& chunk) { return chunk.in_g2() && !chunk.detached; }
bool InG3(const Chunk& chunk) {
  return chunk.g3_state == G3State::kStored && !chunk.unconfirmed && !chunk.detached;
}

}  // namespace

EventHub::EventHub(uint64_t log_entries, size_t devices, const ChunkTable* table, Hold* hold,
                   StoreCounters* counters)
    : table_(*table),
      hold_(*hold),
      counters_(*counters),
      log_(log_entries),
      told_readable_(devices, true) {}

uint64_t EventHub::SessionReadersOf(TenantId tenant) const {
  uint64_t count = 0;
  for (const auto& [id, reader] : readers_) {
    count += reader->session.has_value() && reader->tenant == tenant;
  }
  return count;
}

uint64_t EventHub::Begin(std::unique_ptr<EventReaderState> reader, EventLog::Memory& memory) {
  if (!log_.on()) log_.TurnOn(std::move(memory));
  const uint64_t id = next_reader_++;
  KVKEEP_CHECK(readers_.emplace(id, std::move(reader)).second);
  return id;
}

std::unique_ptr<EventReaderState> EventHub::End(uint64_t reader, EventLog::Memory* unused) {
  const auto found = readers_.find(reader);
  KVKEEP_CHECK(found != readers_.end());
  std::unique_ptr<EventReaderState> ended = std::move(found->second);
  readers_.erase(found);
  WakeReader(*ended);
  if (readers_.empty()) *unused = log_.TurnOff();
  return ended;
}

void EventHub::Next(uint64_t id, EventBatch* batch) {
  EventReaderState& reader = *readers_.at(id);
  KVKEEP_CHECK(log_.on() && reader.next <= log_.next());
  if (!reader.anew && reader.next < log_.first()) {
    reader.anew = true;
    counters_.events_missed += log_.first() - reader.next;
    ++counters_.event_restarts;
  }
  if (std::exchange(reader.anew, false)) {
    batch->begins_anew = true;
    reader.walking = true;
    reader.walk = ChunkSlot(0);
    reader.next = log_.next();
  }
  for (; reader.next < log_.next() && batch->events.size() < kMostInBatch && !hold_.Spent();
       ++reader.next) {
    hold_.Count(work::kLook);
    const ChunkEvent& event = log_.at(reader.next);
    if (reader.Wants(event.id)) batch->events.push_back(event);
  }
  if (reader.walking) Walk(reader, batch);
  counters_.events_told += batch->events.size();
  batch->more = reader.walking || reader.next < log_.next();
}

// Adds a page of the snapshot: the chunks of the next slots, as they are now. If a chunk changes or
// moves to another slot, it has events for that.
void EventHub::Walk(EventReaderState& reader, EventBatch* batch) {
  for (; reader.walk.value() < table_.slot_end(); ++reader.walk) {
    if (batch->events.size() >= kMostInBatch || hold_.Spent()) return;
    hold_.Count(work::kLook);
    const Chunk& chunk = table_.at(reader.walk);
    if (!chunk.live || !reader.Wants(chunk.id)) continue;
    const bool metadata = chunk.shape.tail_bytes > 0;
    if (chunk.told_g2) batch->events.push_back({chunk.id, Tier::kG2, true, metadata});
    if (chunk.told_g3 && told_readable_[chunk.device]) {
      batch->events.push_back({chunk.id, Tier::kG3, true, metadata});
    }
  }
  reader.walking = false;
  batch->whole = true;
}

void EventHub::WhenMore(uint64_t id, Wake wake, bool session_closed) {
  EventReaderState& reader = *readers_.at(id);
  KVKEEP_CHECK(!reader.wake);
  reader.wake = std::move(wake);
  ++waiting_;
  const bool more = reader.anew || reader.walking || reader.next < log_.next();
  if (session_closed || more) WakeReader(reader);
}

void EventHub::WakeReader(EventReaderState& reader) {
  if (!reader.wake) return;
  KVKEEP_CHECK(waiting_ > 0);
  --waiting_;
  hold_.Later(std::move(reader.wake));
  reader.wake = nullptr;
}

void EventHub::WakeReadersOf(const SessionToken& token) {
  for (const auto& [id, reader] : readers_) {
    if (reader->session == token) WakeReader(*reader);
  }
}

void EventHub::NoteTiers(Chunk& chunk) {
  const bool g2 = InG2(chunk), g3 = InG3(chunk);
  const bool metadata = chunk.shape.tail_bytes > 0;
  if (g2 != chunk.told_g2) {
    chunk.told_g2 = g2;
    if (log_.on()) Tell({chunk.id, Tier::kG2, g2, metadata});
  }
  if (g3 != chunk.told_g3) {
    chunk.told_g3 = g3;
    // Nothing is told of a device that is away: when it is back, all readers begin anew.
    if (log_.on() && told_readable_[chunk.device]) Tell({chunk.id, Tier::kG3, g3, metadata});
  }
}

void EventHub::Tell(const ChunkEvent& event) {
  log_.Append(event);
  if (waiting_ == 0) return;
  for (const auto& [id, reader] : readers_) {
    if (reader->Wants(event.id)) {
      WakeReader(*reader);
    } else if (reader->wake) {  // it has read all: others' events must not count as missed
      reader->next = log_.next();
    }
  }
}

void EventHub::NoteReadable(uint16_t device, bool readable) {
  KVKEEP_CHECK(device < told_readable_.size());
  if (told_readable_[device] == readable) return;
  told_readable_[device] = readable;
  if (!log_.on()) return;
  log_.Lose();
  for (const auto& [id, reader] : readers_) WakeReader(*reader);
}

void EventHub::Check(const Chunk& chunk) const {
  KVKEEP_CHECK(chunk.told_g2 == InG2(chunk));
  KVKEEP_CHECK(chunk.told_g3 == InG3(chunk));
}

void EventHub::Check(uint16_t device, bool readable) const {
  KVKEEP_CHECK(told_readable_[device] == readable);
}

}  // namespace kvkeep::store_internal
