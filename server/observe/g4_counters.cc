#include "server/observe/g4_counters.h"

#include <chrono>
#include <iterator>

#include "server/observe/g4_requests.h"

namespace kvkeep {
namespace {

using R = RemoteCounters;

constexpr RemoteCounterInfo kRemoteCounters[] = {
    {"g4_searches", &R::searches, {"g4_searches_total", "Searches for chunks in G4 and at peers"}},
    {"g4_searched_chunks",
     &R::searched_chunks,
     {"g4_searched_chunks_total", "Chunks that searches in G4 and at peers were for"}},
    {"g4_found_chunks",
     &R::found_chunks,
     {"g4_found_chunks_total", "Chunks that searches found in G4 or at peers"}},
    {"g4_recalled_chunks",
     &R::recalled_chunks,
     {"g4_recalled_chunks_total", "Chunks that came from G4 or a peer, complete and verified"}},
    {"g4_recalled_bytes",
     &R::recalled_bytes,
     {"g4_recalled_bytes_total", "Payload of the chunks that came from G4 or a peer"}},
    {"g4_read_hits",
     &R::read_hits,
     {"g4_read_hits_total", "Chunks handed to readers while on their way from G4"}},
    {"g4_served_bytes",
     &R::served_bytes,
     {"g4_served_bytes_total",
      "Payload of the chunks handed to readers while on their way from G4"}},
    {"g4_failed_recalls",
     &R::failed_recalls,
     {"g4_failures_total",
      "Recalls, writes and removals of chunks of G4 that failed",
      false,
      1,
      {{"what", "recall"}}}},
    {"g4_failed_writes",
     &R::failed_writes,
     {"g4_failures_total", "", false, 1, {{"what", "write"}}}},
    {"g4_failed_removals",
     &R::failed_removals,
     {"g4_failures_total", "", false, 1, {{"what", "removal"}}}},
    {"g4_recalls_refused",
     &R::recalls_refused,
     {"g4_refused_searches_total",
      "Searches that were not begun, because too many were under way or G4 was not readable"}},
    {"g4_declined_few",
     &R::declined_few,
     {"g4_declined_searches_total",
      "Lookups that could have asked G4 but did not; few: too few chunks were missing; cost: "
      "computing is faster; rate: remote.probes_per_second was used up",
      false,
      1,
      {{"reason", "few"}}}},
    {"g4_declined_cost",
     &R::declined_cost,
     {"g4_declined_searches_total", "", false, 1, {{"reason", "cost"}}}},
    {"g4_declined_rate",
     &R::declined_rate,
     {"g4_declined_searches_total", "", false, 1, {{"reason", "rate"}}}},
    {"g4_overdue_searches",
     &R::overdue_searches,
     {"g4_overdue_searches_total", "Lookups that were answered before the search was over"}},
    {"g4_late_waits",
     &R::late_waits,
     {"g4_late_waits_total",
      "Waits for chunks on their way from G4 that ended, as promised, before the chunks came"}},
    {"g4_recalled_unwritten",
     &R::recalled_unwritten,
     {"g4_recalled_unwritten_total",
      "Chunks recalled from G4 that are written to G3 only when they are used again"}},
    {"g4_no_space",
     &R::no_space,
     {"g4_no_space_chunks_total", "Chunks found in G4 for which G2 had no room"}},
    {"g4_offered_chunks",
     &R::offered_chunks,
     {"g4_offered_chunks_total", "Chunks offered for a write to G4"}},
    {"g4_dropped_chunks",
     &R::dropped_chunks,
     {"g4_dropped_chunks_total",
      "Chunks offered for a write to G4 and not written, because too many waited or they were gone "
      "by then"}},
    {"g4_written_chunks",
     &R::written_chunks,
     {"g4_written_chunks_total", "Chunks written to G4, or found there by their write"}},
    {"g4_written_bytes",
     &R::written_bytes,
     {"g4_written_bytes_total", "Payload of the chunks written to G4"}},
    {"g4_aged_chunks",
     &R::aged_chunks,
     {"g4_aged_chunks_total",
      "Chunks used when their objects might be older than half of g4.lifetime"}},
    {"g4_young_chunks",
     &R::young_chunks,
     {"g4_young_chunks_total",
      "Chunks whose objects, as G4 answered, are younger than half of g4.lifetime"}},
    {"g4_refreshed_chunks",
     &R::refreshed_chunks,
     {"g4_refreshed_chunks_total", "Chunks written to G4 anew, so that they do not expire"}},
    {"g4_refreshed_bytes",
     &R::refreshed_bytes,
     {"g4_refreshed_bytes_total", "Payload of the chunks written to G4 anew"}},
    {"g4_dropped_refreshes",
     &R::dropped_refreshes,
     {"g4_dropped_refreshes_total",
      "Aged chunks that were neither checked nor written anew, because too many waited, they were "
      "gone by then, or G4 did not answer"}},
    {"g4_removed_chunks",
     &R::removed_chunks,
     {"g4_removed_chunks_total", "Chunks removed from G4: deleted, or found bad"}},
    {"g4_given_up_removals",
     &R::given_up_removals,
     {"g4_given_up_removals_total",
      "Bad objects of G4 that stay there, because too many were to be removed"}},
    {"g4_refused_deletes",
     &R::refused_deletes,
     {"g4_refused_deletes_total",
      "Deletes refused, because too many of the tenant's chunks were to be removed from G4"}},
    {"g4_failed_removal_notes",
     &R::failed_removal_notes,
     {"g4_failed_removal_notes_total",
      "Failed writes of the log of removals, which their deletes reported"}},
    {"g4_bad_images",
     &R::bad_images,
     {"g4_bad_objects_total",
      "Objects that are not what their name says, by what revealed it; a bad seal found by a read "
      "counts as image, too",
      false,
      1,
      {{"reason", "image"}}}},
};
static_assert(std::size(kRemoteCounters) * sizeof(uint64_t) == sizeof(RemoteCounters),
              "a field of RemoteCounters is missing here");

using B = BucketSourceCounters;

constexpr SourceCounterInfo kSourceCounters[] = {
    {"g4_bad_seal", &B::bad_seal, {"g4_bad_objects_total", "", false, 1, {{"reason", "seal"}}}},
    {"g4_bad_header",
     &B::bad_header,
     {"g4_bad_objects_total", "", false, 1, {{"reason", "header"}}}},
    {"g4_bad_identity",
     &B::bad_identity,
     {"g4_bad_objects_total", "", false, 1, {{"reason", "identity"}}}},
    {"g4_bad_size", &B::bad_size, {"g4_bad_objects_total", "", false, 1, {{"reason", "size"}}}},
    {"g4_bad_plain", &B::bad_plain, {"g4_bad_objects_total", "", false, 1, {{"reason", "plain"}}}},
    {"g4_removed_bad",
     &B::removed_bad,
     {"g4_removed_bad_objects_total", "Objects that searches found bad and removed"}},
    {"g4_source_searches",
     &B::searches,
     {"g4_source_searches_total", "Searches handed to the object store"}},
    {"g4_search_rounds",
     &B::search_rounds,
     {"g4_search_rounds_total", "Rounds of requests that searches of the object store took"}},
    {"g4_believed_chunks",
     &B::believed_chunks,
     {"g4_believed_chunks_total",
      "Chunks taken to be in G4 because a later chunk of their prefix is"}},
    {"g4_probes",
     &B::probes,
     {"g4_sent_probes_total", "Requests for the header page of one chunk"}},
    {"g4_probes_found",
     &B::probes_found,
     {"g4_probes_total", "Probes by result; late: never sent", false, 1, {{"result", "found"}}}},
    {"g4_probes_absent",
     &B::probes_absent,
     {"g4_probes_total", "", false, 1, {{"result", "absent"}}}},
    {"g4_probes_failed",
     &B::probes_failed,
     {"g4_probes_total", "", false, 1, {{"result", "failed"}}}},
    {"g4_probes_late", &B::probes_late, {"g4_probes_total", "", false, 1, {{"result", "late"}}}},
    {"g4_probes_declined",
     &B::probes_declined,
     {"g4_declined_probes_total", "Probes not sent because of remote.probes_per_second"}},
    {"g4_known_absent",
     &B::known_absent,
     {"g4_known_absent_total", "Keys not asked for because they were absent a while ago"}},
    {"g4_source_reads", &B::reads, {"g4_source_reads_total", "Reads of images begun"}},
    {"g4_source_failed_reads",
     &B::failed_reads,
     {"g4_source_failed_reads_total", "Reads of images that failed"}},
    {"g4_source_read_bytes",
     &B::read_bytes,
     {"g4_source_read_bytes_total", "Bytes of images that were read"}},
    {"g4_source_writes", &B::writes, {"g4_source_writes_total", "Writes of images begun"}},
    {"g4_source_failed_writes",
     &B::failed_writes,
     {"g4_source_failed_writes_total", "Writes of images that failed"}},
    {"g4_source_written_bytes",
     &B::written_bytes,
     {"g4_source_written_bytes_total", "Bytes of images that were written"}},
    {"g4_already_there",
     &B::already_there,
     {"g4_already_there_total",
      "Writes of images that were there already, put by this node or another"}},
    {"g4_replacing_writes",
     &B::replacing_writes,
     {"g4_source_replacing_writes_total",
      "Writes of images begun that replace an object if there is one"}},
    {"g4_source_removes", &B::removes, {"g4_source_removals_total", "Removals of images begun"}},
    {"g4_source_failed_removes",
     &B::failed_removes,
     {"g4_source_failed_removals_total", "Removals of images that failed"}},
    {"g4_replaced_reads",
     &B::replaced,
     {"g4_replaced_reads_total", "Reads whose object was replaced meanwhile"}},
    {"g4_no_versions",
     &B::no_versions,
     {"g4_no_versions_total",
      "Reads in parts of objects for which the object store names no version"}},
};
static_assert(std::size(kSourceCounters) * sizeof(uint64_t) == sizeof(BucketSourceCounters),
              "a field of BucketSourceCounters is missing here");

}  // namespace

std::span<const RemoteCounterInfo> RemoteCounterTable() { return kRemoteCounters; }
std::span<const SourceCounterInfo> SourceCounterTable() { return kSourceCounters; }

const char* G4StateName(ObjectStoreHealth::State state) {
  switch (state) {
    case ObjectStoreHealth::State::kWell: return "well";
    case ObjectStoreHealth::State::kAway: return "away";
    case ObjectStoreHealth::State::kMisconfigured: return "misconfigured";
  }
  return "unknown";
}

// An object with a newer kvkeep's header is not proven bad, and is not removed.
uint64_t BadObjectsOf(const G4Snapshot& g4, const RemoteCounters& counters) {
  return counters.bad_images + g4.source.removed_bad;
}

void AddRemote(const RemoteCounters& counters, MetricFamilies* out) {
  for (const RemoteCounterInfo& info : RemoteCounterTable()) {
    out->Add(info.metric, counters.*info.member);
  }
}

void AddG4(const G4Snapshot& g4, MetricFamilies* out) {
  using State = ObjectStoreHealth::State;
  for (const State state : {State::kWell, State::kAway, State::kMisconfigured}) {
    out->Gauge("g4_state", "1 for the state that G4 is in", g4.health.state == state,
               {{"state", G4StateName(state)}});
  }
  out->Gauge("g4_takes_puts_info", "1 unless G4 is full or refuses puts", g4.health.takes_puts);
  out->Gauge("g4_retry_in_seconds", "Time until G4 is asked again; 0: it is asked at any time",
             std::chrono::duration<double>(g4.health.retry_in).count());
  out->Counter("g4_checks_total", "Requests that only ask whether G4 serves", g4.checks.checks);
  out->Counter("g4_failed_checks_total", "Requests that only ask whether G4 serves, and failed",
               g4.checks.failed_checks);
  out->Gauge("g4_epoch", "The fleet's epoch, which kvkeep clear --g4 increments; 0: the first",
             static_cast<double>(g4.epoch));
  out->Counter("g4_failed_epoch_reads_total", "Reads of the epoch that failed",
               g4.epochs.failed_reads);
  out->Counter("g4_failed_epoch_writes_total", "Writes of the epoch that failed",
               g4.epochs.failed_writes);
  out->Counter("g4_bad_epochs_total", "Epochs read that no node of the fleet wrote",
               g4.epochs.bad_objects);
  for (const SourceCounterInfo& info : SourceCounterTable()) {
    out->Add(info.metric, g4.source.*info.member);
  }
  out->Counter(
      "g4_previous_key_searches_total",
      "Searches under an earlier key of the fleet, for chunks not found under the current one",
      g4.previous_keys.searches);
  out->Counter("g4_previous_key_chunks_total", "Chunks found under an earlier key of the fleet",
               g4.previous_keys.found);
  if (g4.requests.has_value()) AddG4Requests(*g4.requests, out);
  if (g4.keys.has_value()) AddG4Keys(*g4.keys, out);
  if (!g4.directory.has_value()) return;
  out->Counter(
      "g4_leftover_files_total",
      "Removed files that earlier runs of this node had left unfinished in the shared directory",
      g4.directory->leftover_files);
  out->Counter("g4_leftover_bytes_total", "Bytes of the removed unfinished files",
               g4.directory->leftover_bytes);
  out->Counter("g4_unopened_total",
               "Requests that failed because the shared directory or its mark was away",
               g4.directory->unopened);
}

}  // namespace kvkeep
