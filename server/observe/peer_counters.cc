#include "server/observe/peer_counters.h"

#include <absl/strings/str_cat.h>

#include <iterator>

namespace kvkeep {
namespace {

template <typename Counters>
struct PeerCounterInfo {
  const char* name;  // in Admin.Status
  uint64_t Counters::*member;
  MetricInfo metric;
};
using FromPeers = FleetSourceCounters;
constexpr char kNotServed[] =
    "Reads that a peer did not serve; busy: it serves as much as it may; absent: it does not have "
    "the chunk any more; failed: it does not answer, or answers wrongly";
const PeerCounterInfo<FromPeers> kPeerSource[] = {
    {"peer_searches", &FromPeers::searches, {"peer_searches_total", "Searches that asked peers"}},
    {"peer_questions",
     &FromPeers::questions,
     {"peer_questions_total", "Questions of searches to peers"}},
    {"peer_spared_questions",
     &FromPeers::spared_questions,
     {"peer_spared_questions_total", "Peers not asked, as their summaries lack the chunks"}},
    {"peer_late_questions",
     &FromPeers::late_questions,
     {"peer_failed_questions_total",
      "Questions to peers without an answer; late: none within 5 ms",
      false,
      1,
      {{"reason", "late"}}}},
    {"peer_failed_questions",
     &FromPeers::failed_questions,
     {"peer_failed_questions_total", "", false, 1, {{"reason", "failed"}}}},
    {"peer_found_chunks",
     &FromPeers::found_chunks,
     {"peer_found_chunks_total", "Chunks that searches found at peers"}},
    {"peer_reads", &FromPeers::reads, {"peer_reads_total", "Images that peers were asked for"}},
    {"peer_read_bytes",
     &FromPeers::read_bytes,
     {"peer_read_bytes_total", "Bytes of images that came from peers"}},
    {"peer_busy_reads",
     &FromPeers::busy_reads,
     {"peer_unserved_reads_total", kNotServed, false, 1, {{"reason", "busy"}}}},
    {"peer_absent_reads",
     &FromPeers::absent_reads,
     {"peer_unserved_reads_total", "", false, 1, {{"reason", "absent"}}}},
    {"peer_failed_reads",
     &FromPeers::failed_reads,
     {"peer_unserved_reads_total", "", false, 1, {{"reason", "failed"}}}},
    {"peer_bad_headers",
     &FromPeers::bad_headers,
     {"peer_bad_headers_total",
      "Images of peers whose header page is not this fleet's, or another chunk's"}},
    {"peer_cut_reads",
     &FromPeers::cut_reads,
     {"peer_cut_reads_total", "Images of peers that broke off after their header page"}},
    {"peer_distrusted",
     &FromPeers::distrusted,
     {"peer_distrusted_total", "Chunks taken from G4 alone for a while: a peer's image was bad"}},
    {"peer_read_elsewhere",
     &FromPeers::read_elsewhere,
     {"peer_read_elsewhere_total", "Images read from G4 after no peer had served them"}},
};

using ToPeers = ServedSnapshot;
const PeerCounterInfo<ToPeers> kPeerServed[] = {
    {"peer_served_finds",
     &ToPeers::finds,
     {"peer_served_finds_total", "Questions of peers that were answered"}},
    {"peer_served_found_chunks",
     &ToPeers::found_chunks,
     {"peer_served_found_chunks_total", "Chunks that peers asked for and this node had"}},
    {"peer_served_summaries",
     &ToPeers::summaries,
     {"peer_served_summaries_total", "Peers' calls for the summary of this node's chunks"}},
    {"peer_served_fetches", &ToPeers::fetches, {"peer_served_fetches_total", "Reads of peers"}},
    {"peer_served_bytes",
     &ToPeers::fetched_bytes,
     {"peer_served_bytes_total", "Bytes of images sent to peers"}},
    {"peer_served_from_g3",
     &ToPeers::from_g3,
     {"peer_served_from_g3_total", "Images sent to peers that were on NVMe"}},
    {"peer_served_busy",
     &ToPeers::busy,
     {"peer_served_busy_total", "Reads of peers refused: over a limit, or G2 had no space"}},
    {"peer_served_absent",
     &ToPeers::absent,
     {"peer_served_absent_total", "Reads of peers for chunks that were not there any more"}},
    {"peer_served_refused",
     &ToPeers::refused,
     {"peer_served_refused_total",
      "Calls of callers that are no peers, or for tenants that are not shared"}},
    {"peer_served_offered_chunks",
     &ToPeers::offered_chunks,
     {"peer_served_offered_chunks_total", "Chunks that peers offered before they were taken away"}},
    {"peer_served_taken_chunks",
     &ToPeers::taken_chunks,
     {"peer_served_taken_chunks_total", "Offered chunks that came from the peer"}},
    {"peer_served_untaken_chunks",
     &ToPeers::untaken_chunks,
     {"peer_served_untaken_chunks_total", "Offered chunks that had no room, or did not come"}},
};

using Handed = HandedSnapshot;
const PeerCounterInfo<Handed> kPeerHanded[] = {
    {"peer_offers", &Handed::offers, {"peer_offers_total", "Offers to peers in drains"}},
    {"peer_handed_chunks",
     &Handed::chunks,
     {"peer_handed_chunks_total", "Chunks that peers had after an offer"}},
    {"peer_handed_bytes",
     &Handed::bytes,
     {"peer_handed_bytes_total", "Bytes of images that peers took after an offer"}},
    {"peer_refused_chunks",
     &Handed::refused_chunks,
     {"peer_refused_chunks_total", "Offered chunks that a peer did not take"}},
};

static_assert(std::size(kPeerSource) * sizeof(uint64_t) == sizeof(FleetSourceCounters),
              "a row is missing");
static_assert(std::size(kPeerServed) * sizeof(uint64_t) == sizeof(ServedSnapshot),
              "a row is missing");
static_assert(std::size(kPeerHanded) * sizeof(uint64_t) == sizeof(HandedSnapshot),
              "a row is missing");

}  // namespace

void AddPeers(const FleetSnapshot& fleet, MetricFamilies* out) {
  for (const PeerLinkSnapshot& peer : fleet.peers) {
    out->Gauge("peer_up", "1 while the peer answers", peer.up, {{"peer", peer.name}});
  }
  for (const PeerLinkSnapshot& peer : fleet.peers) {
    out->Counter("peer_downs_total", "Times that the peer ceased to answer", peer.downs,
                 {{"peer", peer.name}});
  }
  for (const PeerLinkSnapshot& peer : fleet.peers) {
    out->Counter("peer_refusals_total", "Calls that the peer did not permit", peer.refusals,
                 {{"peer", peer.name}});
  }
  for (const PeerLinkSnapshot& peer : fleet.peers) {
    out->Counter("peer_summaries_total", "New summaries of the peer's chunks that came",
                 peer.summaries, {{"peer", peer.name}});
  }
  for (const PeerLinkSnapshot& peer : fleet.peers) {
    out->Counter("peer_failed_summaries_total", "Summaries of the peer's chunks that did not come",
                 peer.failed_summaries, {{"peer", peer.name}});
  }
  for (const PeerLinkSnapshot& peer : fleet.peers) {
    out->Gauge("peer_waiting_reads", "Reads that wait for others of the same peer to end",
               peer.waiting, {{"peer", peer.name}});
  }
  for (const auto& info : kPeerSource) out->Add(info.metric, fleet.source.*info.member);
  for (const auto& info : kPeerServed) out->Add(info.metric, fleet.served.*info.member);
  for (const auto& info : kPeerHanded) out->Add(info.metric, fleet.handed.*info.member);
}

void FillPeers(const FleetSnapshot& fleet, v1::StatusResponse* out) {
  for (const PeerLinkSnapshot& peer : fleet.peers) {
    std::string& state = (*out->mutable_peers())[peer.name];
    state = peer.up ? "up" : peer.why.empty() ? "not tried yet" : peer.why;
    if (peer.up && peer.refusals > 0) absl::StrAppend(&state, "; refuses: ", peer.refusal);
  }
  auto& all = *out->mutable_counters();
  for (const auto& info : kPeerSource) all[info.name] = fleet.source.*info.member;
  for (const auto& info : kPeerServed) all[info.name] = fleet.served.*info.member;
  for (const auto& info : kPeerHanded) all[info.name] = fleet.handed.*info.member;
}

}  // namespace kvkeep
