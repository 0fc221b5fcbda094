// PolicyTester: an eviction policy under test, in a mini language: chunks are letters, chains are
// strings, head first, and an order is read from the first to go to the last.
#pragma once

#include <memory>
#include <string>

#include "tiers/base/check.h"
#include "tiers/policy/chain_learner.h"
#include "tiers/policy/list_policy.h"

namespace kvkeep {

// All policies that a name makes are of this kind.
inline std::unique_ptr<ListPolicy> MakeListPolicy(const std::string& name,
                                                  const PolicyOptions& options) {
  return std::unique_ptr<ListPolicy>(
      &dynamic_cast<ListPolicy&>(*MakeEvictionPolicy(name, options).release()));
}

class PolicyTester {
 public:
  explicit PolicyTester(const std::string& name)
      : policy_(MakeListPolicy(name, {.max_chunks = 128})) {}  // as many as there are letters

  EvictionPolicy& policy() { return *policy_; }
  int64_t Recency(char c) const { return policy_->Recency(Slot(c)); }
  // Requests a chain; '.' is a chunk that was never in the tier.
  void Request(const std::string& chain) {
    std::vector<EvictionPolicy::ChainLink> links;
    for (const char c : chain) {
      links.push_back({.slot = c == '.' ? kNoSlot : Slot(c), .fingerprint = Print(c)});
    }
    TellRequest(*policy_, links, now_);
  }
  // Adds chunks. "bcd" behind 'a': b is a's child, c is b's, d is c's. Behind '-': b has no parent
  // here.
  void Insert(const std::string& chain, char parent = '-', bool transient = false) {
    for (const char c : chain) {
      policy_->OnInsert({.slot = Slot(c),
                         .fingerprint = Print(c),
                         .parent = parent == '-' ? kNoSlot : Slot(parent),
                         .blocks = 1,
                         .transient = transient},
                        now_);
      parent = c;
    }
  }
  void InsertTransient(const std::string& chain) { Insert(chain, '-', true); }
  // Requests a chain of which nothing is here.
  void Ask(const std::string& chain) {
    std::vector<EvictionPolicy::ChainLink> links;
    for (const char c : chain) links.push_back({.fingerprint = Print(c)});
    TellRequest(*policy_, links, now_);
  }
  // The same, and then all of it is.
  void Put(const std::string& chain) {
    Ask(chain);
    Insert(chain);
  }
  void Pass(uint64_t requests) {
    for (uint64_t i = 0; i < requests; ++i) Request("..");
  }
  void Sleep(MonotonicTime time) { now_ += time; }
  void Erase(const std::string& chunks) {
    for (const char c : chunks) policy_->OnErase(Slot(c), EvictionPolicy::EraseReason::kRemoved);
  }
  void Park(const std::string& chunks) {
    for (const char c : chunks) policy_->Park(Slot(c));
  }
  void Unpark(const std::string& chunks) {
    for (const char c : chunks) policy_->Unpark(Slot(c));
  }
  // Returns the next victim, or '-' if there is none.
  char Victim() {
    const std::optional<ChunkSlot> slot = policy_->Victim();
    return slot.has_value() ? Letter(*slot) : '-';
  }
  // Returns this many victims in turn, each gone before the next.
  std::string Evict(size_t chunks) {
    std::string gone;
    for (; chunks > 0; --chunks) {
      gone += Victim();
      KVKEEP_CHECK(gone.back() != '-');
      policy_->OnErase(Slot(gone.back()), EvictionPolicy::EraseReason::kEvicted);
    }
    return gone;
  }
  // Returns every victim in turn, parked as the store parks those that cannot go now.
  std::string ParkAll() {
    std::string parked;
    for (char victim = Victim(); victim != '-'; victim = Victim()) {
      Park(std::string(1, victim));
      parked += victim;
    }
    return parked;
  }
  std::string Order() const {
    std::string order;
    for (const ChunkSlot slot : policy_->EvictionOrder()) order += Letter(slot);
    return order;
  }
  size_t size() const { return policy_->size(); }

 private:
  static ChunkSlot Slot(char c) { return ChunkSlot(static_cast<uint32_t>(c)); }
  static Fingerprint Print(char c) { return Fingerprint(static_cast<uint64_t>(c) * 1'000); }
  static char Letter(ChunkSlot slot) { return static_cast<char>(slot.value()); }

  const std::unique_ptr<ListPolicy> policy_;
  MonotonicTime now_{0};
};

}  // namespace kvkeep
