// LocalCounters: counters of the local path. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvkeep {

struct LocalCounters {
  using Counter = std::atomic<uint64_t>;
  Counter connections{0};          // accepted, refused ones included
  Counter refused_connections{0};  // not allowed, or one too many
  Counter broken_connections{0};   // cut off: framing, too much unread, no handshake
  Counter late_messages{0};        // cut off: half a message, or replies unread, for too long
  Counter refused_messages{0};     // no memory for them (LocalLimits::max_message_bytes)
  Counter passed_descriptors{0};   // closed: passed where none is expected
  Counter revoked_sessions{0};     // answered no ping
  Counter dead_processes{0};       // ended while somebody else still held their socket
  Counter accept_pauses{0};        // no descriptor was to be had
  Counter lookups{0}, gets{0}, puts{0}, touches{0}, prefetches{0}, releases{0}, deletes{0};
  Counter session_requests{0};  // handshakes, namespaces, memory, server info
  Counter errors{0};            // requests answered with an error
  Counter put_bytes{0};         // copied
  Counter put_discarded_bytes{0};
  Counter waited_puts{0};   // for space that other sessions' puts held
  Counter stalled_puts{0};  // in parts, given up as their clients wrote no more
  Counter late_put_chunks{0};  // rejected, as not read by their put's absolute deadline
  Counter gpu_puts{0}, gpu_gets{0};
  Counter gpu_get_bytes{0};      // copied to GPUs
  Counter gpu_refusals{0};       // registrations refused
  Counter gpu_over_limit{0};     // registrations, gets and copies over a limit
  Counter gpu_denied{0};         // registrations that their tenant may not make
  Counter gpu_kept_requests{0};  // for ever: their copies cannot be ended
  Counter arriving_chunks{0};    // leased while on their way from G3
  // Gauges: now.
  Counter open_connections{0};
  Counter puts_copying{0};
  Counter gpu_gets_copying{0};
  Counter gpu_pinned_bytes{0};  // of chunks that such gets hold
  Counter gpu_registrations{0};
  Counter gpu_registered_bytes{0};
  Counter progress_words{0};
  Counter message_bytes{0};        // half messages, puts not done, replies not read
  Counter closing_descriptors{0};  // not closed yet: passed by peers, or of ended connections
  Counter staging_bytes{0};
  Counter staging_areas{0};  // sessions with staging memory
  Counter registered_bytes{0};
};

}  // namespace kvkeep
