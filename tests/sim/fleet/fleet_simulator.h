// FleetSimulator: one run of several nodes that share a bucket: their clients, events of the nodes
// and the bucket, and the model that judges. A broken rule is a failed check.
//
// The model names a chunk by a number, for its fleet, part and key. All puts under a name, on any
// node of the fleet, are equivalent.
//
// Rules:
// - A read returns the whole bytes of one put under that name, by any node of the fleet. Bytes
//   under a reader never change.
// - What a lease promised of the node's own chunks is a hit, whatever the bucket does.
// - Every call is answered, lookups by their deadline, even if the bucket hangs at the end.
// - A node that knows its bucket to be silent answers as a node without G4.
// - No chunk leaves a node for an offer, and an offer is answered for each chunk.
// - If no object is damaged, no node takes one for bad, not even a stranger's.
// - In the end, with healthy nodes, each node gets every chunk that another one would serve.
// - In the end, with a healthy bucket, each node finds every object of its fleet, asked for by
//   its name and by the one before it. An empty machine does, too. What is missing was bad, and
//   is removed or put anew by then.
// - CheckInvariants always holds. Emptied at the end, each store is empty.
//
// Deletes are not judged: another node may put the chunk again, or have its write under way.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/fleet/fleet_options.h"
#include "tests/sim/fleet/node.h"
#include "tests/sim/held.h"
#include "tests/sim/names.h"
#include "tests/sim/payload.h"
#include "tests/sim/simulation.h"

namespace kvkeep {

// Runs a fleet with the options' number of nodes.
SimulationReport RunFleet(const SimulationOptions& options,
                          FleetOptions::Bucket bucket = FleetOptions::Bucket::kShared);

class FleetSimulator {
 public:
  FleetSimulator(const SimulationOptions& options, FleetOptions::Bucket bucket);

  SimulationReport Run();

 private:
  // A node and its client, which has one session.
  struct Member {
    std::unique_ptr<FleetNode> node;
    size_t fleet = 0;
    SessionToken token;
    NamespaceDigest ns;
    std::vector<HeldLease> leases;
    std::vector<std::shared_ptr<HeldReader>> readers;
    uint64_t process = 0;           // callbacks of an earlier one do not count
    uint64_t due = 0;               // callbacks
    std::multiset<MonotonicTime> answer_by;  // lookups that ask the bucket
    std::set<uint64_t> recalled;    // names, in this process: their bytes may fail to come
  };

  void Step();
  void Act(Member& member, uint64_t pick);
  void Connect(Member& member);
  void LetGo(Member& member);  // of everything that its client holds
  void DoLookup(Member& member);
  void LookupBeyond(Member& member, LookupRequest request, uint64_t first,
                    std::vector<ChunkKey> keys);
  void NoteLease(Member& member, uint64_t first, const LookupResult& result);
  void DoRead(Member& member);
  void StartRead(Member& member, uint64_t name, ReadResult read, bool must);
  void OnPieceReady(Member& member, const std::shared_ptr<HeldReader>& held, size_t piece,
                    const absl::Status& status);
  void DoPut(Member& member);
  void DoRelease(Member& member);
  void DoDropReader(Member& member);
  void DoDelete(Member& member);
  void DoRecall(Member& member);
  void DoOffer(Member& member);
  void CountTaken(const absl::StatusOr<OfferAnswer>& answer, size_t chunks);
  // Returns the member's chunks that it would serve to another node, by name.
  std::set<uint64_t> Served(const Member& member) const;
  void DoEnd(Member& member);  // of its process, or of its machine
  void PassTime(std::chrono::milliseconds time);
  void RunSome(Member& member, uint64_t tasks);
  void CountProcess(const Member& member);
  void DoBucket();  // an outage begins or ends
  void DoPartition();
  void Meddle();
  void CheckReader(const HeldReader& held);
  // Checks that no call waits longer than its limit.
  void CheckAnswered(const Member& member);
  void CheckAll();

  void FinishAll();
  void EndOutages();
  void SettleAll();
  // Recalls every object in the bucket, or finds it bad and removes it. `fresh`: the machine has
  // nothing else.
  void RecallAll(Member& member, bool fresh);
  bool RecallOne(Member& member, uint64_t name, bool alone = false);
  void CheckSummaries(Member& member, uint64_t name, bool came);
  // Returns whether another node of the fleet would serve the chunk.
  bool IsAtPeer(const Member& member, uint64_t name);
  void Empty(Member& member);
  // Runs all that is queued for this node. If nodes ask each other: for all of them.
  void RunAll(Member& member);

  ImageShape RandomShape();
  uint64_t Name(const Member& member, uint64_t key, uint32_t part) const {
    return (member.fleet * 2 + part) * kNames + key;
  }
  ChunkId Id(const Member& member, uint64_t name) const {
    return {member.ns, MakeKey(name % kNames), PartId(name / kNames % 2)};
  }
  std::vector<PartId> Parts() const;
  void NoteRecalled(Member& member, uint64_t first, size_t keys);
  void Log(const Member& member, const std::string& what);
  // Mixes the answer of a call that asks the node alone into the digest.
  void MixLocal(uint64_t value) {
    report_.local_digest = (report_.local_digest ^ value) * 0x100000001b3;
  }

  const SimulationOptions options_;
  const FleetOptions fleet_;
  MemoryObjects bucket_;
  FleetNode::Doors doors_;  // by member
  std::vector<Member> members_;
  std::map<uint64_t, std::vector<Version>> versions_;  // by name: all that was sealed under it
  SeededRandom random_;
  uint64_t next_version_ = 1;
  uint64_t step_ = 0;
  SimulationReport report_;
};

}  // namespace kvkeep
