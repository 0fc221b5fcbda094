#include "tiers/policy/reuse_learner.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// "Lately", in requested chunks, and the lead that ARC needs to take over, as a part of that.
constexpr double kLeastHorizon = 20'000;
constexpr double kHorizonPerChunk = 20;
constexpr double kLeadToChange = 0.002;
// With several hosts, one chunk in so many is left for them to give up.
constexpr uint32_t kReservePart = 64;

constexpr ShadowTier::Steps kStepsPerLink = ShadowHazard::kStepsPerLink + ShadowArc::kStepsPerLink;
constexpr ShadowTier::Steps kSmallSteps = 20;  // of an event that is no chain
constexpr ShadowTier::Steps kSweepSteps = 3;   // of a chunk
// What a call under the owner's lock does of events, judgements and the leader's victims.
constexpr size_t kMostNow = 32, kVictimSteps = 64;
constexpr size_t kPrefetched = 32;
constexpr size_t kMostInBlock = 512;  // judgements: memory that is freed under the owner's lock
// More than what is here, before anything was evicted: as a part of that, and chunks.
constexpr uint32_t kSparePart = 4, kSpareChunks = 1024;

}  // namespace

ReuseLearner::Memory::Memory(uint32_t most, MemoryToucher* toucher)
    : table(most, toucher),
      here_memory(uint64_t{most} * sizeof(Here), toucher),
      here(reinterpret_cast<Here*>(here_memory.data())) {}

ReuseLearner::ReuseLearner(const Options& options)
    : apart_(options.apart),
      objective_(options.objective),
      memory_(options.shares_memory_with == nullptr
                  ? std::make_shared<Memory>(options.max_chunks, options.toucher)
                  : options.shares_memory_with->memory_),
      owner_(memory_->table.NewOwner()),
      mu_(memory_->mu),
      // No page of the shadows is touched ahead: nobody waits for who takes one.
      hazard_(
          options.max_chunks,
          options.shares_memory_with == nullptr ? nullptr : &options.shares_memory_with->hazard_,
          options.objective),
      arc_(options.max_chunks,
           options.shares_memory_with == nullptr ? nullptr : &options.shares_memory_with->arc_) {
  SetCapacity(0, false);
}

// ---------------------------------------------------------------- under the owner's lock

uint32_t ReuseLearner::AddHost(Host* host) {
  hosts_.push_back(host);
  hosts_many_ = hosts_.size() > 1;
  return static_cast<uint32_t>(hosts_.size() - 1);
}

const ReuseLearner::Here* ReuseLearner::Find(Key key) const {
  const uint32_t number = memory_->table.Find(key);
  return number == kNone ? nullptr : &memory_->here[number];
}

void ReuseLearner::OnCame(uint32_t host, const EvictionPolicy::NewChunk& chunk,
                          std::optional<Fingerprint> parent, MonotonicTime now) {
  const Key key = KeyOf(chunk.fingerprint);
  uint32_t number = memory_->table.Find(key);
  if (number == kNone) number = memory_->table.Insert(key);
  memory_->here_memory.Use(uint64_t{memory_->table.used()} * sizeof(Here));
  if (number != kNone) memory_->here[number] = {.slot = chunk.slot, .host = host};
  ++here_count_;
  Event event{.kind = Event::Kind::kCame, .here = here_count_, .chunk = key, .now = now};
  event.has_parent = parent.has_value();
  if (parent.has_value()) event.parent = KeyOf(*parent);
  Note(std::move(event));
}

void ReuseLearner::OnWent(ChunkSlot slot, Fingerprint chunk, EvictionPolicy::EraseReason reason) {
  const Key key = KeyOf(chunk);
  const uint32_t number = memory_->table.Find(key);
  // Otherwise the number belongs to another chunk with the same fingerprint.
  if (number != kNone && memory_->here[number].slot == slot) memory_->table.Erase(number);
  KVKEEP_CHECK(here_count_ > 0);
  --here_count_;
  const bool evicted = reason == EvictionPolicy::EraseReason::kEvicted;
  Note({.kind = evicted ? Event::Kind::kEvicted : Event::Kind::kRemoved,
        .here = here_count_,
        .chunk = key});
}

size_t ReuseLearner::Follow(size_t most) {
  size_t told = 0;
  while (told < most) {
    if (followed_ == following_.size()) {
      following_.clear();
      followed_ = 0;
      MutexLock lock(&boxes_mu_);
      if (judged_.empty()) break;
      following_ = std::move(judged_.front());
      judged_.pop_front();
    }
    const size_t count = std::min({most - told, following_.size() - followed_, kPrefetched});
    const auto slice = std::span(following_).subspan(followed_, count);
    std::array<Key, kPrefetched> keys;
    for (size_t i = 0; i < count; ++i) keys[i] = slice[i].chunk;
    memory_->table.Prefetch(std::span(keys).first(count));
    for (const Judgement& judgement : slice) {
      const Here* const here = Find(judgement.chunk);
      if (here == nullptr) continue;
      const Here* const parent = judgement.has_parent ? Find(judgement.parent) : nullptr;
      const bool behind = parent != nullptr && parent->host == here->host;
      hosts_[here->host]->OnJudged(here->slot, judgement.keep, behind ? parent->slot : kNoSlot);
    }
    followed_ += count;
    told += count;
    judged_count_ -= count;
  }
  return told;
}

void ReuseLearner::FollowNow() {
  if (!apart_ && waiting_ > 0 && mu_.TryLock()) {
    for (size_t i = 0; i < kMostNow && !play_.has_value(); ++i) {
      const Event* const next = Next();
      if (next == nullptr || next->kind == Event::Kind::kChain) break;
      PlaySmall(*next);
    }
    Publish();
    mu_.Unlock();
  }
  Follow(kMostNow);
}

ChunkSlot ReuseLearner::FirstToGo(uint32_t host, ChunkSlot oldest, Fingerprint oldest_print,
                                  absl::FunctionRef<bool(ChunkSlot)> may_go) {
  if (!mu_.TryLock()) return oldest;
  ChunkSlot first = oldest;
  if (leader().Holds(KeyOf(oldest_print))) {
    for (size_t steps = 0; steps < kVictimSteps; ++steps) {
      const std::optional<Key> victim = leader().Victim();
      if (!victim.has_value()) break;
      const Here* const here = Find(*victim);
      if (here != nullptr && here->host != host) break;
      if (here != nullptr && may_go(here->slot)) {
        first = here->slot;
        break;
      }
      leader().Drop(*victim, true);  // not here, or it cannot go
    }
  }
  mu_.Unlock();
  return first;
}

// ---------------------------------------------------------------- what is told

void ReuseLearner::Tell(std::span<const EvictionPolicy::ChainLink> chain, MonotonicTime now) {
  if (chain.empty()) return;
  if (links_waiting_ + chain.size() > kMostLinks) {
    ++skipped_;
    return;
  }
  Event event{.now = now};
  event.links.reserve(chain.size());
  for (const EvictionPolicy::ChainLink& link : chain) {
    event.links.push_back(KeyOf(link.fingerprint));
  }
  Note(std::move(event));
}

void ReuseLearner::Note(Event event) {
  if (waiting_ >= kMostTold) {
    ++skipped_;
    return;
  }
  ++waiting_;
  links_waiting_ += event.links.size();
  MutexLock lock(&boxes_mu_);
  told_.push_back(std::move(event));
}

// ---------------------------------------------------------------- plays

const ReuseLearner::Event* ReuseLearner::Next() {
  if (playing_.empty()) {
    MutexLock lock(&boxes_mu_);
    std::swap(playing_, told_);
  }
  return playing_.empty() ? nullptr : &playing_.front();
}

void ReuseLearner::EndEvent() {
  links_waiting_ -= playing_.front().links.size();
  playing_.pop_front();
  --waiting_;
}

bool ReuseLearner::HasWork() { return sweep_end_ > 0 || Next() != nullptr; }

bool ReuseLearner::Work(size_t links) {
  MutexLock lock(&mu_);
  Steps steps = static_cast<Steps>(links) * kStepsPerLink;
  while (steps > 0 && judged_count_ + new_judged_.size() < kMostJudged && HasWork()) GoOn(steps);
  Publish();
  return HasWork();
}

// Plays a chain in both shadows, one after the other, as they are independent. Then decides which
// leads.
void ReuseLearner::GoOn(Steps& steps) {
  if (sweep_end_ > 0) return Sweep(steps);
  const Event& event = *Next();
  if (event.kind != Event::Kind::kChain) {
    steps -= kSmallSteps;
    return PlaySmall(event);
  }
  if (!play_.has_value()) {
    play_.emplace(Play{.hazard = {.chain = event.links, .now = event.now},
                       .arc = {.chain = event.links, .now = event.now}});
  }
  const bool playing = hazard_.Play(play_->hazard, steps) || arc_.Play(play_->arc, steps);
  JudgeChanges();
  if (playing) return;
  const auto worth = [this](uint32_t leading) {
    return leading * WorthOfEach(objective_, leading);
  };
  // Long chains have more worth than chunks, so they change the leader sooner.
  const double ahead = worth(play_->arc.leading) - worth(play_->hazard.leading);
  const auto chunks = static_cast<double>(event.links.size());
  play_.reset();
  EndEvent();
  ChooseLeader(chunks, ahead);
}

void ReuseLearner::PlaySmall(const Event& event) {
  const Key key = event.chunk;
  SetCapacity(event.here, event.kind == Event::Kind::kEvicted);
  if (event.kind == Event::Kind::kCame) {
    if (!hazard_.Knows(key)) {
      std::optional<Key> parent;
      if (event.has_parent) parent = event.parent;
      hazard_.Bring(key, parent, event.now);
      arc_.Bring(key, parent, event.now);
    }
    JudgeChanges();
    if (!leader().Holds(key)) {
      new_judged_.push_back(
          {.chunk = key, .parent = event.parent, .keep = false, .has_parent = event.has_parent});
    }
  } else if (event.kind == Event::Kind::kEvicted) {
    leader().Drop(key, true);
  } else {
    hazard_.Drop(key, false);
    arc_.Drop(key, false);
  }
  EndEvent();
}

// What was asked for and is not here takes no more than its part of the memory that tenants share.
void ReuseLearner::SetCapacity(uint32_t here, bool evicted) {
  if (evicted) capacity_ = hosts_many_ ? here - here / kReservePart : here;
  const uint32_t most = here + here / kSparePart + kSpareChunks;
  const uint32_t capacity = capacity_ == 0 ? most : std::min(most, capacity_);
  hazard_.SetCapacity(capacity);
  arc_.SetCapacity(capacity);
}

void ReuseLearner::JudgeChanges() {
  (arc_leads_ ? static_cast<ShadowTier&>(hazard_) : arc_).TakeChanges();
  for (const ShadowTier::Change& change : leader().TakeChanges()) {
    new_judged_.push_back({.chunk = change.chunk, .parent = {}, .keep = change.held});
  }
}

void ReuseLearner::ChooseLeader(double chunks, double arc_is_ahead) {
  const double horizon = std::max(kLeastHorizon, kHorizonPerChunk * capacity_);
  arc_lead_ = arc_lead_ * std::max(0.0, 1 - chunks / horizon) + arc_is_ahead;
  const bool arc_leads = arc_leads_ ? arc_lead_ > 0 : arc_lead_ > kLeadToChange * horizon;
  if (arc_leads == arc_leads_) return;
  arc_leads_ = arc_leads;
  if (sweep_end_ == 0) ++waiting_;
  swept_ = 0;
  sweep_end_ = hazard_.numbers();
}

// By the numbers of records, which grow with time, so that what is old goes first. What only ARC's
// shadow holds, and the other has no ghost of, is not looked at.
void ReuseLearner::Sweep(Steps& steps) {
  for (; swept_ < sweep_end_ && steps > 0; ++swept_, steps -= kSweepSteps) {
    const std::optional<Key> key = hazard_.KeyOf(swept_);
    if (!key.has_value() || hazard_.Holds(*key) == arc_.Holds(*key)) continue;
    new_judged_.push_back({.chunk = *key, .parent = {}, .keep = leader().Holds(*key)});
  }
  if (swept_ < sweep_end_) return;
  sweep_end_ = 0;
  --waiting_;
}

void ReuseLearner::Publish() {
  if (new_judged_.empty()) return;
  judged_count_ += new_judged_.size();
  std::deque<std::vector<Judgement>> blocks;
  for (size_t begin = 0; begin < new_judged_.size(); begin += kMostInBlock) {
    const auto block =
        std::span(new_judged_).subspan(begin, std::min(kMostInBlock, new_judged_.size() - begin));
    blocks.emplace_back(block.begin(), block.end());
  }
  new_judged_ = {};
  MutexLock lock(&boxes_mu_);
  for (std::vector<Judgement>& block : blocks) judged_.push_back(std::move(block));
}

// ---------------------------------------------------------------- what is learned

std::string ReuseLearner::Save() const {
  MutexLock lock(&mu_);
  return hazard_.SaveModel();
}

void ReuseLearner::Load(absl::string_view saved) {
  MutexLock lock(&mu_);
  hazard_.LoadModel(saved);
}

bool ReuseLearner::follows_arc() const {
  MutexLock lock(&mu_);
  return arc_leads_;
}

}  // namespace kvkeep
