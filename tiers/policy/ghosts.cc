#include "tiers/policy/ghosts.h"

#include <bit>

#include "tiers/base/check.h"

namespace kvkeep {

Ghosts::Table::Table(uint32_t most_nodes)
    : most(most_nodes),
      node_memory(uint64_t{most} * sizeof(Node)),
      bucket_memory(uint64_t{most} * sizeof(uint32_t)),
      nodes(reinterpret_cast<Node*>(node_memory.data())),
      buckets(reinterpret_cast<uint32_t*>(bucket_memory.data())) {
  static_assert(sizeof(Node) == 24);
}

uint32_t Ghosts::Table::BucketOf(uint64_t key) const {
  const uint64_t round = std::bit_ceil(uint64_t{used});
  const uint64_t bucket = key & (round - 1);
  return static_cast<uint32_t>(bucket < used ? bucket : bucket - round / 2);
}

uint32_t* Ghosts::Table::Find(uint64_t key) {
  uint32_t* link = &buckets[BucketOf(key)];
  while (*link != kNone && nodes[*link].key != key) link = &nodes[*link].next;
  return link;
}

// The newest bucket gets what is its of the one that stood for it.
void Ghosts::Table::AddBucket() {
  const uint32_t added = used++;
  buckets[added] = kNone;
  if (added == 0) return;
  const uint64_t round = std::bit_ceil(uint64_t{used});
  uint32_t* link = &buckets[added - round / 2];
  while (*link != kNone) {
    Node& node = nodes[*link];
    if ((node.key & (round - 1)) != added) {
      link = &node.next;
      continue;
    }
    const uint32_t moved = *link;
    *link = node.next;
    node.next = buckets[added];
    buckets[added] = moved;
  }
}

uint32_t Ghosts::Table::NewNode() {
  if (free != kNone) {
    const uint32_t node = free;
    free = nodes[node].next;
    return node;
  }
  if (used == most) return kNone;
  AddBucket();
  return used - 1;
}

Ghosts::Ghosts(std::shared_ptr<Table> table) : table_(std::move(table)), owner_(++table_->owners) {}

// A store's fingerprints are good hashes, a trace's are numbers from 0 on. Vigna's splitmix64.
uint64_t Ghosts::KeyOf(Fingerprint fingerprint) const {
  uint64_t z = fingerprint.value() + owner_ * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void Ghosts::Unlink(uint32_t at) {
  const Node& node = table_->nodes[at];
  List& list = lists_[node.list];
  (node.younger == kNone ? list.youngest : table_->nodes[node.younger].older) = node.older;
  (node.older == kNone ? list.oldest : table_->nodes[node.older].younger) = node.younger;
  --list.size;
}

void Ghosts::Forget(uint32_t* link) {
  const uint32_t at = *link;
  Unlink(at);
  *link = table_->nodes[at].next;
  table_->nodes[at].next = table_->free;
  table_->free = at;
}

void Ghosts::Add(int list_number, Fingerprint fingerprint) {
  Take(fingerprint);
  const uint32_t at = table_->NewNode();
  if (at == kNone) return;
  const uint64_t key = KeyOf(fingerprint);
  uint32_t& bucket = table_->buckets[table_->BucketOf(key)];
  List& list = lists_[list_number];
  table_->nodes[at] = {.key = key,
                       .next = bucket,
                       .older = list.youngest,
                       .younger = kNone,
                       .list = static_cast<uint32_t>(list_number)};
  bucket = at;
  (list.youngest == kNone ? list.oldest : table_->nodes[list.youngest].younger) = at;
  list.youngest = at;
  ++list.size;
}

std::optional<int> Ghosts::Take(Fingerprint fingerprint) {
  if (table_->used == 0) return std::nullopt;
  uint32_t* const link = table_->Find(KeyOf(fingerprint));
  if (*link == kNone) return std::nullopt;
  const auto list = static_cast<int>(table_->nodes[*link].list);
  Forget(link);
  return list;
}

void Ghosts::DropOldest(int list) {
  KVKEEP_CHECK(lists_[list].size > 0);
  Forget(table_->Find(table_->nodes[lists_[list].oldest].key));
}

std::span<std::byte> Ghosts::MemoryDue() {
  const auto due = table_->node_memory.Due(uint64_t{table_->used} * sizeof(Node));
  return due.empty() ? table_->bucket_memory.Due(uint64_t{table_->used} * sizeof(uint32_t)) : due;
}

}  // namespace kvkeep
