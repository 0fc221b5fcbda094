#include "tiers/store/scrubber.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint64_t kInDoubtBytesPerSecond = 64 * kMiB;  // at least
constexpr size_t kMostPutOff = 64;  // of those in doubt that cannot be read now, in one look

}  // namespace

void Scrubber::AskRound(uint64_t bytes_per_second) {
  round_rate_ = bytes_per_second;
  if (bytes_per_second > 0) next_ = ChunkSlot(0);
}

void Scrubber::Pay(MonotonicTime now) {
  const uint64_t in_doubt = in_doubt_.empty() ? 0 : kInDoubtBytesPerSecond;
  const uint64_t asked = std::max({rate_, round_rate_, in_doubt});
  if (asked == 0) return;
  const auto rate = static_cast<double>(asked);
  const double seconds = std::chrono::duration<double>(now - paid_until_).count();
  paid_until_ = now;
  budget_bytes_ = std::min(budget_bytes_ + seconds * rate, rate);
}

std::optional<ChunkSlot> Scrubber::Next(const Questions& questions) {
  while (!reading_ && budget_bytes_ > 0) {
    if (hold_.Spent()) return std::nullopt;  // the next Tick goes on
    const bool doubted = !in_doubt_.empty() && put_off_ < kMostPutOff;
    if (!doubted && rate_ == 0 && round_rate_ == 0) return std::nullopt;
    const bool unsure = !doubted && !unsure_.empty();
    if (!doubted && !unsure && next_.value() >= table_.slot_end()) {
      ++counters_.scrub_rounds;
      round_rate_ = 0;
      next_ = ChunkSlot(0);
      return std::nullopt;  // a round ends a Tick's scrub: an empty table is no work
    }
    const std::optional<ChunkSlot> found = doubted  ? NextInDoubt(questions)
                                           : unsure ? NextUnsure(questions)
                                                    : NextOfRound(questions);
    if (!found.has_value()) continue;
    reading_ = true;
    reading_in_doubt_ = doubted;
    return found;
  }
  return std::nullopt;
}

std::optional<ChunkSlot> Scrubber::NextInDoubt(const Questions& questions) {
  hold_.Count(work::kFind);
  const ChunkSlot slot = in_doubt_.front();
  in_doubt_.pop_front();
  const Chunk& chunk = table_.at(slot);
  if (!chunk.live || chunk.detached || !questions.has_tenant(chunk) ||
      !questions.doubted_twice(chunk)) {
    return std::nullopt;
  }
  in_doubt_.push_back(slot);
  if (questions.only_in_g3(chunk)) return slot;
  ++put_off_;
  return std::nullopt;
}

// What cannot be read now is left to the round.
std::optional<ChunkSlot> Scrubber::NextUnsure(const Questions& questions) {
  hold_.Count(work::kFind);
  const ChunkSlot slot = unsure_.front();
  unsure_.pop_front();
  const Chunk& chunk = table_.at(slot);
  const bool may = chunk.live && !chunk.detached && chunk.doubtful &&
                   questions.only_in_g3(chunk) && questions.has_tenant(chunk);
  if (!may) return std::nullopt;
  return slot;
}

std::optional<ChunkSlot> Scrubber::NextOfRound(const Questions& questions) {
  hold_.Count(work::kLook);
  const ChunkSlot slot = next_;
  next_ = ChunkSlot(slot.value() + 1);
  const Chunk& chunk = table_.at(slot);
  if (!chunk.live || chunk.detached || !questions.only_in_g3(chunk)) return std::nullopt;
  if (questions.has_tenant(chunk)) return slot;
  ++counters_.scrub_skipped_chunks;
  return std::nullopt;
}

void Scrubber::Ended(bool was_read) {
  KVKEEP_CHECK(reading_);
  reading_ = false;
  if (!was_read && reading_in_doubt_) ++put_off_;
}

bool Scrubber::IsInDoubt(ChunkSlot slot) const {
  return std::find(in_doubt_.begin(), in_doubt_.end(), slot) != in_doubt_.end();
}

}  // namespace kvkeep::store_internal
