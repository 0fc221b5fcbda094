#include "tiers/store/watches.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/store/section.h"

namespace kvkeep {

EventReader::EventReader(EventReader&& other) noexcept { *this = std::move(other); }

EventReader& EventReader::operator=(EventReader&& other) noexcept {
  if (watches_ != nullptr) watches_->End(id_);
  watches_ = std::exchange(other.watches_, nullptr);
  id_ = other.id_;
  return *this;
}

EventReader::~EventReader() {
  if (watches_ != nullptr) watches_->End(id_);
}

absl::StatusOr<EventBatch> EventReader::Next() { return watches_->Next(id_); }

void EventReader::WhenMore(absl::AnyInvocable<void() &&> wake) {
  watches_->WhenMore(id_, std::move(wake));
}

namespace store_internal {

Watches::Watches(const StoreOptions& options, Chunks* chunks, EventHub* events, Sessions* sessions)
    : options_(options), chunks_(*chunks), events_(*events), sessions_(*sessions) {}

absl::StatusOr<uint64_t> Watches::Begin(const SessionToken& token, const NamespaceDigest& ns) {
  auto reader = std::make_unique<EventReaderState>();
  EventLog::Memory memory = EventLog::MakeMemory(options_.events.log_entries);
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(const Session* session, sessions_.table.Find(token));
  KVKEEP_RETURN_IF_ERROR(sessions_.table.CheckGrant(*session, &Grants::read));
  KVKEEP_RETURN_IF_ERROR(session->FindNamespace(ns).status());
  // Each tenant has its part of the readers, as of sessions.
  const uint64_t own = std::max<uint64_t>(1, options_.events.max_readers / chunks_.pools.size());
  if (events_.SessionReadersOf(session->tenant()) >= own) {
    ++chunks_.counters.event_readers_refused;
    return absl::ResourceExhaustedError(absl::StrCat("watches: all ", own,
                                                     " of this tenant's part of ",
                                                     options_.events.max_readers, " are open"));
  }
  reader->session = token;
  reader->tenant = session->tenant();
  reader->ns = ns;
  return events_.Begin(std::move(reader), memory);
}

uint64_t Watches::BeginAll(std::optional<TenantId> tenant) {
  auto reader = std::make_unique<EventReaderState>();
  if (tenant.has_value()) {
    reader->tag = TenantOptions::Tag(options_.tenants[tenant->value()].name);
  }
  EventLog::Memory memory = EventLog::MakeMemory(options_.events.log_entries);
  Section section(&chunks_);
  return events_.Begin(std::move(reader), memory);
}

void Watches::End(uint64_t id) {
  EventLog::Memory unused;  // both outlive the lock
  std::unique_ptr<EventReaderState> ended;
  Section section(&chunks_);
  ended = events_.End(id, &unused);
}

absl::StatusOr<EventBatch> Watches::Next(uint64_t id) {
  EventBatch batch;
  batch.events.reserve(EventHub::kMostInBatch + 1);  // a chunk may be in two tiers
  Section section(&chunks_);
  const std::optional<SessionToken> session = events_.SessionOf(id);
  if (session.has_value()) KVKEEP_RETURN_IF_ERROR(sessions_.table.Find(*session).status());
  events_.Next(id, &batch);
  return batch;
}

void Watches::WhenMore(uint64_t id, absl::AnyInvocable<void() &&> wake) {
  Section section(&chunks_);
  const std::optional<SessionToken> session = events_.SessionOf(id);
  const bool closed = session.has_value() && !sessions_.table.IsOpen(*session);
  events_.WhenMore(id, std::move(wake), closed);
}

}  // namespace store_internal
}  // namespace kvkeep
