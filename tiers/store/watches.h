// Watches: the calls that read events (events.h), and EventReader. It decides who may read.
// EventHub (event_hub.h) has the events.
//
// Owns nothing. The contracts of the calls are in store.h and events.h. The calls take the store's
// lock.
#pragma once

#include <optional>

#include "tiers/store/chunks.h"
#include "tiers/store/event_hub.h"
#include "tiers/store/sessions.h"

namespace kvkeep::store_internal {

class Watches {
 public:
  // All pointers are borrowed.
  Watches(const StoreOptions& options, Chunks* chunks, EventHub* events, Sessions* sessions);

  // Both return the number of a new reader: of a namespace that the session has open; of a tenant's
  // namespaces or, without a tenant, of all.
  absl::StatusOr<uint64_t> Begin(const SessionToken& token, const NamespaceDigest& ns);
  uint64_t BeginAll(std::optional<TenantId> tenant);

  // ---- for EventReader, which has a number here
  void End(uint64_t reader);
  absl::StatusOr<EventBatch> Next(uint64_t reader);
  void WhenMore(uint64_t reader, absl::AnyInvocable<void() &&> wake);

 private:
  const StoreOptions& options_;  // as at the start
  Chunks& chunks_;
  EventHub& events_;
  Sessions& sessions_;
};

}  // namespace kvkeep::store_internal
