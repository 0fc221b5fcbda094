// Implements kvkeep_watch.h.
#include "client/watch.h"

#include "client/c/arguments.h"
#include "client/c/border.h"
#include "client/c/kvkeep_watch.h"
#include "tiers/base/status_macros.h"

struct kvkeep_watch {
  std::unique_ptr<kvkeep::client::Watch> impl;
  std::vector<kvkeep_watch_event> events;  // of the last news
};

namespace kvkeep::client {
namespace {

static_assert(KVKEEP_WATCH_GOES_ON == static_cast<int>(WatchBegin::kNo) &&
              KVKEEP_WATCH_FIRST == static_cast<int>(WatchBegin::kFirst) &&
              KVKEEP_WATCH_RECONNECTED == static_cast<int>(WatchBegin::kReconnected) &&
              KVKEEP_WATCH_NEW_DAEMON == static_cast<int>(WatchBegin::kNewDaemon) &&
              KVKEEP_WATCH_MISSED == static_cast<int>(WatchBegin::kMissed));

absl::Status OpenWatch(const kvkeep_client_options* options, const kvkeep_namespace_spec* spec,
                       kvkeep_watch** out) {
  if (out == nullptr) return IsNull("out");
  *out = nullptr;
  WatchOptions wanted;
  KVKEEP_ASSIGN_OR_RETURN(wanted.client, OptionsOf(options));
  KVKEEP_ASSIGN_OR_RETURN(wanted.ns, SpecOf(spec));
  auto watch = std::make_unique<kvkeep_watch>();
  KVKEEP_ASSIGN_OR_RETURN(watch->impl, Watch::Open(std::move(wanted)));
  *out = watch.release();
  return absl::OkStatus();
}

absl::Status NextNews(kvkeep_watch* watch, uint32_t timeout_ms, kvkeep_watch_news* given) {
  if (watch == nullptr) return IsNull("watch");
  KVKEEP_ASSIGN_OR_RETURN(const auto reply, Reply<kvkeep_watch_news>::Of("news", given));
  reply.Clear();
  watch->events.clear();
  KVKEEP_ASSIGN_OR_RETURN(const WatchNews news, watch->impl->Next(Deadline(timeout_ms)));
  for (const WatchEvent& event : news.events) {
    kvkeep_watch_event& told = watch->events.emplace_back();
    std::memcpy(told.key.bytes, event.key.bytes.data(), sizeof(told.key.bytes));
    told.part = event.part;
    told.tier = static_cast<uint16_t>(event.tier);
    told.stored = event.stored ? 1 : 0;
  }
  reply.Write({.begins = static_cast<uint32_t>(news.begins),
               .snapshot_end = news.snapshot_end ? 1u : 0u,
               .epoch = news.epoch,
               .event_count = watch->events.size(),
               .events = watch->events.data()});
  return absl::OkStatus();
}

}  // namespace
}  // namespace kvkeep::client

using kvkeep::client::Guarded;
using kvkeep::client::Report;

int kvkeep_watch_open(const kvkeep_client_options* options, const kvkeep_namespace_spec* spec,
                      kvkeep_watch** out, kvkeep_error* error) {
  return Guarded(error,
                 [&] { return Report(kvkeep::client::OpenWatch(options, spec, out), error); });
}

int kvkeep_watch_next(kvkeep_watch* watch, uint32_t timeout_ms, kvkeep_watch_news* news,
                      kvkeep_error* error) {
  return Guarded(error,
                 [&] { return Report(kvkeep::client::NextNews(watch, timeout_ms, news), error); });
}

void kvkeep_watch_cancel(kvkeep_watch* watch) {
  if (watch != nullptr) watch->impl->Cancel();
}

void kvkeep_watch_free(kvkeep_watch* watch) { delete watch; }
