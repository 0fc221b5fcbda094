#include "tiers/policy/shadow_hazard.h"

#include <algorithm>
#include <bit>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

using std::chrono::duration;

constexpr auto kAdvanceEvery = std::chrono::milliseconds(250);

// Steps that things take, in a slice of a request.
using Steps = ShadowTier::Steps;
constexpr Steps kLookAtCells = 40;                    // at all of them
constexpr Steps kMove = 3;                            // of a group to its next bucket
constexpr Steps kForget = 5;                          // a ghost
constexpr Steps kFind = 2, kRegroup = 4, kAdmit = 3;  // a chunk
constexpr Steps kEstimate = 150;                      // a part

// Returns the weight of each chunk in a chain of so many chunks.
float WeightOf(uint32_t chain) { return 1.0f / static_cast<float>(chain); }

}  // namespace

ShadowHazard::ShadowHazard(uint32_t max_chunks, ShadowHazard* shares_memory_with,
                           Objective objective)
    : objective_(objective),
      memory_(shares_memory_with != nullptr
                  ? shares_memory_with->memory_
                  : std::make_shared<Memory>(std::min<uint64_t>(
                        uint64_t{max_chunks} * (kGhosts + 1), UINT32_MAX - 1))) {}

// ---- groups in cells

ShadowHazard::List& ShadowHazard::HeldListOf(const Group& group) {
  return group.aside ? aside_ : held_cells_[HeldCellOf(group)];
}

void ShadowHazard::LinkGroup(List& list, uint32_t at, Links Group::*links, uint32_t younger) {
  const uint32_t older = younger == kNone ? list.youngest : (GroupAt(younger).*links).older;
  GroupAt(at).*links = {.older = older, .younger = younger};
  (older == kNone ? list.oldest : (GroupAt(older).*links).younger) = at;
  (younger == kNone ? list.youngest : (GroupAt(younger).*links).older) = at;
}

void ShadowHazard::UnlinkGroup(List& list, uint32_t at, Links Group::*links) {
  const Links& own = GroupAt(at).*links;
  uint32_t& from_younger =
      own.younger == kNone ? list.youngest : (GroupAt(own.younger).*links).older;
  uint32_t& from_older = own.older == kNone ? list.oldest : (GroupAt(own.older).*links).younger;
  KVKEEP_CHECK(from_younger == at && from_older == at);
  from_younger = own.older;
  from_older = own.younger;
}

void ShadowHazard::MarkHeld(int cell) {
  const auto rank = static_cast<uint32_t>(model_.RankOf(cell));
  const uint64_t bit = uint64_t{1} << (rank % 64);
  if (held_cells_[cell].oldest == kNone) {
    held_ranks_[rank / 64] &= ~bit;
  } else {
    held_ranks_[rank / 64] |= bit;
  }
}

void ShadowHazard::PlaceGroup(uint32_t at) {
  const Group& group = GroupAt(at);
  const int cell = CellOf(group);
  LinkGroup(cells_[cell], at, &Group::in_cell);
  model_.AddLive(cell, group.weight * group.records);
  if (group.held == 0) return;
  LinkGroup(HeldListOf(group), at, &Group::in_held);
  MarkHeld(HeldCellOf(group));
}

void ShadowHazard::DisplaceGroup(uint32_t at) {
  const Group& group = GroupAt(at);
  const int cell = CellOf(group);
  KVKEEP_CHECK(group.owner == owner_);
  UnlinkGroup(cells_[cell], at, &Group::in_cell);
  model_.AddLive(cell, -double{group.weight} * group.records);
  if (group.held == 0) return;
  UnlinkGroup(HeldListOf(group), at, &Group::in_held);
  MarkHeld(HeldCellOf(group));
}

void ShadowHazard::SetAside(uint32_t at) {
  Group& group = GroupAt(at);
  KVKEEP_CHECK(!group.aside && group.held > 0);
  UnlinkGroup(HeldListOf(group), at, &Group::in_held);
  group.aside = true;
  LinkGroup(aside_, at, &Group::in_held);
  MarkHeld(HeldCellOf(group));
}

// The group was the oldest of its cell, and becomes that again.
void ShadowHazard::OfferAgain(uint32_t at) {
  Group& group = GroupAt(at);
  if (!group.aside) return;
  UnlinkGroup(aside_, at, &Group::in_held);
  group.aside = false;
  List& list = HeldListOf(group);
  LinkGroup(list, at, &Group::in_held, list.oldest);
  MarkHeld(HeldCellOf(group));
}

uint32_t ShadowHazard::NewGroup(const HazardModel::Features& features, uint32_t chain,
                                MonotonicTime now) {
  uint32_t at = memory_->free_group;
  if (at != kNone) {
    memory_->free_group = GroupAt(at).in_cell.older;
  } else {
    KVKEEP_CHECK(memory_->groups_used < memory_->table.used());
    at = memory_->groups_used++;  // there are no more groups than records
    memory_->group_memory.Use(uint64_t{memory_->groups_used} * sizeof(Group));
  }
  const int level = model_.LevelOf(features);
  const int worth = level + HazardModel::LevelsBetween(WorthOfEach(objective_, chain));
  GroupAt(at) = {.time = now,
                 .features = features,
                 .weight = WeightOf(chain),
                 .level = static_cast<uint16_t>(level),
                 .bucket = 0,
                 .records = 0,
                 .held = 0,
                 .deepest = kNone,
                 .shallowest = kNone,
                 .in_cell = {},
                 .in_held = {},
                 .aside = false,
                 .worth = static_cast<uint8_t>(std::min(worth, HazardModel::kLevels - 1)),
                 .owner = owner_};
  PlaceGroup(at);
  return at;
}

// Every group that is too old for its bucket goes into the next one; the oldest are in front.
int ShadowHazard::Advance(MonotonicTime now, int most) {
  int moves = 0;
  for (int bucket = 0; bucket + 1 < HazardModel::kBuckets; ++bucket) {
    const auto end =
        std::chrono::duration_cast<MonotonicTime>(duration<double>(HazardModel::EndOf(bucket)));
    for (int level = 0; level < HazardModel::kLevels; ++level) {
      const int cell = HazardModel::Cell(level, bucket);
      while (cells_[cell].oldest != kNone && now - GroupAt(cells_[cell].oldest).time >= end) {
        if (moves == most) return moves;
        ++moves;
        const uint32_t at = cells_[cell].oldest;
        Group& group = GroupAt(at);
        DisplaceGroup(at);
        model_.Outlived(group.features, cell, group.weight * group.records);
        ++group.bucket;
        PlaceGroup(at);
      }
    }
  }
  advanced_ = now;
  return moves;
}

// ---- records in groups

uint32_t ShadowHazard::NewRecord(Key chunk) {
  const uint32_t at = memory_->table.Insert(chunk);
  if (at == kNone) return at;
  memory_->record_memory.Use(uint64_t{memory_->table.used()} * sizeof(Record));
  At(at) = {.group = kNone,
            .older = kNone,
            .younger = kNone,
            .parent = kNone,
            .behind = 0,
            .children = 0,
            .hits = 0,
            .held = 0};
  LinkGhost(at);
  return at;
}

void ShadowHazard::LinkGhost(uint32_t at) {
  Record& record = At(at);
  record.older = ghosts_.youngest;
  record.younger = kNone;
  (ghosts_.youngest == kNone ? ghosts_.oldest : At(ghosts_.youngest).younger) = at;
  ghosts_.youngest = at;
  ++ghost_count_;
}

void ShadowHazard::UnlinkGhost(uint32_t at) {
  const Record& record = At(at);
  uint32_t& from_younger = record.younger == kNone ? ghosts_.youngest : At(record.younger).older;
  uint32_t& from_older = record.older == kNone ? ghosts_.oldest : At(record.older).younger;
  KVKEEP_CHECK(from_younger == at && from_older == at && ghost_count_ > 0);
  from_younger = record.older;
  from_older = record.younger;
  --ghost_count_;
}

void ShadowHazard::AddChild(uint32_t parent) {
  if (parent != kNone && At(parent).children < Memory::kManyChildren) ++At(parent).children;
}

void ShadowHazard::RemoveChild(uint32_t parent) {
  if (parent == kNone) return;
  Record& record = At(parent);
  // The number may belong to another chunk by now, even one of another owner.
  if (record.group == kNone || GroupAt(record.group).owner != owner_) return;
  if (record.children == 0 || record.children == Memory::kManyChildren) return;
  --record.children;
  if (record.children == 0 && record.held) OfferAgain(record.group);
}

void ShadowHazard::SetParent(uint32_t at, uint32_t parent) {
  Record& record = At(at);
  if (record.parent == parent || at == parent) return;
  if (record.held) {
    RemoveChild(record.parent);
    AddChild(parent);
  }
  record.parent = parent;
}

void ShadowHazard::Join(uint32_t at, uint32_t to) {
  KVKEEP_CHECK(At(at).group == kNone);
  At(at).group = to;
  Group& group = GroupAt(to);
  ++group.records;
  model_.AddLive(CellOf(group), group.weight);
}

void ShadowHazard::Leave(uint32_t at) {
  const uint32_t from = At(at).group;
  KVKEEP_CHECK(from != kNone && !At(at).held);
  Group& group = GroupAt(from);
  KVKEEP_CHECK(group.records > group.held);
  At(at).group = kNone;
  model_.AddLive(CellOf(group), -group.weight);
  if (--group.records > 0) return;
  DisplaceGroup(from);
  group.in_cell.older = memory_->free_group;
  memory_->free_group = from;
}

void ShadowHazard::Hold(uint32_t at, bool deepest) {
  Record& record = At(at);
  KVKEEP_CHECK(record.group != kNone && !record.held);
  Group& group = GroupAt(record.group);
  KVKEEP_CHECK(group.held < group.records);
  record.held = true;
  record.older = deepest ? kNone : group.shallowest;
  record.younger = deepest ? group.deepest : kNone;
  (record.younger == kNone ? group.shallowest : At(record.younger).older) = at;
  (record.older == kNone ? group.deepest : At(record.older).younger) = at;
  ++held_count_;
  if (++group.held > 1) {
    if (deepest) OfferAgain(record.group);
    return;
  }
  List& list = held_cells_[HeldCellOf(group)];
  uint32_t behind = kNone;
  for (int steps = 0; deepest && steps < kMostGroupsOfRequest; ++steps) {
    const uint32_t next = behind == kNone ? list.youngest : GroupAt(behind).in_held.older;
    if (next == kNone || GroupAt(next).time != group.time) break;
    behind = next;  // of the same request, and so shallower
  }
  LinkGroup(list, record.group, &Group::in_held, behind);
  MarkHeld(HeldCellOf(group));
}

void ShadowHazard::Release(uint32_t at) {
  Record& record = At(at);
  Group& group = GroupAt(record.group);
  KVKEEP_CHECK(record.held && group.held > 0 && held_count_ > 0);
  uint32_t& from_younger = record.younger == kNone ? group.shallowest : At(record.younger).older;
  uint32_t& from_older = record.older == kNone ? group.deepest : At(record.older).younger;
  KVKEEP_CHECK(from_younger == at && from_older == at);
  from_younger = record.older;
  from_older = record.younger;
  const bool was_deepest = record.older == kNone;
  record.held = false;
  --held_count_;
  if (--group.held > 0) {
    if (was_deepest) OfferAgain(record.group);
    return;
  }
  UnlinkGroup(HeldListOf(group), record.group, &Group::in_held);
  group.aside = false;
  MarkHeld(HeldCellOf(group));
}

void ShadowHazard::ForgetOldestGhost() {
  const uint32_t oldest = ghosts_.oldest;
  KVKEEP_CHECK(oldest != kNone);
  UnlinkGhost(oldest);
  Leave(oldest);
  memory_->table.Erase(oldest);
}

bool ShadowHazard::TooManyGhosts() const { return ghost_count_ > uint64_t{kGhosts} * held_count_; }

void ShadowHazard::TrimGhosts() {
  for (int i = 0; i < 2 && TooManyGhosts(); ++i) ForgetOldestGhost();
}

// ---- what is told

void ShadowHazard::RankAnew() {
  held_ranks_.fill(0);
  for (int cell = 0; cell < HazardModel::kCells; ++cell) MarkHeld(cell);
}

bool ShadowHazard::SameGroup(const Playing& playing, const HazardModel::Features& features,
                             uint32_t at) const {
  const Group& group = memory_->groups[at];
  return group.records > 0 && group.owner == owner_ && group.time == playing.now &&
         group.features == features &&
         group.weight == WeightOf(static_cast<uint32_t>(playing.chain.size()));
}

void ShadowHazard::RegroupOne(uint32_t at, const HazardModel::Features& features,
                              Playing& playing) {
  const bool held = At(at).held;
  held ? Release(at) : UnlinkGhost(at);
  if (At(at).group != kNone) Leave(at);
  auto group = std::find_if(playing.groups.begin(), playing.groups.end(),
                            [&](const auto& known) { return known.first == features; });
  if (group == playing.groups.end()) {
    playing.groups.emplace_back(features, kNone);
    group = playing.groups.end() - 1;
  }
  if (group->second == kNone || !SameGroup(playing, features, group->second)) {
    const auto length = static_cast<uint32_t>(playing.chain.size());
    group->second = NewGroup(features, length, playing.now);
  }
  Join(at, group->second);
  held ? Hold(at, false) : LinkGhost(at);
}

bool ShadowHazard::Admit(uint32_t at) {
  UnlinkGhost(at);
  Hold(at, true);
  AddChild(At(at).parent);
  // Evicts one chunk more than it brings, so that a capacity that has shrunk is reached in the end.
  for (int i = 0; i < 2 && held_count_ > capacity_; ++i) {
    const uint32_t worst = Worst();
    KVKEEP_CHECK(worst != kNone);
    Evict(worst);
    if (worst == at) return false;
    changes_.push_back({.chunk = memory_->table.KeyOf(worst), .held = false});
  }
  changes_.push_back({.chunk = memory_->table.KeyOf(at), .held = true});
  return true;
}

// ---- a request

bool ShadowHazard::AdvanceSome(Playing& playing, Steps& steps) {
  if (playing.done == 0) touches_ += static_cast<uint32_t>(playing.chain.size());
  if (playing.now - advanced_ < kAdvanceEvery) return true;
  const size_t left = kMovesPerRequest - playing.done;
  const auto most = static_cast<int>(InSlice(left, kMove, steps));
  const int moves = Advance(playing.now, most);
  steps -= kLookAtCells + kMove * moves;
  playing.done += static_cast<size_t>(moves);
  return moves < most || playing.done == kMovesPerRequest;  // the next request goes on
}

// Forgets ghosts before the request's own records exist, so that none of those is forgotten.
bool ShadowHazard::MakeRoom(Playing& playing, Steps& steps) {
  for (; steps > 0; steps -= kForget) {
    if (memory_->table.room() >= playing.chain.size() || ghost_count_ == 0) return true;
    ForgetOldestGhost();
  }
  return false;
}

bool ShadowHazard::FindKnown(Playing& playing, Steps& steps) {
  HazardModel::Chain& described = playing.described;
  const size_t end = playing.done + InSlice(playing.chain.size() - playing.done, kFind, steps);
  memory_->table.Prefetch(playing.chain.subspan(playing.done, end - playing.done));
  for (; playing.done < end; ++playing.done, steps -= kFind) {
    const uint32_t at = memory_->table.Find(playing.chain[playing.done]);
    if (at == kNone) break;
    if (At(at).held && playing.leading == playing.done) ++playing.leading;
    ++described.known;
    const uint32_t behind = At(at).behind;
    described.continues = described.known >= behind && (described.known >= 2 || behind <= 2);
  }
  if (playing.done == end && end < playing.chain.size()) return false;
  described.length = static_cast<uint32_t>(playing.chain.size());
  return true;
}

// Tail first, so that in each group the deepest come first.
bool ShadowHazard::Regroup(Playing& playing, Steps& steps) {
  const std::span<const Key> chain = playing.chain;
  const size_t end = chain.size() - playing.done;
  const size_t begin = end - InSlice(end, kRegroup, steps);
  const std::span<const Key> keys = chain.subspan(begin, end - begin);
  memory_->table.Prefetch(keys);
  records_.clear();
  for (const Key& chunk : keys) {
    uint32_t at = memory_->table.Find(chunk);
    if (at == kNone) at = NewRecord(chunk);
    records_.push_back(at);  // kNone: full
  }
  for (const uint32_t at : records_) {
    if (at != kNone) __builtin_prefetch(&At(at));
  }
  constexpr uint32_t kAhead = 8;
  for (size_t i = keys.size(); i-- > 0;) {
    if (i >= kAhead && records_[i - kAhead] != kNone) {
      const uint32_t ahead = At(records_[i - kAhead]).group;
      if (ahead != kNone) __builtin_prefetch(&GroupAt(ahead));
    }
    if (records_[i] == kNone) continue;
    Record& record = At(records_[i]);
    const auto is_own = [&](const auto& known) {
      return known.second == record.group && SameGroup(playing, known.first, known.second);
    };
    if (std::any_of(playing.groups.begin(), playing.groups.end(), is_own)) continue;  // twice
    if (record.group != kNone) {
      const Group& group = GroupAt(record.group);
      model_.Touched(group.features, CellOf(group), group.weight);
      if (record.hits < Memory::kMostHits) ++record.hits;
    }
    record.behind =
        static_cast<uint32_t>(std::min<size_t>(chain.size() - 1 - begin - i, Memory::kMostBehind));
    RegroupOne(records_[i], HazardModel::Describe(playing.described, record.behind, record.hits),
               playing);
  }
  playing.done += keys.size();
  steps -= static_cast<Steps>(kRegroup * keys.size());
  return begin == 0;
}

uint32_t ShadowHazard::RecordBefore(const Playing& playing) const {
  return playing.done == 0 ? kNone : memory_->table.Find(playing.chain[playing.done - 1]);
}

// Sets the parents of held chunks; absent ones get theirs as they are admitted. The first chunk
// keeps the parent it has: engines ask for ends of chains, too.
bool ShadowHazard::TellParents(Playing& playing, Steps& steps) {
  uint32_t before = RecordBefore(playing);
  for (; playing.done < playing.chain.size() && steps > 0; ++playing.done, --steps) {
    const uint32_t at = memory_->table.Find(playing.chain[playing.done]);
    if (at != kNone && before != kNone && At(at).held) SetParent(at, before);
    before = at;
  }
  return playing.done == playing.chain.size();
}

bool ShadowHazard::AdmitAbsent(Playing& playing, Steps& steps) {
  uint32_t before = RecordBefore(playing);
  for (; playing.done < playing.chain.size() && steps > 0; ++playing.done, --steps) {
    const uint32_t at = memory_->table.Find(playing.chain[playing.done]);
    if (at != kNone && !At(at).held) {
      const Steps set_aside = set_aside_;
      At(at).parent = before == at ? kNone : before;
      const bool stays = Admit(at);
      steps -= kAdmit + set_aside_ - set_aside;
      if (!stays) return true;
    }
    before = at;
  }
  return playing.done == playing.chain.size();
}

bool ShadowHazard::TrimSome(Playing& playing, Steps& steps) {
  for (; playing.done < playing.chain.size() && steps > 0; ++playing.done, steps -= 2 * kForget) {
    if (!TooManyGhosts()) return true;
    TrimGhosts();
  }
  return playing.done == playing.chain.size();
}

// The first bucket ends after a quarter of a second, so an estimate each few milliseconds would
// tell little more, and cost as much as all else. Without a clock touches alone decide.
bool ShadowHazard::EstimateIsDue(MonotonicTime now) const {
  const uint64_t of_capacity = capacity_ == UINT32_MAX ? 0 : capacity_ / 8;
  const uint64_t touches = std::max<uint64_t>(kTouchesPerEstimate, of_capacity);
  const bool long_ago = estimates_ == 0 || now - estimated_at_ >= kBetweenEstimates;
  return touches_ >= (long_ago ? touches : kTimesTouches * touches);
}

// A request that began an estimate works on it to its end, unless another request has ended it.
bool ShadowHazard::EstimateSome(Playing& playing, Steps& steps) {
  if (playing.done == 0) {
    if (!EstimateIsDue(playing.now)) return true;
    touches_ = 0;
    estimated_at_ = playing.now;
    ++estimates_;
    model_.BeginEstimate();
  }
  for (; steps > 0; steps -= kEstimate, ++playing.done) {
    if (model_.EstimatePart()) continue;
    RankAnew();
    return true;
  }
  return false;
}

bool ShadowHazard::Play(Playing& playing, Steps& steps) {
  while (playing.stage < kStages.size() && steps > 0) {
    if (!(this->*kStages[playing.stage])(playing, steps)) continue;
    ++playing.stage;
    playing.done = 0;
  }
  return playing.stage < kStages.size();
}

uint32_t ShadowHazard::Request(std::span<const Key> chain, MonotonicTime now) {
  Playing playing{.chain = chain, .now = now};
  Steps steps = kToTheEnd;
  Play(playing, steps);
  return playing.leading;
}

void ShadowHazard::Bring(Key chunk, std::optional<Key> parent, MonotonicTime now) {
  if (Knows(chunk)) return;
  const uint32_t at = NewRecord(chunk);
  if (at == kNone) return;
  const uint32_t before = parent.has_value() ? memory_->table.Find(*parent) : kNone;
  if (before != kNone && At(before).group != kNone) {
    At(at).parent = before;
    Join(at, At(before).group);
  } else {
    Join(at, NewGroup(HazardModel::Describe({.length = 1}, 0, 0), 1, now));
  }
  Admit(at);
  TrimGhosts();
}

bool ShadowHazard::Holds(Key chunk) const {
  const uint32_t at = memory_->table.Find(chunk);
  return at != kNone && memory_->records[at].held;
}

std::optional<ShadowTier::Key> ShadowHazard::KeyOf(uint32_t number) const {
  const uint32_t group = memory_->records[number].group;
  if (group == kNone || memory_->groups[group].owner != owner_) return std::nullopt;
  return memory_->table.KeyOf(number);
}

uint32_t ShadowHazard::WorstGroup() const {
  for (size_t word = 0; word < held_ranks_.size(); ++word) {
    if (held_ranks_[word] == 0) continue;
    const auto rank = static_cast<int>(word * 64 + std::countr_zero(held_ranks_[word]));
    return held_cells_[model_.CellOf(rank)].oldest;
  }
  return kNone;
}

uint32_t ShadowHazard::Worst() {
  for (int steps = 0;; ++steps) {
    uint32_t group = WorstGroup();
    if (group == kNone) group = aside_.oldest;  // chains that contradict each other
    if (group == kNone) return kNone;
    const uint32_t deepest = GroupAt(group).deepest;
    const bool leaf = At(deepest).children == 0;
    if (leaf || GroupAt(group).aside || steps == kVictimSteps) return deepest;
    SetAside(group);  // the others of it are above that one
    ++set_aside_;
  }
}

std::optional<ShadowTier::Key> ShadowHazard::Victim() {
  const uint32_t worst = Worst();
  if (worst == kNone) return std::nullopt;
  return memory_->table.KeyOf(worst);
}

void ShadowHazard::Evict(uint32_t at) {
  Release(at);
  LinkGhost(at);
  RemoveChild(At(at).parent);
  At(at).parent = kNone;
}

void ShadowHazard::Drop(Key chunk, bool evicted) {
  const uint32_t at = memory_->table.Find(chunk);
  if (at == kNone) return;
  if (At(at).held) Evict(at);
  if (evicted) return TrimGhosts();
  UnlinkGhost(at);
  Leave(at);
  memory_->table.Erase(at);
}

bool ShadowHazard::LoadModel(absl::string_view saved) {
  const bool loaded = model_.Load(saved);
  if (loaded) RankAnew();
  return loaded;
}

}  // namespace kvkeep
