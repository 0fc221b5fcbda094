#include "tiers/alloc/block_bitmap.h"

#include <algorithm>
#include <bit>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr uint64_t kBits = 64;

// Calls visit(word, mask) for each word of the range until it returns false. Returns whether it
// never did.
template <typename Visit>
bool EachWord(uint64_t first, uint64_t count, Visit visit) {
  const uint64_t end = first + count;
  for (uint64_t at = first; at < end;) {
    const uint64_t stop = std::min(end, (at / kBits + 1) * kBits);
    const uint64_t ones = stop - at == kBits ? ~uint64_t{0} : (uint64_t{1} << (stop - at)) - 1;
    if (!visit(at / kBits, ones << (at % kBits))) return false;
    at = stop;
  }
  return true;
}

}  // namespace

BlockBitmap::BlockBitmap(uint64_t blocks)
    : blocks_(blocks),
      memory_((blocks + kBits - 1) / kBits * sizeof(uint64_t)),
      words_(reinterpret_cast<uint64_t*>(memory_.data())) {}

bool BlockBitmap::Take(uint64_t first, uint64_t count) { return FlipAll(first, count, 0); }

bool BlockBitmap::GiveBack(uint64_t first, uint64_t count) {
  return FlipAll(first, count, ~uint64_t{0});
}

bool BlockBitmap::FlipAll(uint64_t first, uint64_t count, uint64_t flip) {
  KVKEEP_CHECK(count > 0 && count <= blocks_ && first <= blocks_ - count);
  const bool all_clear = EachWord(first, count, [&](uint64_t word, uint64_t mask) {
    return ((words_[word] ^ flip) & mask) == 0;
  });
  if (!all_clear) return false;
  EachWord(first, count, [&](uint64_t word, uint64_t mask) {
    words_[word] ^= mask;
    return true;
  });
  return true;
}

uint64_t BlockBitmap::Next(uint64_t from, uint64_t end, uint64_t flip) const {
  KVKEEP_CHECK(end <= blocks_);
  if (from >= end) return end;
  uint64_t found = end;
  EachWord(from, end - from, [&](uint64_t word, uint64_t mask) {
    const uint64_t hits = (words_[word] ^ flip) & mask;
    if (hits == 0) return true;
    found = word * kBits + static_cast<uint64_t>(std::countr_zero(hits));
    return false;
  });
  return found;
}

}  // namespace kvkeep
