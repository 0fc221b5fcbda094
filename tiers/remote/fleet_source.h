// FleetSource: RemoteSource over the other nodes of a fleet and, if there is one, over what they
// share (G4). Peers are asked first: their DRAM is nearer than any bucket.
//
// Find asks at most `most_peers` reachable peers at the same time and waits `ask_peers_within` for
// them, or until each chunk was found in a peer's G2. If more are reachable, it asks those whose
// summaries (chunk_summary.h) have most of the chunks in a row; then, by chance, those whose
// summaries say nothing of the chunks; then those that lack them, as they may have got them since.
// What none of the peers has, from the first chunk on, is then looked for in G4. A chunk is found
// if a peer or G4 has it. FleetSource remembers for `remember_for` which peers have a chunk.
//
// Read takes the image from a peer that is known to have it: one that has it in G2 before one that
// has it in G3, then the one with the fewest reads of ours under way. If that peer fails before it
// has told a good header page, the next one is asked, and G4 at last. A read that fails later
// fails as a whole: pieces that were told stay, and are of one put.
//
// Header pages of peers are checked here (MAC, identity, place, not encrypted), so that a peer with
// another key or a fault counts as one that does not have the chunk. A chunk that a peer said it
// has and did not send, or whose image from a peer was bad, is taken from G4 alone for
// `distrust_for`: no peer's fault hides the image that G4 has.
//
// Writes, removals, ages and epochs are G4's. A deleted chunk is not removed at peers, which have
// copies of their own.
//
// Thread-safe. No lock is held over a call of a source or a callback. The destructor REQUIRES that
// all requests are answered.
#pragma once

#include <absl/container/flat_hash_set.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/base/random.h"
#include "tiers/remote/chunk_summary.h"
#include "tiers/remote/fading_map.h"
#include "tiers/remote/offered_chunk.h"
#include "tiers/remote/peer_source.h"
#include "tiers/remote/remote_source.h"

namespace kvkeep {

struct FleetSourceOptions {
  // By TenantTagOf. Peers are not asked for chunks of other tenants. None: all tenants are shared.
  std::optional<absl::flat_hash_set<uint32_t>> shared_tenants;
  size_t most_peers = 3;  // that one Find asks
  std::chrono::milliseconds ask_peers_within{5};
  std::chrono::milliseconds remember_for{30'000};
  size_t remembered_chunks = 1 << 16;  // the oldest are forgotten first
  std::chrono::milliseconds distrust_for{60'000};
  size_t distrusted_chunks = 1 << 14;  // the oldest are trusted again first
};

struct FleetSourceCounters {
  uint64_t searches = 0;        // that asked a peer
  uint64_t questions = 0;       // to peers
  uint64_t spared_questions = 0;  // to peers beyond `most_peers` whose summaries lack the chunks
  uint64_t late_questions = 0;    // not answered in time
  uint64_t failed_questions = 0;
  uint64_t found_chunks = 0;    // at a peer
  uint64_t reads = 0;           // that a peer was asked for
  uint64_t read_bytes = 0;      // told as read well, header pages not counted
  uint64_t busy_reads = 0;      // not served: the peer serves as much as it may
  uint64_t absent_reads = 0;    // not served: the peer does not have the image any more
  uint64_t failed_reads = 0;    // not served for another reason
  uint64_t bad_headers = 0;     // of those: the header page was not as it must be
  uint64_t cut_reads = 0;       // that failed after the header page was told
  uint64_t distrusted = 0;      // chunks, each time that a peer's image was absent or bad
  uint64_t read_elsewhere = 0;  // images that G4 was asked for after a peer had not served them
};

class FleetSource final : public RemoteSource {
 public:
  using Peers = std::vector<std::shared_ptr<PeerSource>>;

  // Borrowed. `shared`: G4; null: there is none. `executor` runs answers that no source gives.
  struct Parts {
    RemoteSource* shared = nullptr;
    Executor* executor = nullptr;
    Clock* clock = nullptr;
    RandomSource* random = nullptr;
  };
  // `place` and `mac_key` are the fleet's: those of `shared`, if there is one.
  FleetSource(const FleetSourceOptions& options, const Uuid& place, const MacKey& mac_key,
              const Parts& parts);
  ~FleetSource() override;

  // Replaces the peers. Reads from earlier ones go on.
  void SetPeers(Peers peers);
  // Notes that a peer has these chunks, as it says itself, beside others that are known to have
  // them. NotFound: there is no such peer. Unavailable: it is not reachable, and nothing is noted.
  absl::Status NoteHolder(const std::string& peer, const std::vector<OfferedChunk>& chunks);
  FleetSourceCounters counters() const;
  size_t most_peers() const { return options_.most_peers; }

  void Find(std::vector<ChunkId> ids, Wanted wanted, MonotonicTime deadline,
            std::function<void(Found)> done) override;
  void Age(const ChunkId& id,
           std::function<void(absl::StatusOr<std::chrono::seconds>)> done) override;
  void Read(ReadRequest request) override;
  void Write(WriteRequest request) override;
  uint64_t epoch() const override;
  void Remove(const ChunkId& id, std::function<void(absl::Status)> done) override;
  bool readable() const override;
  bool writable() const override;
  bool keeps() const override { return shared_ != nullptr && shared_->keeps(); }
  bool removable() const override { return shared_ != nullptr && shared_->removable(); }
  bool may_find(const NamespaceDigest& ns) const override;
  bool may_ask_age() const override;
  bool TakeQuestion(const NamespaceDigest& ns) override;
  void NoteBad(const ChunkId& id) override;
  const Uuid& place() const override { return place_; }
  const MacKey& mac_key() const override { return mac_key_; }

 private:
  // A peer, with the reads of ours that it has under way.
  struct Member {
    std::shared_ptr<PeerSource> peer;
    std::atomic<uint32_t> reading{0};
  };
  using MemberPtr = std::shared_ptr<Member>;
  struct Holder {
    MemberPtr member;
    Tier tier = Tier::kG2;
  };
  struct Known {
    ImageShape shape;
    std::vector<Holder> holders;
  };
  struct Finding;
  struct Reading;

  // Returns the peers to ask for these chunks, which are of one namespace.
  std::vector<MemberPtr> PeersToAsk(std::span<const ChunkId> ids, Wanted wanted);
  bool reaches_any() const;
  bool shares(const NamespaceDigest& ns) const;  // with the fleet
  void OnAnswer(const std::shared_ptr<Finding>& finding, const MemberPtr& member,
                const absl::StatusOr<PeerSource::Found>& answer);
  void Remember(const Finding& finding);
  static void AddHolder(Known& known, const MemberPtr& member, Tier tier);
  // Notes who else has chunks that were found already.
  void OnLateAnswer(const Finding& finding, const MemberPtr& member,
                    const PeerSource::Found& answer);
  // `in_find`: inside the call of Find, where nothing may be answered.
  void AskShared(const std::shared_ptr<Finding>& finding, bool in_find);
  // Returns who may have the chunk, the best one last.
  std::vector<Holder> TakeHolders(const ChunkId& id);
  void ReadNext(const std::shared_ptr<Reading>& reading);
  void ReadFrom(const std::shared_ptr<Reading>& reading, const MemberPtr& member);
  absl::Status CheckHeader(const ReadRequest& request) const;
  void OnPeerFailed(Reading& reading, absl::Status why);
  bool reads_shared() const { return shared_ != nullptr && shared_->readable(); }
  void Count(uint64_t FleetSourceCounters::*counter, uint64_t by = 1);

  const FleetSourceOptions options_;
  const Uuid place_;
  const MacKey mac_key_;
  const NameHash hash_;
  RemoteSource* const shared_;
  Executor& executor_;
  Clock& clock_;
  RandomSource& random_;

  mutable Mutex mu_;
  std::vector<MemberPtr> members_ ABSL_GUARDED_BY(mu_);
  FleetSourceCounters counters_ ABSL_GUARDED_BY(mu_);
  FadingMap<Known> known_ ABSL_GUARDED_BY(mu_);
  struct Nothing {};
  FadingMap<Nothing> distrusted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
