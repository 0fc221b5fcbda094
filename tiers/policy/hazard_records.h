// HazardRecords: what ShadowHazard notes of chunks, and of the groups that they are in; of one
// shadow, or of several that share the memory. Not thread-safe.
#pragma once

#include "tiers/base/growing_memory.h"
#include "tiers/policy/fingerprint_table.h"
#include "tiers/policy/hazard_model.h"

namespace kvkeep {

struct HazardRecords {
  static constexpr uint32_t kNone = FingerprintTable::kNone;

  struct Record {
    uint32_t group;
    uint32_t older, younger;  // held: deeper and shallower, in its group. Else of the ghosts
    uint32_t parent;          // when held: before it in its chain; kNone: not known
    uint32_t behind : 12;     // chunks behind it in the chain that touched it last
    uint32_t children : 12;   // those held; kManyChildren: or more, for good
    uint32_t hits : 7;
    uint32_t held : 1;
  };
  static constexpr uint32_t kMostBehind = (1 << 12) - 1, kManyChildren = (1 << 12) - 1;
  static constexpr uint32_t kMostHits = (1 << 7) - 1;
  struct Links {
    uint32_t older, younger;
  };
  struct Group {
    MonotonicTime time;
    HazardModel::Features features;
    float weight;  // of each of its records
    uint16_t level, bucket;
    uint32_t records, held;
    uint32_t deepest, shallowest;  // of those held
    Links in_cell;                 // among all groups of its cell
    Links in_held;                 // among those of it that hold some, or are set aside
    bool aside;
    uint8_t worth;   // the level by which its chunks go: higher, where they are worth more
    uint16_t owner;  // of those that share the memory
  };
  struct List {
    uint32_t oldest = kNone, youngest = kNone;
  };

  explicit HazardRecords(uint64_t most)
      : table(static_cast<uint32_t>(most)),
        record_memory(most * sizeof(Record)),
        group_memory(most * sizeof(Group)),
        records(reinterpret_cast<Record*>(record_memory.data())),
        groups(reinterpret_cast<Group*>(group_memory.data())) {
    static_assert(sizeof(Record) == 20 && sizeof(Group) == 56);
  }

  FingerprintTable table;
  GrowingMemory record_memory, group_memory;
  Record* const records;  // by the table's number
  Group* const groups;
  uint32_t groups_used = 0;
  uint16_t owners = 0;
  uint32_t free_group = kNone;  // the others follow by in_cell.older
};

}  // namespace kvkeep
