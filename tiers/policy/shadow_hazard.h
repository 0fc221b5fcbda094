// ShadowHazard: a shadow tier that gives up what HazardModel thinks is worth the least.
//
// Records are of chunks that it holds, and of those it held or heard of lately (ghosts, up to
// kGhosts times as many): a chunk that comes back teaches the model even when it is not held. A
// group is the chunks that one request touched last and that have equal features. So they have one
// age and one worth. Groups lie in the model's cells, in the order of time, and move from bucket to
// bucket as time goes by. Under the objective seconds those that hold something lie in the cell of
// their worth (chain_worth.h), about in the order of time. The victim is the deepest chunk of the
// oldest group of the cell with the least rank.
//
// Leaf first: a chunk without the one before it in its chain is of no use. A group whose deepest
// chunk has children that are held is set aside when it is next to go, until they have gone by
// their own worth. Requests tell the parent of a chunk. Where that is wrong (a chunk was removed,
// chains contradict each other), a parent may go too soon, or last of all.
//
// 40 bytes a record, 56 a group; conversation traces have a group for 7 records.
#pragma once

#include <array>
#include <memory>

#include "tiers/policy/chain_worth.h"
#include "tiers/policy/hazard_model.h"
#include "tiers/policy/hazard_records.h"
#include "tiers/policy/shadow_tier.h"

namespace kvkeep {

class ShadowHazard final : public ShadowTier {
 public:
  static constexpr uint32_t kGhosts = 3;
  static constexpr uint32_t kTouchesPerEstimate = 1024;  // or an eighth of the capacity
  // Sooner than that after an estimate, the next one waits for so many times the touches.
  static constexpr std::chrono::milliseconds kBetweenEstimates{50};
  static constexpr uint32_t kTimesTouches = 32;
  static constexpr int kMovesPerRequest = 256;
  static constexpr int kMostGroupsOfRequest = 24;  // by their features
  static constexpr int kVictimSteps = 64;          // groups set aside for one victim

  // A request on its way. `leading` is known when it is over.
  struct Playing {
    std::span<const Key> chain;
    MonotonicTime now;
    uint32_t leading = 0;
    // Play's own.
    size_t stage = 0, done = 0;  // of the stage: links, or whatever it does one by one
    HazardModel::Chain described;
    // Groups by features. SameGroup tells whether one is still this request's.
    std::vector<std::pair<HazardModel::Features, uint32_t>> groups;
  };
  static constexpr Steps kStepsPerLink = 10;  // what Play takes for each link of a chain, about

  // `shares_memory_with` as PolicyOptions has it.
  ShadowHazard(uint32_t max_chunks, ShadowHazard* shares_memory_with,
               Objective objective = Objective::kHits);

  // Goes on with the play; returns whether there is more to do. The chain must live until it
  // returns false.
  bool Play(Playing& playing, Steps& steps);
  uint32_t Request(std::span<const Key> chain, MonotonicTime now) override;
  void Bring(Key chunk, std::optional<Key> parent, MonotonicTime now) override;
  bool Holds(Key chunk) const override;
  bool Knows(Key chunk) const override { return memory_->table.Find(chunk) != kNone; }
  std::optional<Key> Victim() override;
  void Drop(Key chunk, bool evicted) override;

  // Numbers of records are below this. KeyOf returns the chunk whose record has the number, if
  // there is one.
  uint32_t numbers() const { return memory_->table.used(); }
  std::optional<Key> KeyOf(uint32_t number) const;

  uint64_t estimates() const { return estimates_; }
  std::string SaveModel() const { return model_.Save(); }
  bool LoadModel(absl::string_view saved);

 private:
  static constexpr uint32_t kNone = FingerprintTable::kNone;
  using Memory = HazardRecords;
  using Record = Memory::Record;
  using Links = Memory::Links;
  using Group = Memory::Group;
  using List = Memory::List;

  Record& At(uint32_t record) { return memory_->records[record]; }
  Group& GroupAt(uint32_t group) { return memory_->groups[group]; }
  static int CellOf(const Group& group) { return HazardModel::Cell(group.level, group.bucket); }
  // Returns the cell by whose rank the group goes; the list where it is, or belongs, by in_held.
  static int HeldCellOf(const Group& group) { return HazardModel::Cell(group.worth, group.bucket); }
  List& HeldListOf(const Group& group);

  // Just behind `younger`, or as the youngest; `links` is in_cell or in_held.
  void LinkGroup(List& list, uint32_t group, Links Group::*links, uint32_t younger = kNone);
  void UnlinkGroup(List& list, uint32_t group, Links Group::*links);
  uint32_t NewGroup(const HazardModel::Features& features, uint32_t chain, MonotonicTime now);
  void PlaceGroup(uint32_t group);
  void DisplaceGroup(uint32_t group);
  void MarkHeld(int cell);
  // SetAside: the group is next, but cannot go because of its children. OfferAgain: it can go, or
  // may be able to.
  void SetAside(uint32_t group);
  void OfferAgain(uint32_t group);

  uint32_t NewRecord(Key chunk);
  void Join(uint32_t record, uint32_t group);
  // Also frees a group that is empty then.
  void Leave(uint32_t record);
  // Makes the record held, as the deepest or else the shallowest of its group's held records.
  void Hold(uint32_t record, bool deepest);
  void Release(uint32_t record);
  // Turns a held record into a ghost.
  void Evict(uint32_t record);
  void SetParent(uint32_t record, uint32_t parent);
  void AddChild(uint32_t parent);
  void RemoveChild(uint32_t parent);
  void LinkGhost(uint32_t record);
  void UnlinkGhost(uint32_t record);
  void ForgetOldestGhost();
  bool TooManyGhosts() const;
  void TrimGhosts();
  // Returns whether the record stayed.
  bool Admit(uint32_t record);

  // Moves at most `most` groups to the buckets of their age. Returns how many moved.
  int Advance(MonotonicTime now, int most);
  // Stages of a request, in this order. Each goes on for a slice; returns whether it is over.
  bool AdvanceSome(Playing& playing, Steps& steps);
  bool MakeRoom(Playing& playing, Steps& steps);
  bool FindKnown(Playing& playing, Steps& steps);
  bool Regroup(Playing& playing, Steps& steps);
  bool TellParents(Playing& playing, Steps& steps);
  bool AdmitAbsent(Playing& playing, Steps& steps);
  bool TrimSome(Playing& playing, Steps& steps);
  bool EstimateSome(Playing& playing, Steps& steps);
  bool EstimateIsDue(MonotonicTime now) const;
  using Stage = bool (ShadowHazard::*)(Playing& playing, Steps& steps);
  static constexpr std::array<Stage, 8> kStages = {
      &ShadowHazard::AdvanceSome, &ShadowHazard::MakeRoom,    &ShadowHazard::FindKnown,
      &ShadowHazard::Regroup,     &ShadowHazard::TellParents, &ShadowHazard::AdmitAbsent,
      &ShadowHazard::TrimSome,    &ShadowHazard::EstimateSome};
  // Returns the record of the chain's chunk just before `done`, or kNone.
  uint32_t RecordBefore(const Playing& playing) const;
  // Returns whether the group is still the request's with those features: it may be gone, and its
  // number another's.
  bool SameGroup(const Playing& playing, const HazardModel::Features& features,
                 uint32_t group) const;
  void RegroupOne(uint32_t record, const HazardModel::Features& features, Playing& playing);
  // Returns the record that goes next, or kNone if nothing is held.
  uint32_t Worst();
  // Returns the next group by rank and age that is not set aside.
  uint32_t WorstGroup() const;
  void RankAnew();

  const Objective objective_;
  const std::shared_ptr<Memory> memory_;
  const uint16_t owner_ = ++memory_->owners;
  HazardModel model_;
  std::array<List, HazardModel::kCells> cells_;       // all groups
  std::array<List, HazardModel::kCells> held_cells_;  // those that hold something
  // By rank: whether the cell holds something.
  std::array<uint64_t, (HazardModel::kCells + 63) / 64> held_ranks_{};
  List aside_;  // groups, in the order in which they were set aside
  List ghosts_;
  uint32_t ghost_count_ = 0, held_count_ = 0;
  Steps set_aside_ = 0;   // groups, ever
  uint32_t touches_ = 0;  // since the last estimate
  uint64_t estimates_ = 0;
  MonotonicTime advanced_{0}, estimated_at_{0};
  std::vector<uint32_t> records_;  // of the slice
};

}  // namespace kvkeep
