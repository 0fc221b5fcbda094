#include "tiers/policy/lru_policy.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {

LruPolicy::LruPolicy(const PolicyOptions& options)
    : max_chunks_(options.max_chunks),
      memory_(options.shares_memory_with != nullptr
                  ? static_cast<LruPolicy*>(options.shares_memory_with)->memory_
                  : std::make_shared<GrowingMemory>(uint64_t{max_chunks_} * sizeof(Node))),
      nodes_(reinterpret_cast<Node*>(memory_->data())) {}

bool LruPolicy::Contains(ChunkSlot slot) const {
  return slot.value() < slot_end_ && At(slot).place != Place::kAbsent;
}

void LruPolicy::Link(ChunkSlot slot, Place place, ChunkSlot younger) {
  List& list = ListOf(place);
  Node& node = At(slot);
  node.place = place;
  node.younger = younger;
  node.older = younger == kNoSlot ? list.youngest : At(younger).older;
  (node.younger == kNoSlot ? list.youngest : At(node.younger).older) = slot;
  (node.older == kNoSlot ? list.oldest : At(node.older).younger) = slot;
}

void LruPolicy::Unlink(ChunkSlot slot) {
  Node& node = At(slot);
  if (node.place == Place::kOff) return;
  KVKEEP_CHECK(node.place != Place::kAbsent);
  List& list = ListOf(node.place);
  if (last_unparked_ == slot) {
    last_unparked_ = node.younger != kNoSlot ? node.younger : node.older;
  }
  (node.younger == kNoSlot ? list.youngest : At(node.younger).older) = node.older;
  (node.older == kNoSlot ? list.oldest : At(node.older).younger) = node.younger;
  node.older = node.younger = kNoSlot;
  node.place = Place::kOff;
}

void LruPolicy::TakeOff(ChunkSlot slot) {
  Node& node = At(slot);
  // What was in early already keeps its rank: it goes back to where it was.
  if (node.place == Place::kMain) node.number = ++last_parked_rank_;
  Unlink(slot);
}

void LruPolicy::Touch(ChunkSlot slot) {
  KVKEEP_CHECK(Contains(slot));
  Unlink(slot);
  Link(slot, Place::kMain, kNoSlot);
  At(slot).number = ++touches_;
}

bool LruPolicy::TouchedLately(ChunkSlot slot) const {
  const Node& node = At(slot);
  // The oldest that the ring knows; zero until it is full, and every touch is later than that.
  return node.place == Place::kMain && node.number > before_request_[requests_ % kLatelyRequests];
}

void LruPolicy::OnRequest(std::span<const ChainLink> chain, MonotonicTime now) {
  before_request_[requests_++ % kLatelyRequests] = touches_;
  OnRequestContinued(chain, now);
}

void LruPolicy::OnRequestContinued(std::span<const ChainLink> chain, MonotonicTime /*now*/) {
  // Far ahead the node is asked of memory, nearer its neighbours, whose names have arrived by then.
  constexpr size_t kAhead = 16;
  const auto in_policy = [&chain](size_t i) {
    return i < chain.size() && chain[i].slot != kNoSlot;
  };
  for (size_t i = chain.size() + 2 * kAhead; i-- > 0;) {
    if (i >= 2 * kAhead && in_policy(i - 2 * kAhead)) {
      __builtin_prefetch(&At(chain[i - 2 * kAhead].slot));
    }
    if (i >= kAhead && in_policy(i - kAhead)) {
      const Node& node = At(chain[i - kAhead].slot);
      for (const ChunkSlot neighbour : {node.older, node.younger}) {
        if (neighbour != kNoSlot) __builtin_prefetch(&At(neighbour));
      }
    }
    if (in_policy(i)) Touch(chain[i].slot);
  }
}

void LruPolicy::OnInsert(const NewChunk& chunk, MonotonicTime /*now*/) {
  KVKEEP_CHECK(chunk.slot.value() < max_chunks_);
  KVKEEP_CHECK(!Contains(chunk.slot));
  KVKEEP_CHECK(chunk.parent == kNoSlot || Contains(chunk.parent));
  slot_end_ = std::max(slot_end_, chunk.slot.value() + 1);
  ++size_;
  Node& node = At(chunk.slot);
  if (chunk.transient) {
    node.number = --last_transient_rank_;
    Link(chunk.slot, Place::kEarly, early_.oldest);
  } else if (chunk.parent != kNoSlot && TouchedLately(chunk.parent)) {
    node.number = At(chunk.parent).number;
    Link(chunk.slot, Place::kMain, chunk.parent);
  } else {
    node.number = ++touches_;
    Link(chunk.slot, Place::kMain, kNoSlot);
  }
}

void LruPolicy::OnErase(ChunkSlot slot, EraseReason /*reason*/) {
  KVKEEP_CHECK(Contains(slot));
  Unlink(slot);
  At(slot) = Node();
  --size_;
}

std::optional<ChunkSlot> LruPolicy::Victim() {
  if (early_.oldest != kNoSlot) return early_.oldest;
  for (int steps = 0; main_.oldest != kNoSlot; ++steps) {
    if (!At(main_.oldest).parked || steps == kVictimSteps) return main_.oldest;
    TakeOff(main_.oldest);
  }
  return std::nullopt;
}

void LruPolicy::Park(ChunkSlot slot) {
  KVKEEP_CHECK(Contains(slot));
  KVKEEP_CHECK(!At(slot).parked || At(slot).place == Place::kMain);
  TakeOff(slot);
  At(slot).parked = true;
}

void LruPolicy::Unpark(ChunkSlot slot) {
  if (!Contains(slot) || !At(slot).parked) return;
  Node& node = At(slot);
  node.parked = false;
  if (node.place == Place::kMain) return;  // touched meanwhile: it is where it belongs
  Link(slot, Place::kEarly, EarlyNeighbour(node.number));
  last_unparked_ = slot;
}

ChunkSlot LruPolicy::EarlyNeighbour(int64_t rank) const {
  ChunkSlot at = last_unparked_ != kNoSlot ? last_unparked_ : early_.youngest;
  int steps = 0;
  while (at != kNoSlot && At(at).number < rank && steps++ < kUnparkSteps) at = At(at).younger;
  while (at != kNoSlot && steps++ < kUnparkSteps) {
    const ChunkSlot older = At(at).older;
    if (older == kNoSlot || At(older).number < rank) break;
    at = older;
  }
  return at;
}

int64_t LruPolicy::Recency(ChunkSlot slot) const {
  KVKEEP_CHECK(Contains(slot));
  const Node& node = At(slot);
  // Numbers of the two kinds are not comparable: what is off or early goes before all of main.
  constexpr int64_t kFarBelow = int64_t{1} << 60;
  return node.place == Place::kMain ? node.number : node.number - kFarBelow;
}

std::vector<ChunkSlot> LruPolicy::EvictionOrder() const {
  std::vector<ChunkSlot> order;
  order.reserve(size_);
  for (uint32_t i = 0; i < slot_end_; ++i) {
    if (nodes_[i].place == Place::kOff) order.push_back(ChunkSlot(i));
  }
  std::sort(order.begin(), order.end(),
            [this](ChunkSlot a, ChunkSlot b) { return At(a).number < At(b).number; });
  for (const ChunkSlot oldest : {early_.oldest, main_.oldest}) {
    for (ChunkSlot slot = oldest; slot != kNoSlot; slot = At(slot).younger) order.push_back(slot);
  }
  KVKEEP_CHECK(order.size() == size_);
  return order;
}

}  // namespace kvkeep
