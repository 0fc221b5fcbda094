// StoreCounters: what the store counts. A plain struct of 64-bit fields, which
// server/observe/counters.cc names one by one.
#pragma once

#include <cstdint>

namespace kvkeep {

// Counts since the start. Every one exists at zero from the start; each becomes a metric.
struct StoreCounters {
  uint64_t lookups = 0, lookup_keys = 0, lookup_leading_keys = 0;
  // A hit is a chunk that was handed to a reader; it counts for the tier that had the chunk when it
  // was asked for. By gRPC, and to a GPU without a lease, each read counts. By the local path a
  // chunk counts once, when a lease tells its place, however often it is read there. A miss is a
  // chunk that was asked for in one of these ways and is in no tier. A lease that was shortened
  // counts no miss, as the rest is asked for again. A lookup that hands out nothing counts neither.
  // A chunk that is on its way from beyond the node is a hit of RemoteCounters.
  uint64_t read_g2_hits = 0, read_g3_hits = 0, read_misses = 0, read_busy = 0;
  uint64_t served_g2_bytes = 0, served_g3_bytes = 0;  // payload of the hits
  // Rejected: Reserve refused the put. Aborted: it was reserved and not sealed, as for a wrong
  // checksum or a full table.
  uint64_t puts_stored = 0, puts_present = 0, puts_rejected = 0, puts_aborted = 0;
  uint64_t put_bytes = 0, promoted_bytes = 0, written_back_bytes = 0;
  uint64_t g2_evictions = 0, g3_evictions = 0, unbacked_evictions = 0;
  uint64_t promotions = 0, promotions_failed = 0, promotions_shared = 0;
  // Runs of blocks that promotions read. A run that continues the one before does not count.
  uint64_t promotion_runs = 0;
  uint64_t write_backs = 0, write_backs_failed = 0, write_backs_cancelled = 0;
  uint64_t write_backs_encrypted = 0;
  uint64_t g2_windows_emptied = 0, g3_windows_emptied = 0;  // for an image that needed one piece
  uint64_t write_backs_moved = 0;  // queued anew, as their device took no writes
  // How often G3's admission refused a chunk, and the bytes of the images.
  uint64_t second_use_refusals = 0, second_use_refused_bytes = 0;
  uint64_t write_budget_refusals = 0, write_budget_refused_bytes = 0;
  // Encrypted chunks of G3 that became misses: a tag did not match; their key is not in the ring.
  uint64_t unauthentic_chunks = 0, keyless_chunks = 0;
  uint64_t corrupt_chunks = 0, stale_records = 0, deleted_chunks = 0;
  uint64_t scrubbed_chunks = 0, scrubbed_bytes = 0, scrub_damaged_chunks = 0, scrub_rounds = 0;
  uint64_t scrub_skipped_chunks = 0;  // of tenants that are no more
  // Failed reads after which the chunk kept its record; chunks that failed reads made misses for
  // good; suspects that were read whole later; suspects that the scrub read.
  uint64_t suspect_reads = 0, unreadable_chunks = 0, suspects_cleared = 0, suspect_rereads = 0;
  uint64_t index_commits = 0, index_commit_failures = 0, syncs = 0, sync_failures = 0;
  uint64_t allocation_failures = 0;  // of a page or buffer, which make a miss or put work off
  uint64_t host_short_ios = 0;  // I/O that failed as the host had no memory
  uint64_t recency_saved_chunks = 0, recency_saved_bytes = 0;  // entries of the index
  uint64_t recency_dropped = 0;  // entries that had no record any more, at the start
  uint64_t recency_walks = 0;  // saves that looked at all chunks, not knowing which were touched
  uint64_t learning_skipped = 0;  // chains, comings and goings that a policy did not learn from
  uint64_t denied_calls = 0;  // answered PERMISSION_DENIED for want of a grant
  uint64_t foreign_read_chunks = 0, foreign_read_bytes = 0;  // of those served: of another tenant
  uint64_t device_silences = 0;
  uint64_t leases_granted = 0, leases_shortened = 0, sessions_opened = 0, sessions_closed = 0;
  uint64_t sessions_revoked = 0, leases_revoked = 0;
  uint64_t recovered_chunks = 0, recovery_dropped_chunks = 0;  // from devices
  uint64_t missed_delete_overflows = 0;  // joins that dropped all, as too much was deleted before
  uint64_t recovered_g2_chunks = 0, recovery_dropped_g2_chunks = 0;
  // Events told to readers; events missed by readers that fell behind; restarts of such readers.
  uint64_t events_told = 0, events_missed = 0, event_restarts = 0, event_readers_refused = 0;
  uint64_t lock_acquisitions = 0, lock_held_ns = 0, lock_held_ns_max = 0;
  // The longest hold, in CPU time of its thread, so that waiting for a CPU does not count.
  uint64_t lock_worked_ns_max = 0;
};

// Counters of what lies beyond the node.
struct RemoteCounters {
  uint64_t searches = 0, searched_chunks = 0, found_chunks = 0;
  uint64_t recalled_chunks = 0, recalled_bytes = 0;  // payload
  // Chunks handed to readers while on their way here. Once they are here, they are hits of G2.
  uint64_t read_hits = 0, served_bytes = 0;
  uint64_t failed_recalls = 0;   // chunks that were found, and did not come
  uint64_t recalls_refused = 0;  // too many were under way, or the source was not readable
  // Lookups that did not ask: few chunks were missing; waiting for the chunks would have taken
  // longer than computing them; the source may not be asked more in this second. The last one
  // counts other recalls, too.
  uint64_t declined_few = 0, declined_cost = 0, declined_rate = 0;
  uint64_t overdue_searches = 0;  // lookups answered without a late source
  uint64_t late_waits = 0;        // waits for a chunk that ended before it came
  uint64_t recalled_unwritten = 0;  // chunks that came, and go to G3 only when used again
  uint64_t no_space = 0;         // chunks that were found: no room in G2, or in the table
  uint64_t offered_chunks = 0;
  uint64_t dropped_chunks = 0;  // of those: the queue was full, or they were gone at their turn
  uint64_t written_chunks = 0, written_bytes = 0, failed_writes = 0;
  // Chunks that were used when their images might be older than half a lifetime: all of them; those
  // whose image was found to be younger; those written anew; those dropped, as too many waited, the
  // chunk was gone at its turn, or no answer came. The images of the rest were not there.
  uint64_t aged_chunks = 0, young_chunks = 0;
  uint64_t refreshed_chunks = 0, refreshed_bytes = 0, dropped_refreshes = 0;
  uint64_t removed_chunks = 0, failed_removals = 0;
  uint64_t given_up_removals = 0;  // bad images that stay: too many were to be removed
  uint64_t refused_deletes = 0;    // calls, as too many removals of the tenant waited
  uint64_t failed_removal_notes = 0;  // writes of the log of removals
  uint64_t bad_images = 0;  // images that were not whole, or another chunk's
};

// Counters of offers of nodes that leave the fleet: their chunks, those that came, and chunks that
// left G2 for them.
struct OfferCounters {
  uint64_t offers = 0, offered_chunks = 0, taken_chunks = 0, displaced_chunks = 0;
};

// Counters of one tenant's chunks.
struct TenantCounters {
  uint64_t puts_rejected = 0;
  uint64_t g2_evictions = 0, g3_evictions = 0;
  uint64_t g3_quota_evictions = 0;  // of g3_evictions: its own quota was full
  uint64_t g3_pushed_out = 0;       // of g3_evictions: for another tenant, as it had too much
  uint64_t g3_quota_refusals = 0;   // chunks that stayed out of G3 because of the quota
  uint64_t forgotten = 0;           // chunks, in a full table where it was above its share
  uint64_t key_rate_refusals = 0;   // calls, and chunks of puts, over its keys_per_second
  uint64_t byte_rate_refusals = 0;  // likewise, over its bytes_per_second
};

}  // namespace kvkeep
