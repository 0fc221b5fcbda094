// Canaries: bugs planted on purpose, to show that the simulator finds such a bug. Only the program
// kvkeep-sim-canary (tests/sim) is compiled with them (KVKEEP_CANARIES); a run of it has the one
// that KVKEEP_CANARY in its environment names. Everywhere else Planted() is false at compile time,
// and the code it guards is not compiled in.
#pragma once

namespace kvkeep {

enum class Canary {
  kVisibleBeforeSealed = 1,  // handles.cc: a put is found from its reservation on
  kReuseUnderLease = 2,      // chunks.cc: G2 evicts what is pinned
  kReuseBeforeRemoval = 3,   // records.cc: extents of G3 free before the batch that removes them
  kLostWakeUp = 4,           // filler.cc: a promotion that ends starts no other one
  kDoubleFree = 5,           // put_calls.cc: the loser of two puts gives its space back twice
  kChecksumSkipped = 6,      // image_verifier.cc: no piece is compared with its checksum
  kPromiseNotReserved = 7,   // granter.cc: what a lease promises gets no space in G2
  kPresentUnsealed = 8,      // put_calls.cc: PRESENT while a put of that size is under way
  kQuotaForgotten = 9,       // device_space.cc: a tenant may hold one chunk more than its quota
  kTakesFromAnybody = 10,    // device_space.cc: the first tenant gives, whatever its share
  kHeaderBelieved = 11,      // filler.cc: an image of the right shape is taken for the chunk's
  kAboveMarkBelieved = 12,   // joiner.cc: in the same boot no record above the mark is in doubt
  kReplacedForgotten = 13,   // records.cc: a record goes at once when its chunk is put anew
  kDoubtEndsEarly = 14,      // confirmer.cc: a chunk is in doubt no more once its header was read
  kDeletedRecalled = 15,     // recaller.cc: what was deleted is recalled while it is found
  // In tiers/remote, found by fleets (tests/sim/fleet).
  kAbsentForEver = 16,      // bucket_source.cc: what was absent once is never asked for again
  kSizeUnchecked = 17,      // bucket_source.cc: a probe does not compare the object's size
  kIdentityUnchecked = 18,  // remote_tier.cc, bucket_source.cc: any chunk's image is taken
  kDeadlineIgnored = 19,    // image_reading.cc: a read waits as long as the bucket does
  kPeerBelieved = 20,       // remote_tier.cc, fleet_source.cc: any chunk's image of a peer is taken
  kOfferEvicts = 21,        // peer_offers.cc: an offer evicts what G2 alone has
  kSummaryLacks = 22,       // peer_reads.cc: a node's summary leaves out what G3 alone has
};

#ifdef KVKEEP_CANARIES
extern const int planted_canary;  // tests/sim/canary.cc
inline bool Planted(Canary canary) { return static_cast<int>(canary) == planted_canary; }
#else
constexpr bool Planted(Canary) { return false; }
#endif

}  // namespace kvkeep
