// Records for the tests of the index: a valid one from a number, or a random one.
#pragma once

#include <map>

#include "tests/fakes/seeded_random.h"
#include "tiers/index/chunk_index.h"

namespace kvkeep {

// Two blocks at 2 * n; everything about it follows from n.
inline IndexRecord NumberedRecord(uint32_t n) {
  SeededRandom random(n + 1);
  IndexRecord record;
  record.id = {random.Next<NamespaceDigest>(), random.Next<ChunkKey>(), PartId(n)};
  record.shape = {.payload_bytes = 4096, .tail_bytes = 0};
  record.incarnation = Incarnation(random.NextU64());
  record.generation = Generation(n);
  record.sequence = CommitSequence(n);
  record.created_unix_us = random.NextU64();
  record.root = {random.NextU64(), random.NextU64()};
  record.extents = {{BlockNumber(uint64_t{2} * n), BlockCount(2)}};
  return record;
}

// Returns a record of any valid shape, in 1 to 32 extents.
inline IndexRecord RandomRecord(SeededRandom& random) {
  IndexRecord record = NumberedRecord(static_cast<uint32_t>(random.NextU64()));
  record.shape.payload_bytes = static_cast<uint32_t>(random.Between(1, kMaxPayloadBytes));
  record.shape.tail_bytes = static_cast<uint32_t>(random.Between(0, kMaxTailBytes));
  uint64_t left = record.shape.blocks().value();
  uint64_t at = random.Below(uint64_t{1} << 50);
  record.extents.clear();
  const uint64_t wanted = random.Between(1, kMaxExtents);
  while (left > 0) {
    const bool last = record.extents.size() + 1 == wanted;
    const uint64_t count = last ? left : random.Between(1, left);
    record.extents.push_back({BlockNumber(at), BlockCount(count)});
    at += count + random.Below(100);
    left -= count;
  }
  return record;
}

using RecordMap = std::map<ChunkId, IndexRecord>;

inline RecordMap ReadAll(ChunkIndex& index) {
  RecordMap found;
  const absl::StatusOr<ChunkIndex::ScanResult> scanned = index.Scan([&](const IndexRecord& record) {
    found.emplace(record.id, record);
    return true;
  });
  return scanned.ok() && scanned->undecodable == 0 ? found : RecordMap{};
}

}  // namespace kvkeep
