#include "tiers/policy/list_policy.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {

ListPolicy::Memory::Memory(const PolicyOptions& options, Keeps keeps)
    : slots(options.slots != nullptr ? options.slots
                                     : std::make_shared<SlotArrays>(options.max_chunks)),
      nodes(slots->Add<Node>()),
      fingerprints(keeps == Keeps::kFingerprintsToo ? slots->Add<Fingerprint>() : nullptr) {
  KVKEEP_CHECK(slots->max_slots() == options.max_chunks);
}

ListPolicy::ListPolicy(const PolicyOptions& options, int lists, Keeps keeps)
    : max_chunks_(options.max_chunks),
      memory_(options.shares_memory_with != nullptr
                  ? static_cast<ListPolicy*>(options.shares_memory_with)->memory_
                  : std::make_shared<Memory>(options, keeps)),
      lists_(kFirst + lists) {
  KVKEEP_CHECK(lists >= 1 && lists <= kMostLists);
  KVKEEP_CHECK(memory_->slots->max_slots() == max_chunks_);
  KVKEEP_CHECK(keeps == Keeps::kNodes || memory_->fingerprints != nullptr);
}

bool ListPolicy::Contains(ChunkSlot slot) const {
  return slot.value() < slot_end_ && At(slot).place != kAbsent;
}

void ListPolicy::Link(ChunkSlot slot, uint32_t place, ChunkSlot younger) {
  List& list = lists_[place];
  Node& node = At(slot);
  node.place = place;
  node.younger = younger;
  node.older = younger == kNoSlot ? list.youngest : At(younger).older;
  (node.younger == kNoSlot ? list.youngest : At(node.younger).older) = slot;
  (node.older == kNoSlot ? list.oldest : At(node.older).younger) = slot;
}

void ListPolicy::Unlink(ChunkSlot slot) {
  Node& node = At(slot);
  if (node.place == kOff) return;
  List& list = lists_[node.place];
  if (last_unparked_ == slot) {
    last_unparked_ = node.younger != kNoSlot ? node.younger : node.older;
  }
  ChunkSlot& from_older = node.older == kNoSlot ? list.oldest : At(node.older).younger;
  KVKEEP_CHECK(from_older == slot);
  from_older = node.younger;
  (node.younger == kNoSlot ? list.youngest : At(node.younger).older) = node.older;
  node.older = node.younger = kNoSlot;
  node.place = kOff;
}

void ListPolicy::TakeOff(ChunkSlot slot) {
  Node& node = At(slot);
  // A chunk already in early keeps its rank, and so goes back to its place.
  if (node.place >= kFirst) node.number = ++last_parked_rank_;
  Unlink(slot);
}

void ListPolicy::Move(ChunkSlot slot, int list) { MoveBehind(slot, list, kNoSlot); }

void ListPolicy::MoveBehind(ChunkSlot slot, int list, ChunkSlot parent) {
  const auto place = static_cast<uint32_t>(kFirst + list);
  Unlink(slot);
  LinkBehind(slot, place, parent == slot ? kNoSlot : parent);
}

void ListPolicy::LinkBehind(ChunkSlot slot, uint32_t place, ChunkSlot parent) {
  const bool behind = parent != kNoSlot && PlacedLately(parent, place);
  Link(slot, place, behind ? parent : kNoSlot);
  KVKEEP_CHECK(behind || ++moves_ < kMostMoves);
  At(slot).number = behind ? At(parent).number : moves_;
}

void ListPolicy::Touch(ChunkSlot slot) {
  KVKEEP_CHECK(Contains(slot));
  Move(slot, ListOfTouched(slot, At(slot)));
}

bool ListPolicy::PlacedLately(ChunkSlot slot, uint32_t place) const {
  // Compares with the oldest count in the ring, which is zero, hence before every move, until the
  // ring is full.
  return At(slot).place == place && At(slot).number > before_request_[requests_ % kLatelyRequests];
}

void ListPolicy::OnRequest(std::span<const ChainLink> links, MonotonicTime /*now*/, Slice slice) {
  if (slice == Slice::kFirst) before_request_[requests_++ % kLatelyRequests] = moves_;
  // Prefetches the node far ahead, and nearer its neighbours, whose slots have arrived by then.
  constexpr size_t kAhead = 16;
  if (links.size() < kAhead) return TouchFew(links);
  const auto in_policy = [&links](size_t i) {
    return i < links.size() && links[i].slot != kNoSlot;
  };
  for (size_t i = links.size() + 2 * kAhead; i-- > 0;) {
    if (i >= 2 * kAhead && in_policy(i - 2 * kAhead)) {
      __builtin_prefetch(&At(links[i - 2 * kAhead].slot));
    }
    if (i >= kAhead && in_policy(i - kAhead)) {
      const Node& node = At(links[i - kAhead].slot);
      for (const ChunkSlot neighbour : {node.older, node.younger}) {
        if (neighbour != kNoSlot) __builtin_prefetch(&At(neighbour));
      }
    }
    if (in_policy(i)) Touch(links[i].slot);
  }
}

void ListPolicy::TouchFew(std::span<const ChainLink> links) {
  for (const ChainLink& link : links) {
    if (link.slot != kNoSlot) __builtin_prefetch(&At(link.slot));
  }
  for (size_t i = links.size(); i-- > 0;) {
    if (links[i].slot != kNoSlot) Touch(links[i].slot);
  }
}

void ListPolicy::OnInsert(const NewChunk& chunk, MonotonicTime now) {
  KVKEEP_CHECK(chunk.slot.value() < max_chunks_);
  KVKEEP_CHECK(At(chunk.slot).place == kAbsent);  // nor in one that shares the memory
  KVKEEP_CHECK(chunk.parent == kNoSlot || Contains(chunk.parent));
  slot_end_ = std::max(slot_end_, chunk.slot.value() + 1);
  KVKEEP_CHECK(size_ < max_chunks_);
  ++size_;
  Node& node = At(chunk.slot);
  if (memory_->fingerprints != nullptr) {
    memory_->fingerprints[chunk.slot.value()] = chunk.fingerprint;
  }
  const auto place = static_cast<uint32_t>(kFirst + ListOfNew(node, chunk, now));
  KVKEEP_CHECK(place >= kFirst && place < lists_.size());
  if (chunk.transient) {
    node.number = --last_transient_rank_;
    Link(chunk.slot, kEarly, lists_[kEarly].oldest);
  } else {
    LinkBehind(chunk.slot, place, chunk.parent);
  }
}

void ListPolicy::OnErase(ChunkSlot slot, EraseReason reason) {
  KVKEEP_CHECK(Contains(slot));
  const Node node = At(slot);
  Unlink(slot);
  KVKEEP_CHECK(last_unparked_ != slot);
  At(slot) = Node();
  KVKEEP_CHECK(size_ > 0);
  --size_;
  Erased(slot, node, ListOf(node), reason);
}

std::optional<ChunkSlot> ListPolicy::Victim() {
  if (lists_[kEarly].oldest != kNoSlot) return lists_[kEarly].oldest;
  for (int steps = 0;; ++steps) {
    const ChunkSlot next = Next();
    if (next == kNoSlot) return std::nullopt;
    KVKEEP_CHECK(At(next).place >= kFirst);
    if (!At(next).parked || steps == kVictimSteps) return next;
    TakeOff(next);
  }
}

bool ListPolicy::HasVictim() {
  if (lists_[kEarly].oldest != kNoSlot) return true;
  int steps = 0;
  for (uint32_t place = kFirst; place < lists_.size(); ++place) {
    for (; lists_[place].oldest != kNoSlot; ++steps) {
      if (!At(lists_[place].oldest).parked || steps == kVictimSteps) return true;
      TakeOff(lists_[place].oldest);
    }
  }
  return false;
}

void ListPolicy::Park(ChunkSlot slot) {
  KVKEEP_CHECK(Contains(slot));
  KVKEEP_CHECK(!At(slot).parked || At(slot).place >= kFirst);
  TakeOff(slot);
  At(slot).parked = 1;
}

void ListPolicy::Unpark(ChunkSlot slot) {
  if (!Contains(slot) || !At(slot).parked) return;
  Node& node = At(slot);
  node.parked = 0;
  if (node.place >= kFirst) return;  // touched meanwhile: it is where it belongs
  KVKEEP_CHECK(node.place == kOff);
  Link(slot, kEarly, EarlyNeighbour(node.number));
  last_unparked_ = slot;
}

ChunkSlot ListPolicy::EarlyNeighbour(int64_t rank) const {
  ChunkSlot at = last_unparked_ != kNoSlot ? last_unparked_ : lists_[kEarly].youngest;
  KVKEEP_CHECK(at == kNoSlot || At(at).place == kEarly);
  int steps = 0;
  while (at != kNoSlot && At(at).number < rank && steps++ < kUnparkSteps) at = At(at).younger;
  while (at != kNoSlot && steps++ < kUnparkSteps) {
    const ChunkSlot older = At(at).older;
    if (older == kNoSlot || At(older).number < rank) break;
    at = older;
  }
  return at;
}

int64_t ListPolicy::Recency(ChunkSlot slot) const {
  KVKEEP_CHECK(Contains(slot));
  const Node& node = At(slot);
  // The two kinds of numbers are not comparable: chunks that are off or in early go before all
  // others.
  constexpr int64_t kFarBelow = int64_t{1} << 60;
  return node.place >= kFirst ? node.number : node.number - kFarBelow;
}

std::vector<ChunkSlot> ListPolicy::EvictionOrder() const {
  std::vector<ChunkSlot> order;
  order.reserve(size_);
  for (uint32_t i = 0; i < slot_end_; ++i) {
    if (memory_->nodes[i].place == kOff) order.push_back(ChunkSlot(i));
  }
  std::sort(order.begin(), order.end(),
            [this](ChunkSlot a, ChunkSlot b) { return At(a).number < At(b).number; });
  std::vector<uint32_t> places = {kEarly};
  for (const int list : ListOrder()) places.push_back(static_cast<uint32_t>(kFirst + list));
  for (const uint32_t place : places) {
    for (ChunkSlot slot = lists_[place].oldest; slot != kNoSlot; slot = At(slot).younger) {
      order.push_back(slot);
    }
  }
  KVKEEP_CHECK(order.size() == size_);
  return order;
}

}  // namespace kvkeep
