// StorePeer: another node of a simulated fleet as a PeerSource, over that node's real store.
//
// PeerDoor is the side of the node that is asked: others reach its store while it is open.
// StorePeer is the side of the process that asks. Requests are carried out step by step on the
// asking node's executor, in any order, with the faults of a network and of a peer that is mistaken
// or sick. Its summary is as old as the test has it. An image is sent piece by piece, as the pieces
// come there, and padded with zeros.
//
// Reads are answered by a deadline of their own. Close and Abandon are a kill of the two sides; no
// store may end before. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/remote/peer_source.h"
#include "tiers/store/store.h"

namespace kvkeep {

struct PeerFaults {
  double delay = 0;  // of each step: it comes some turns later
  double lost = 0;   // of questions and reads: answered only at their deadline
  double busy = 0;
  double cut = 0;          // of pieces: the connection breaks there
  double flipped = 0;      // of header pages and pieces: a bit
  double hides = 0;        // of chunks asked for
  double other_shape = 0;  // likewise: found with another shape
  double other_image = 0;  // of reads: another chunk's image
  double other_place = 0;  // of reads: a header page of another place, key or form

  double sum() const {
    return lost + busy + cut + flipped + hides + other_shape + other_image + other_place;
  }
};

class StorePeer;

class PeerDoor {
 public:
  // Headers of images are made with the fleet's place and key.
  PeerDoor(std::string name, const Uuid& place, const MacKey& mac_key)
      : name_(std::move(name)), place_(place), mac_key_(mac_key) {}

  void Open(Store* store) { store_ = store; }
  // Breaks all connections.
  void Close();
  bool reachable() const { return store_ != nullptr && !cut_off; }
  Store* store() const { return store_; }  // null: closed

  bool cut_off = false;  // the node reaches nobody and is reached by nobody

 private:
  friend class StorePeer;
  const std::string name_;
  const Uuid place_;
  const MacKey mac_key_;
  Store* store_ = nullptr;
  std::vector<StorePeer*> askers_;
};

class StorePeer final : public PeerSource {
 public:
  // `of`: the node that is asked; `own`: the one that asks. All outlive this.
  StorePeer(PeerDoor* of, PeerDoor* own, ManualExecutor* executor, ManualClock* clock,
            uint64_t seed, const PeerFaults& faults);
  ~StorePeer() override;

  const std::string& name() const override { return of_.name_; }
  bool reachable() const override { return of_.reachable() && !own_.cut_off; }
  std::shared_ptr<const ChunkSummary> summary() const override { return summary_; }
  void Find(std::vector<ChunkId> ids, MonotonicTime deadline,
            std::function<void(absl::StatusOr<Found>)> done) override;
  void Read(PeerRead read) override;

  // Answers what is due. Called as time passes.
  void Tick();
  // Answers nothing any more, as its process ends.
  void Abandon();
  // Takes the summary of the chunks that the peer has now, if it is reachable.
  void TakeSummary(const TenantTags& tenants);
  void Reseed(uint64_t seed) { random_ = SeededRandom(seed); }
  void set_faults(const PeerFaults& faults) { faults_ = faults; }
  uint64_t faults_injected() const { return injected_; }

 private:
  friend class PeerDoor;
  struct Question;
  struct Serving;

  bool Happens(double chance);
  void Later(Executor::Task task, int turns = -1);
  void Answer(const std::shared_ptr<Question>& question);
  void Begin(const std::shared_ptr<Serving>& serving);
  void Await(const std::shared_ptr<Serving>& serving);
  void Send(const std::shared_ptr<Serving>& serving);
  absl::Status SendHeader(Serving& serving);
  void SendPiece(Serving& serving);
  void Fail(const std::shared_ptr<Serving>& serving, const absl::Status& why);
  void DropReaders();

  PeerDoor& of_;
  PeerDoor& own_;
  ManualExecutor& executor_;
  ManualClock& clock_;
  SeededRandom random_;
  PeerFaults faults_;
  uint64_t injected_ = 0;
  std::shared_ptr<const ChunkSummary> summary_;
  std::vector<ChunkId> known_;  // some that were asked for
  std::vector<std::shared_ptr<Question>> questions_;
  std::vector<std::shared_ptr<Serving>> servings_;
};

}  // namespace kvkeep
