#include "tiers/policy/fingerprint_table.h"

#include "tiers/base/check.h"

namespace kvkeep {

FingerprintTable::FingerprintTable(uint32_t most, MemoryToucher* toucher)
    : most_(most),
      node_memory_(uint64_t{most} * sizeof(Node), toucher),
      bucket_memory_(uint64_t{most} * kBucketsPerNumber * sizeof(uint32_t), toucher),
      nodes_(reinterpret_cast<Node*>(node_memory_.data())),
      buckets_(reinterpret_cast<uint32_t*>(bucket_memory_.data())) {
  static_assert(sizeof(Node) == 12);
  KVKEEP_CHECK(most < kNone);
}

// A store's fingerprints are good hashes, a trace's are numbers from 0 on. Vigna's splitmix64.
FingerprintTable::Key FingerprintTable::KeyOf(Fingerprint fingerprint, uint32_t owner) {
  uint64_t z = fingerprint.value() + owner * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return {z ^ (z >> 31)};
}

uint32_t* FingerprintTable::LinkTo(uint64_t key) {
  if (used_ == 0) return &nothing_;
  uint32_t* link = &buckets_[BucketOf(key)];
  while (*link != kNone && nodes_[*link].key() != key) link = &nodes_[*link].next;
  return link;
}

void FingerprintTable::Prefetch(std::span<const Key> keys) const {
  if (used_ == 0) return;
  for (const Key key : keys) __builtin_prefetch(&buckets_[BucketOf(key.bits)]);
  for (const Key key : keys) {
    const uint32_t first = buckets_[BucketOf(key.bits)];
    if (first != kNone) __builtin_prefetch(&nodes_[first]);
  }
}

// Moves the nodes that hash to the new bucket into it from the bucket that held them.
void FingerprintTable::AddBucket(uint64_t added) {
  buckets_[added] = kNone;
  if (added == 0) return;
  const uint64_t round = std::bit_ceil(added + 1);
  uint32_t* link = &buckets_[added - round / 2];
  while (*link != kNone) {
    Node& node = nodes_[*link];
    if ((node.key() & (round - 1)) != added) {
      link = &node.next;
      continue;
    }
    const uint32_t moved = *link;
    *link = node.next;
    node.next = buckets_[added];
    buckets_[added] = moved;
  }
}

uint32_t FingerprintTable::Insert(Key key) {
  KVKEEP_CHECK(Find(key) == kNone);
  uint32_t number = free_;
  if (number != kNone) {
    free_ = nodes_[number].next;
  } else {
    if (used_ == most_) return kNone;
    number = used_++;
    node_memory_.Use(uint64_t{used_} * sizeof(Node));
    bucket_memory_.Use(uint64_t{used_} * kBucketsPerNumber * sizeof(uint32_t));
    for (uint64_t i = 0; i < kBucketsPerNumber; ++i) AddBucket(kBucketsPerNumber * number + i);
  }
  ++size_;
  KVKEEP_CHECK(size_ <= used_);
  uint32_t& bucket = buckets_[BucketOf(key.bits)];
  nodes_[number] = {.low = static_cast<uint32_t>(key.bits),
                    .high = static_cast<uint32_t>(key.bits >> 32),
                    .next = bucket};
  bucket = number;
  return number;
}

void FingerprintTable::Erase(uint32_t number) {
  KVKEEP_CHECK(number < used_ && size_ > 0);
  uint32_t* const link = LinkTo(nodes_[number].key());
  KVKEEP_CHECK(*link == number);
  *link = nodes_[number].next;
  nodes_[number].next = free_;
  free_ = number;
  --size_;
}

}  // namespace kvkeep
