// Watch: reports which chunks of one namespace enter and leave the daemon's tiers. For programs
// that track the tiers' contents: a router, an operator's tool.
//
//   auto watch = Watch::Open({.client = {.endpoint = "unix:///run/kvkeep/kvkeep.sock"},
//                             .ns = {.model = "m", .tokens_per_chunk = 256}}).value();
//   while (true) {
//     absl::StatusOr<WatchNews> news = watch->Next(Deadline(5'000));
//     if (!news.ok()) continue;  // away, or nothing new: what is known may be old
//     if (news->begins != WatchBegin::kNo) known.clear();
//     for (const WatchEvent& event : news->events) Apply(event, known);
//   }
//
// Guarantees:
// * A caller that applies the events in order knows, once the snapshot has ended, what a lookup
//   would find. No event is left out or repeated: a stream whose numbers are out of order is given
//   up.
// * When a new snapshot begins, `begins` says so and why: the daemon was restarted, the connection
//   was lost, the caller was too slow, or a device of G3 went away or came back.
// * After the daemon went away, the watch reconnects (with Client's backoff). Before anything else
//   Next reports once, by UNAVAILABLE, that it went away.
// * The daemon waits for no caller. The client keeps one message, besides what gRPC buffers.
//
// A Watch always uses gRPC, with a session of its own: the local path has no such call. A daemon on
// the same host that hangs after its first message, and does not die, looks like one without news.
//
// Threads: one in the background. Next by one thread at a time; the rest is thread-safe.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "client/client.h"
#include "kvkeep/v1/kvkeep.grpc.pb.h"
#include "tiers/base/image.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

class SessionStream;

struct WatchOptions {
  // default_deadline is of each step of the way to the first message; `path` kLocal is refused.
  ClientOptions client;
  NamespaceSpec ns;
};

// One chunk, one tier.
struct WatchEvent {
  ChunkKey key;
  uint32_t part = 0;
  Tier tier = Tier::kG2;
  bool stored = false;  // else removed

  bool operator==(const WatchEvent&) const = default;
};

enum class WatchBegin {
  kNo,           // continues the events before
  kFirst,        // of this Watch
  kReconnected,  // to the same daemon
  kNewDaemon,    // it was restarted
  kMissed,       // the caller was too slow, or a device of G3 went away or came back
};
absl::string_view WatchBeginName(WatchBegin begin);  // "first", "reconnected"

struct WatchNews {
  WatchBegin begins = WatchBegin::kNo;  // not kNo: forget all; a snapshot begins, with changes
  bool snapshot_end = false;            // with these events the snapshot is complete
  uint64_t epoch = 0;                   // the daemon's incarnation
  uint64_t sequence = 0;                // of the first event, from 0 with each connection
  std::vector<WatchEvent> events;
};

class Watch {
 public:
  struct Stats {
    uint64_t connects = 0;        // connections with a first message
    uint64_t begins = 0;          // snapshots that began
    uint64_t events = 0;          // returned by Next
    uint64_t broken_streams = 0;  // given up: the daemon broke the protocol
  };

  // Does not wait for the daemon. INVALID_ARGUMENT: bad options.
  static absl::StatusOr<std::unique_ptr<Watch>> Open(WatchOptions options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Waits for the next news. After any error but CANCELLED it may be called again.
  // DEADLINE_EXCEEDED: nothing has changed within `timeout`. UNAVAILABLE: the daemon is away;
  // returns at once the first time, then after `timeout`. CANCELLED: Cancel was called. Any other
  // error is the daemon's answer; the watch asks again after a while: PERMISSION_DENIED,
  // UNAUTHENTICATED, INVALID_ARGUMENT (the namespace), RESOURCE_EXHAUSTED (sessions, watches).
  absl::StatusOr<WatchNews> Next(Deadline timeout);
  // Ends the Next that waits, and every later one.
  void Cancel();
  Stats GetStats() const;

 private:
  explicit Watch(WatchOptions options) : options_(std::move(options)) {}

  void Run();
  // Connects and hands over messages until the connection ends. Returns why it ended.
  absl::Status RunSession();
  absl::Status AwaitOpen(const SessionStream& session);
  absl::StatusOr<std::string> OpenNamespace(v1::KvCache::Stub* stub, const std::string& token,
                                            const std::string& authorization);
  absl::Status ReadAll(v1::KvCache::Stub* stub, const v1::WatchRequest& request,
                       const std::string& authorization);
  // Makes `context` the call that Cancel ends. Returns false if it is too late.
  bool Begin(grpc::ClientContext* context, const std::string& authorization);
  void End();
  WatchBegin WhyAnew(uint64_t epoch, bool first_message) const;
  // Waits until the caller has taken the news before. Returns false if it never will.
  bool HandOver(WatchNews news);
  void GoneAway(const absl::Status& why);

  const WatchOptions options_;
  uint64_t epoch_ = 0;  // last heard of; the thread's own

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mu_) = nullptr;  // under way
  std::optional<WatchNews> news_ ABSL_GUARDED_BY(mu_);        // not taken yet
  bool watching_ ABSL_GUARDED_BY(mu_) = false;                // the daemon sends news
  bool away_told_ ABSL_GUARDED_BY(mu_) = false;               // Next has said that it is away
  absl::Status away_ ABSL_GUARDED_BY(mu_) = absl::UnavailableError("not connected yet");
  absl::Status untold_ ABSL_GUARDED_BY(mu_);  // for Next to return
  Stats stats_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;  // runs Run(), from Open to the end
};

}  // namespace kvkeep::client
