// State that all listeners of the daemon share: its serving state, its connected peers, and the
// server's own counters.
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

struct ServerCounters {
  using Counter = std::atomic<uint64_t>;
  Counter get_streams{0}, get_frames{0}, get_bytes{0};
  Counter put_streams{0}, put_frames{0}, put_bytes{0}, put_discarded_bytes{0};
  Counter invalid_requests{0};   // calls answered INVALID_ARGUMENT
  Counter cancelled_streams{0};  // Get and Put streams whose client left, or deadline passed
  Counter buffer_registration_failures{0};  // arena segments that io_uring did not take
  Counter stalled_streams{0};               // of those: ended because the client kept them waiting
  Counter pin_waits{0};                     // gets that waited for others to be sent
  Counter connections{0}, refused_connections{0};  // of gRPC
  Counter accept_pauses{0};                        // for want of descriptors
  // Connections that Http2Gate did not read for a while, or cut off, by reason.
  Counter held_for_resets{0}, held_for_memory{0}, held_for_frames{0};
  Counter cut_for_memory{0}, cut_before_ack{0}, cut_for_header_block{0}, cut_for_settings{0},
      cut_for_frame{0};
  Counter unauthenticated_calls{0};                // over TCP
  Counter foreign_session_calls{0};  // with the token of another tenant's session
  Counter admin_calls{0}, denied_admin_calls{0};
  Counter credential_reloads{0}, credential_reload_failures{0};
  Counter renewed_sockets{0};    // their files had gone
  Counter dropped_log_lines{0};  // nobody reads the log, or it cannot be written
  // Gauges: now.
  Counter open_get_streams{0}, open_put_streams{0}, open_session_streams{0};
  Counter open_watch_streams{0};
  Counter pinned_chunks{0}, pinned_bytes{0};  // by Get streams, unsent slices included
  Counter call_memory_bytes{0};               // of gRPC's calls
  Counter tls_not_after_seconds{0};           // when the TLS certificate expires; 0: none
  Counter lost_sockets{0};                    // that no new client can reach
};

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
