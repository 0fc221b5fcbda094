// PeerSource: another node of the fleet, as a place that images are read from. FleetSource asks it.
//
// A peer answers from its own G2 and G3 only, never from what lies beyond it, so a question does
// not travel in circles. Its images come in plain, in a header page that the peer made with the
// fleet's MAC key (Tier::kG2, the fleet's place). Bytes count once they are verified.
//
// Find and Read hand over a request and return at once. Each is answered once, later, on any
// thread, never inside the call, soon after its deadline at the latest. Thread-safe.
//
// Errors: NotFound (the peer has no such image), ResourceExhausted (it serves as much as it may;
// ask elsewhere), Unavailable (it does not answer, or the connection broke), DataLoss (what came
// is no whole image). Any other error says that one of the two is misconfigured.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tiers/remote/chunk_summary.h"
#include "tiers/remote/remote_source.h"

namespace kvkeep {

// A chunk that a peer can read.
struct PeerChunk {
  ImageShape shape;
  Tier tier = Tier::kG2;  // kG2 or kG3, where the peer has it

  bool operator==(const PeerChunk&) const = default;
};

// A read of an image from a peer.
struct PeerRead {
  RemoteSource::ReadRequest request;
  // Says whether the header page, which has come by then, is good. If it is not, the read ends with
  // that error, and the peer need not send the rest. Called once at most, before header_done.
  std::function<absl::Status()> check_header;
  // What to do if the peer serves as much as it may while other reads of ours are under way: wait
  // for their end, or fail.
  bool waits_if_busy = false;
};

class PeerSource {
 public:
  // One for each chunk asked for, in that order. None: the peer cannot read it.
  using Found = std::vector<std::optional<PeerChunk>>;

  virtual ~PeerSource() = default;
  // The node's name in the fleet.
  virtual const std::string& name() const = 0;
  // Returns whether the peer would be asked now: it answered lately, or may be tried again. Never
  // waits.
  virtual bool reachable() const = 0;
  // Returns what the peer said that it has, some seconds ago. Null: it is not known. Never waits.
  virtual std::shared_ptr<const ChunkSummary> summary() const { return nullptr; }
  // REQUIRES: some ids, all of one namespace.
  virtual void Find(std::vector<ChunkId> ids, MonotonicTime deadline,
                    std::function<void(absl::StatusOr<Found>)> done) = 0;
  // As RemoteSource::Read. header_done comes before any piece ends.
  virtual void Read(PeerRead read) = 0;
};

}  // namespace kvkeep
