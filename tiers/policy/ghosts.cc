#include "tiers/policy/ghosts.h"

#include "tiers/base/check.h"

namespace kvkeep {

void Ghosts::Forget(uint32_t at) {
  const Node& node = memory_->nodes[at];
  KVKEEP_CHECK(node.list < lists_.size() && lists_[node.list].size > 0);
  List& list = lists_[node.list];
  uint32_t& from_younger = node.younger == kNone ? list.youngest
                                                 : memory_->nodes[node.younger].older;
  uint32_t& from_older = node.older == kNone ? list.oldest : memory_->nodes[node.older].younger;
  KVKEEP_CHECK(from_younger == at && from_older == at);
  from_younger = node.older;
  from_older = node.younger;
  --list.size;
  KVKEEP_CHECK((list.oldest == kNone) == (list.size == 0));
  memory_->table.Erase(at);
}

void Ghosts::Add(int list_number, Fingerprint fingerprint) {
  KVKEEP_CHECK(static_cast<size_t>(list_number) < lists_.size());
  Take(fingerprint);
  const uint32_t at = memory_->table.Insert(FingerprintTable::KeyOf(fingerprint, owner_));
  if (at == kNone) return;
  memory_->memory.Use(uint64_t{memory_->table.used()} * sizeof(Node));
  List& list = lists_[list_number];
  memory_->nodes[at] = {
      .older = list.youngest, .younger = kNone, .list = static_cast<uint32_t>(list_number)};
  (list.youngest == kNone ? list.oldest : memory_->nodes[list.youngest].younger) = at;
  list.youngest = at;
  ++list.size;
}

std::optional<int> Ghosts::Take(Fingerprint fingerprint) {
  const uint32_t at = memory_->table.Find(FingerprintTable::KeyOf(fingerprint, owner_));
  if (at == kNone) return std::nullopt;
  const auto list = static_cast<int>(memory_->nodes[at].list);
  Forget(at);
  return list;
}

void Ghosts::DropOldest(int list) {
  KVKEEP_CHECK(static_cast<size_t>(list) < lists_.size());
  KVKEEP_CHECK(lists_[list].size > 0);
  Forget(lists_[list].oldest);
}

}  // namespace kvkeep
