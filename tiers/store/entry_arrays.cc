#include "tiers/store/entry_arrays.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"

namespace kvkeep::store_internal {

static_assert(sizeof(TableEntry) == 8);

// Fresh memory is taken where no array of that size is free: then each stretch of that size before
// it holds something of a user. A user's array lies in one such stretch, or is as long as several.
// So all users have at most `most` each, and who doubles once more.
EntryArrays::EntryArrays(uint64_t users, uint32_t least, uint32_t most)
    : least_(least),
      most_(most),
      memory_((users + 1) * most * sizeof(TableEntry)),
      marks_((users + 1) * most / least),
      entries_(reinterpret_cast<TableEntry*>(memory_.data())) {
  static_assert(sizeof(Free) <= 2 * sizeof(TableEntry));
  KVKEEP_CHECK(users > 0 && least >= 2 && least <= most);
  KVKEEP_CHECK(std::has_single_bit(least) && std::has_single_bit(most));
}

int EntryArrays::SizeOf(uint32_t entries) {
  KVKEEP_CHECK(std::has_single_bit(entries));
  return std::countr_zero(entries);
}

EntryArrays::Free EntryArrays::LoadFree(const TableEntry* array) {
  return LoadAt<Free>(reinterpret_cast<const std::byte*>(array));
}

uint8_t& EntryArrays::mark(const TableEntry* array) {
  return reinterpret_cast<uint8_t&>(
      marks_.data()[static_cast<uint64_t>(array - entries_) / least_]);
}

void EntryArrays::Push(TableEntry* array, int size) {
  TableEntry*& first = free_[size];
  StoreAt(reinterpret_cast<std::byte*>(array), Free{.next = first});
  if (first != nullptr) {
    Free second = LoadFree(first);
    second.previous = array;
    StoreAt(reinterpret_cast<std::byte*>(first), second);
  }
  first = array;
  mark(array) = static_cast<uint8_t>(size);
}

void EntryArrays::Remove(TableEntry* array, int size) {
  const Free links = LoadFree(array);
  if (links.previous == nullptr) {
    KVKEEP_CHECK(free_[size] == array);
    free_[size] = links.next;
  } else {
    Free before = LoadFree(links.previous);
    before.next = links.next;
    StoreAt(reinterpret_cast<std::byte*>(links.previous), before);
  }
  if (links.next != nullptr) {
    Free behind = LoadFree(links.next);
    behind.previous = links.previous;
    StoreAt(reinterpret_cast<std::byte*>(links.next), behind);
  }
  mark(array) = 0;
}

TableEntry* EntryArrays::TakeFree(int size) {
  int larger = size;
  while (larger < static_cast<int>(free_.size()) && free_[larger] == nullptr) ++larger;
  if (larger == static_cast<int>(free_.size())) return nullptr;
  TableEntry* const array = free_[larger];
  Remove(array, larger);
  while (larger > size) {
    --larger;
    Push(array + (uint64_t{1} << larger), larger);  // the upper half stays free
  }
  return array;
}

TableEntry* EntryArrays::Take(uint32_t entries) {
  const int size = SizeOf(entries);
  KVKEEP_CHECK(entries >= least_ && entries <= most_);
  TableEntry* array = nullptr;
  while ((array = TakeFree(size)) == nullptr) {
    // An array begins at a multiple of its size: what would be left out on the way there is free,
    // and the next may be that with its neighbours.
    const auto fresh = static_cast<uint32_t>(std::min<uint64_t>(used_ & (~used_ + 1), entries));
    TableEntry* const at = entries_ + used_;
    used_ += fresh == 0 ? entries : fresh;
    KVKEEP_CHECK(used_bytes() <= memory_.bytes());
    GiveBack(at, fresh == 0 ? entries : fresh);
  }
  std::uninitialized_default_construct_n(array, entries);
  return array;
}

void EntryArrays::GiveBack(TableEntry* array, uint32_t entries) {
  auto at = static_cast<uint64_t>(array - entries_);
  KVKEEP_CHECK(at % entries == 0 && at + entries <= used_);
  int size = SizeOf(entries);
  for (; uint64_t{1} << size < most_; ++size) {
    const uint64_t length = uint64_t{1} << size;
    const uint64_t buddy = at ^ length;
    if (buddy + length > used_ || mark(entries_ + buddy) != size) break;
    Remove(entries_ + buddy, size);
    at &= ~length;
  }
  Push(entries_ + at, size);
}

}  // namespace kvkeep::store_internal
