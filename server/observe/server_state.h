// State that all listeners of the daemon share: its serving state, its connected peers, and the
// server's own counters (requests/server_counters.h).
//
// Counters only; the store's own are in StoreSnapshot. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/events/publisher_counters.h"
#include "server/local/counters.h"
#include "server/local/message_memory.h"
#include "server/requests/gauge.h"
#include "server/requests/pin_budget.h"
#include "server/requests/request_times.h"
#include "server/requests/server_counters.h"
#include "server/requests/stall_watch.h"
#include "server/sockets/connection_table.h"
#include "server/sockets/socket_watch.h"
#include "server/sockets/unix_socket.h"
#include "server/supervision/http_counters.h"
#include "server/supervision/loop_watch.h"
#include "server/supervision/start_progress.h"
#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"
#include "tiers/store/types.h"

namespace kvkeep {

// The peer of a connection by a client socket.
struct ConnectedPeer {
  PeerCredentials credentials;
  TenantId tenant;  // the socket's
  Grants grants;    // likewise
};

struct StreamLimits {
  PinBudget::Limits pinned;
  std::chrono::milliseconds stall_timeout{30'000};
};

// The configuration in effect. Set by the start, and by each reload.
class ConfigState {
 public:
  std::string hash() const {
    MutexLock lock(&mu_);
    return hash_;
  }
  void NoteTaken(std::string hash, uint64_t unix_seconds) {
    MutexLock lock(&mu_);
    hash_ = std::move(hash);
    last_success_unix_seconds = unix_seconds;
    last_reload_ok = true;
  }
  void NoteRefused() { last_reload_ok = false; }

  std::atomic<bool> last_reload_ok{true};
  std::atomic<uint64_t> last_success_unix_seconds{0};

 private:
  mutable Mutex mu_;
  std::string hash_ ABSL_GUARDED_BY(mu_);
};

struct ServerState {
  explicit ServerState(std::string daemon_version, const Clock* daemon_clock,
                       const StreamLimits& limits = {})
      : version(std::move(daemon_version)),
        clock(daemon_clock),
        started(daemon_clock->Now()),
        pins(limits.pinned),
        stalls(daemon_clock, limits.stall_timeout),
        loops(daemon_clock),
        times(daemon_clock) {}

  const std::string version;
  const Clock* const clock;
  const MonotonicTime started;
  std::atomic<v1::ServingState> serving{v1::SERVING_STATE_RECOVERING};
  ServerCounters counters;
  LocalCounters local;
  PublisherCounters events;
  HttpCounters http;
  std::atomic<bool> local_path{false};  // there is a listener to it
  // By tenant; null without a listener. Do not read before local_path is set.
  std::vector<std::shared_ptr<MessageAccount>> local_messages;
  // Returns null if the tenant has no listener.
  const MessageAccount* MessagesOf(size_t tenant) const {
    const bool there = local_path.load(std::memory_order_acquire);
    return there && tenant < local_messages.size() ? local_messages[tenant].get() : nullptr;
  }
  ConnectionTable<ConnectedPeer> peers;
  PinBudget pins;
  StallWatch stalls;
  StartProgress start;
  LoopWatch loops;
  SocketWatch sockets;
  RequestTimes times;
  ConfigState config;
};

}  // namespace kvkeep
