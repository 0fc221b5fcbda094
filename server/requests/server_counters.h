// ServerCounters: the server's own counters and gauges, of all listeners but the local path.
//
// Thread-safe: nothing but atomics, each for itself.
#pragma once

#include <atomic>
#include <cstdint>

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
  Counter bulk_connections{0}, refused_bulk_connections{0};
  Counter accept_pauses{0};                        // for want of descriptors
  // Connections that Http2Gate did not read for a while, or cut off, by reason.
  Counter held_for_resets{0}, held_for_memory{0}, held_for_frames{0};
  Counter cut_for_memory{0}, cut_before_ack{0}, cut_for_header_block{0}, cut_for_settings{0},
      cut_for_frame{0};
  Counter unauthenticated_calls{0};  // over TCP
  Counter foreign_session_calls{0};  // with the token of another tenant's session
  Counter admin_calls{0}, denied_admin_calls{0};
  Counter credential_reloads{0}, credential_reload_failures{0};
  Counter renewed_sockets{0};    // their files had gone
  Counter dropped_log_lines{0};  // nobody reads the log, or it cannot be written
  // Gauges: now.
  Counter open_get_streams{0}, open_put_streams{0}, open_session_streams{0};
  Counter open_watch_streams{0}, open_bulk_connections{0};
  Counter pinned_chunks{0}, pinned_bytes{0};  // by Get streams, unsent slices included
  Counter call_memory_bytes{0};               // of gRPC's calls
  Counter tls_not_after_seconds{0};           // when the TLS certificate expires; 0: none
  Counter lost_sockets{0};                    // that no new client can reach
};

}  // namespace kvkeep
