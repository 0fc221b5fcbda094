#include "tiers/store/entry_arrays.h"

#include <bit>
#include <memory>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"

namespace kvkeep::store_internal {

static_assert(sizeof(TableEntry) == 8);

// What a user of an array has given back before, smaller each time, adds up to less than the array.
EntryArrays::EntryArrays(uint64_t users, uint64_t most_entries)
    : memory_(2 * users * most_entries * sizeof(TableEntry)) {}

TableEntry* EntryArrays::Take(uint32_t entries) {
  KVKEEP_CHECK(std::has_single_bit(entries) && entries >= 2);
  TableEntry*& free = free_[std::countr_zero(entries)];
  TableEntry* array = free;
  if (array != nullptr) {
    free = LoadAt<TableEntry*>(reinterpret_cast<const std::byte*>(array));
  } else {
    KVKEEP_CHECK(used_bytes_ + entries * sizeof(TableEntry) <= memory_.bytes());
    array = reinterpret_cast<TableEntry*>(memory_.data() + used_bytes_);
    used_bytes_ += entries * sizeof(TableEntry);
  }
  std::uninitialized_default_construct_n(array, entries);
  return array;
}

void EntryArrays::GiveBack(TableEntry* array, uint32_t entries) {
  TableEntry*& free = free_[std::countr_zero(entries)];
  StoreAt(reinterpret_cast<std::byte*>(array), free);
  free = array;
}

}  // namespace kvkeep::store_internal
