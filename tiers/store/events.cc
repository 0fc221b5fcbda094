// Who may read events, and EventReader; the rest is EventHub's.
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

absl::StatusOr<uint64_t> Core::BeginEvents(const SessionToken& token, const NamespaceDigest& ns) {
  auto reader = std::make_unique<EventReaderState>();
  EventLog::Memory memory = EventLog::MakeMemory(options_.events.log_entries);
  Section section(&chunks_);
  KVKEEP_ASSIGN_OR_RETURN(const Session* session, sessions_.Find(token));
  KVKEEP_RETURN_IF_ERROR(sessions_.CheckGrant(*session, &Grants::read));
  KVKEEP_RETURN_IF_ERROR(session->FindNamespace(ns).status());
  // As of sessions, each tenant has its part of the readers.
  const uint64_t own = std::max<uint64_t>(1, options_.events.max_readers / pools_.size());
  if (events_.SessionReadersOf(session->tenant()) >= own) {
    ++counters_.event_readers_refused;
    return absl::ResourceExhaustedError(absl::StrCat("watches: all ", own,
                                                     " of this tenant's part of ",
                                                     options_.events.max_readers, " are open"));
  }
  reader->session = token;
  reader->tenant = session->tenant();
  reader->ns = ns;
  return events_.Begin(std::move(reader), memory);
}

uint64_t Core::BeginAllEvents(std::optional<TenantId> tenant) {
  auto reader = std::make_unique<EventReaderState>();
  if (tenant.has_value()) {
    reader->tag = TenantOptions::Tag(options_.tenants[tenant->value()].name);
  }
  EventLog::Memory memory = EventLog::MakeMemory(options_.events.log_entries);
  Section section(&chunks_);
  return events_.Begin(std::move(reader), memory);
}

void Core::EndEvents(uint64_t id) {
  EventLog::Memory unused;  // outlives the lock
  std::unique_ptr<EventReaderState> ended;
  Section section(&chunks_);
  ended = events_.End(id, &unused);
}

absl::StatusOr<EventBatch> Core::NextEvents(uint64_t id) {
  EventBatch batch;
  batch.events.reserve(EventHub::kMostInBatch + 1);  // a chunk may be in two tiers
  Section section(&chunks_);
  const std::optional<SessionToken> session = events_.SessionOf(id);
  if (session.has_value()) KVKEEP_RETURN_IF_ERROR(sessions_.Find(*session).status());
  events_.Next(id, &batch);
  return batch;
}

void Core::WhenMoreEvents(uint64_t id, absl::AnyInvocable<void() &&> wake) {
  Section section(&chunks_);
  const std::optional<SessionToken> session = events_.SessionOf(id);
  const bool closed = session.has_value() && !sessions_.IsOpen(*session);
  events_.WhenMore(id, std::move(wake), closed);
}

}  // namespace store_internal
}  // namespace kvkeep
