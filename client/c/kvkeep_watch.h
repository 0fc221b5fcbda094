// kvkeep_watch.h: the C ABI of a watch: which chunks enter and leave the daemon's tiers in one
// namespace. For programs that track the tiers' contents, such as a router. Part of kvkeep.h.
//
//   kvkeep_watch* watch;
//   if (kvkeep_watch_open(&options, &spec, &watch, &error)) return fail(error.message);
//   kvkeep_watch_news news = {.size = sizeof news};
//   while (kvkeep_watch_next(watch, 5000, &news, &error) != KVKEEP_CANCELLED) {
//     // After an error `news` is empty: the daemon is away, or nothing is new.
//     if (news.begins != KVKEEP_WATCH_GOES_ON) forget_all();
//     for (uint64_t i = 0; i < news.event_count; ++i) apply(&news.events[i]);
//   }
//
// A caller that applies the events in order knows, once the snapshot has ended, what a lookup
// finds. No event is left out or repeated. After the daemon went away the watch reconnects. It
// always uses gRPC, with a session of its own. Threads: one at a time calls next; the rest is
// thread-safe.
#pragma once

#include <kvkeep.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvkeep_watch kvkeep_watch;

// One chunk, one tier.
typedef struct kvkeep_watch_event {
  kvkeep_key key;
  uint32_t part;
  uint16_t tier;    // 2: DRAM, 3: NVMe
  uint16_t stored;  // 1: it is there; 0: it is gone
} kvkeep_watch_event;

// Any value but GOES_ON: forget all events before; a snapshot begins, mixed with changes. The value
// says why.
typedef enum kvkeep_watch_begin {
  KVKEEP_WATCH_GOES_ON = 0,
  KVKEEP_WATCH_FIRST = 1,        // of this watch
  KVKEEP_WATCH_RECONNECTED = 2,  // to the same daemon
  KVKEEP_WATCH_NEW_DAEMON = 3,   // it was restarted
  KVKEEP_WATCH_MISSED = 4        // the caller was too slow, or a device of G3 came or went
} kvkeep_watch_begin;

typedef struct kvkeep_watch_news {
  uint32_t size;
  uint32_t begins;        // kvkeep_watch_begin
  uint32_t snapshot_end;  // 1: with these events the snapshot is complete
  uint32_t reserved;
  uint64_t epoch;  // the daemon's incarnation
  uint64_t event_count;
  const kvkeep_watch_event* events;  // until the next kvkeep_watch_next, or the watch's end
} kvkeep_watch_news;

// Does not wait for the daemon. options: kvkeep_connect's; path LOCAL is INVALID_ARGUMENT. End it
// with kvkeep_watch_free.
int kvkeep_watch_open(const kvkeep_client_options* options, const kvkeep_namespace_spec* spec,
                      kvkeep_watch** out, kvkeep_error* error);
// Waits for the next news, at most timeout_ms. DEADLINE_EXCEEDED: nothing has changed. UNAVAILABLE:
// the daemon is away; it returns at once the first time, then after the timeout. CANCELLED:
// kvkeep_watch_cancel was called. Any other error is the daemon's answer; the watch asks again
// after a while: PERMISSION_DENIED, UNAUTHENTICATED, INVALID_ARGUMENT (the namespace),
// RESOURCE_EXHAUSTED (sessions, watches).
int kvkeep_watch_next(kvkeep_watch* watch, uint32_t timeout_ms, kvkeep_watch_news* news,
                      kvkeep_error* error);
// Ends the kvkeep_watch_next that waits, and every later one.
void kvkeep_watch_cancel(kvkeep_watch* watch);
void kvkeep_watch_free(kvkeep_watch* watch);

#ifdef __cplusplus
}  // extern "C"
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif
