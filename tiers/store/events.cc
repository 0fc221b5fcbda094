// Events: noted where a chunk's change settles, read by number, with a snapshot where need be.
#include <absl/strings/str_cat.h>

#include "tiers/base/status_macros.h"
#include "tiers/store/core.h"

namespace kvkeep {

EventReader::EventReader(EventReader&& other) noexcept { *this = std::move(other); }

EventReader& EventReader::operator=(EventReader&& other) noexcept {
  if (core_ != nullptr) core_->EndEvents(id_);
  core_ = std::exchange(other.core_, nullptr);
  id_ = other.id_;
  return *this;
}

EventReader::~EventReader() {
  if (core_ != nullptr) core_->EndEvents(id_);
}

absl::StatusOr<EventBatch> EventReader::Next() { return core_->NextEvents(id_); }

void EventReader::WhenMore(absl::AnyInvocable<void() &&> wake) {
  core_->WhenMoreEvents(id_, std::move(wake));
}

namespace store_internal {
namespace {

constexpr size_t kMostInBatch = 512;

}  // namespace

absl::StatusOr<uint64_t> Core::BeginEvents(const SessionToken& token, const NamespaceDigest& ns) {
  auto reader = std::make_unique<EventReaderState>();
  EventLog::Memory memory = EventLog::MakeMemory(options_.events.log_entries);
  Section section(this);
  KVKEEP_ASSIGN_OR_RETURN(const Session* session, FindSession(token));
  KVKEEP_RETURN_IF_ERROR(CheckGrant(*session, &Grants::read));
  if (!session->namespaces.contains(ns)) {
    return absl::FailedPreconditionError("namespace_digest is not of a namespace of this session");
  }
  // As of sessions, each tenant has its part of the readers.
  const uint64_t own = std::max<uint64_t>(1, options_.events.max_readers / pools_.size());
  uint64_t held = 0;
  for (const auto& [id, other] : event_readers_) {
    held += other->session.has_value() && other->tenant == session->info->tenant;
  }
  if (held >= own) {
    ++counters_.event_readers_refused;
    return absl::ResourceExhaustedError(absl::StrCat("watches: all ", own,
                                                     " of this tenant's part of ",
                                                     options_.events.max_readers, " are open"));
  }
  reader->session = token;
  reader->tenant = session->info->tenant;
  reader->ns = ns;
  return AddEventReader(std::move(reader), memory);
}

uint64_t Core::BeginAllEvents(std::optional<TenantId> tenant) {
  auto reader = std::make_unique<EventReaderState>();
  if (tenant.has_value()) {
    reader->tag = TenantOptions::Tag(options_.tenants[tenant->value()].name);
  }
  EventLog::Memory memory = EventLog::MakeMemory(options_.events.log_entries);
  Section section(this);
  return AddEventReader(std::move(reader), memory);
}

uint64_t Core::AddEventReader(std::unique_ptr<EventReaderState> reader, EventLog::Memory& memory) {
  if (!events_.on()) events_.TurnOn(std::move(memory));
  const uint64_t id = next_event_reader_++;
  event_readers_.emplace(id, std::move(reader));
  return id;
}

void Core::EndEvents(uint64_t id) {
  EventLog::Memory unused;  // outlives the lock
  std::unique_ptr<EventReaderState> ended;
  Section section(this);
  const auto found = event_readers_.find(id);
  ended = std::move(found->second);
  event_readers_.erase(found);
  WakeEventReader(*ended);
  if (event_readers_.empty()) unused = events_.TurnOff();
}

absl::StatusOr<EventBatch> Core::NextEvents(uint64_t id) {
  EventBatch batch;
  batch.events.reserve(kMostInBatch + 1);  // a chunk may be in two tiers
  Section section(this);
  EventReaderState& reader = *event_readers_.at(id);
  if (reader.session.has_value()) KVKEEP_RETURN_IF_ERROR(FindSession(*reader.session).status());
  if (!reader.anew && reader.next < events_.first()) {
    reader.anew = true;
    counters_.events_missed += events_.first() - reader.next;
    ++counters_.event_restarts;
  }
  if (std::exchange(reader.anew, false)) {
    batch.begins_anew = true;
    reader.walking = true;
    reader.walk = ChunkSlot(0);
    reader.next = events_.next();
  }
  for (; reader.next < events_.next() && batch.events.size() < kMostInBatch && !Spent();
       ++reader.next) {
    Count(work::kLook);
    const ChunkEvent& event = events_.at(reader.next);
    if (reader.Wants(event.id)) batch.events.push_back(event);
  }
  if (reader.walking) WalkForReader(reader, batch);
  counters_.events_told += batch.events.size();
  batch.more = reader.walking || reader.next < events_.next();
  return batch;
}

// A page of the snapshot: the chunks of the next slots, as they are now. A chunk that changes, or
// moves to another slot, has events of that.
void Core::WalkForReader(EventReaderState& reader, EventBatch& batch) {
  for (; reader.walk.value() < table_.slot_end(); ++reader.walk) {
    if (batch.events.size() >= kMostInBatch || Spent()) return;
    Count(work::kLook);
    const Chunk& chunk = table_.at(reader.walk);
    if (!chunk.live || !reader.Wants(chunk.id)) continue;
    const bool metadata = chunk.shape.tail_bytes > 0;
    if (chunk.told_g2) batch.events.push_back({chunk.id, Tier::kG2, true, metadata});
    if (chunk.told_g3 && devices_[chunk.device]->told_readable) {
      batch.events.push_back({chunk.id, Tier::kG3, true, metadata});
    }
  }
  reader.walking = false;
  batch.whole = true;
}

void Core::WhenMoreEvents(uint64_t id, absl::AnyInvocable<void() &&> wake) {
  Section section(this);
  EventReaderState& reader = *event_readers_.at(id);
  KVKEEP_CHECK(!reader.wake);
  reader.wake = std::move(wake);
  ++waiting_event_readers_;
  const bool closed = reader.session.has_value() && !sessions_.contains(*reader.session);
  const bool more = reader.anew || reader.walking || reader.next < events_.next();
  if (closed || more) WakeEventReader(reader);
}

void Core::WakeEventReader(EventReaderState& reader) {
  if (!reader.wake) return;
  --waiting_event_readers_;
  Later(std::move(reader.wake));
  reader.wake = nullptr;
}

bool Core::TellableInG3(const Chunk& chunk) {
  return chunk.g3_state == G3State::kStored && !chunk.unconfirmed && !chunk.detached;
}

void Core::NoteTiers(Chunk& chunk) {
  const bool g2 = chunk.in_g2() && !chunk.detached;
  const bool g3 = TellableInG3(chunk);
  const bool metadata = chunk.shape.tail_bytes > 0;
  if (g2 != chunk.told_g2) {
    chunk.told_g2 = g2;
    if (events_.on()) TellReaders({chunk.id, Tier::kG2, g2, metadata});
  }
  if (g3 != chunk.told_g3) {
    chunk.told_g3 = g3;
    // Of a device that is away nothing is told: when it is back, all begins anew.
    if (events_.on() && devices_[chunk.device]->told_readable) {
      TellReaders({chunk.id, Tier::kG3, g3, metadata});
    }
  }
}

void Core::TellReaders(const ChunkEvent& event) {
  events_.Append(event);
  if (waiting_event_readers_ == 0) return;
  for (const auto& [id, reader] : event_readers_) {
    if (reader->Wants(event.id)) {
      WakeEventReader(*reader);
    } else if (reader->wake) {  // it has read all: what is others' must not run it out of the log
      reader->next = events_.next();
    }
  }
}

// Lookups find what is on a device while it can be read: all of its chunks came or went at once.
void Core::NoteReadable(DeviceTier& tier) {
  if (tier.readable() == tier.told_readable) return;
  tier.told_readable = tier.readable();
  if (!events_.on()) return;
  events_.Lose();
  for (const auto& [id, reader] : event_readers_) WakeEventReader(*reader);
}

void Core::WakeReadersOf(const SessionToken& token) {
  for (const auto& [id, reader] : event_readers_) {
    if (reader->session == token) WakeEventReader(*reader);
  }
}

}  // namespace store_internal
}  // namespace kvkeep
