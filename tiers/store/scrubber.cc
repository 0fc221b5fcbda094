#include "tiers/store/scrubber.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint64_t kUrgentBytesPerSecond = 64 * kMiB;  // at least, for suspects and doubt
constexpr size_t kMostPutOff = 64;  // chunks in doubt that one look skips, as they cannot be read

}  // namespace

void Scrubber::AskRound(uint64_t bytes_per_second) {
  round_rate_ = bytes_per_second;
  if (bytes_per_second > 0) next_ = ChunkSlot(0);
}

void Scrubber::Pay(MonotonicTime now) {
  const uint64_t urgent = in_doubt_.empty() && suspects_.empty() ? 0 : kUrgentBytesPerSecond;
  const uint64_t asked = std::max({rate_, round_rate_, urgent});
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
    const bool suspected = !doubted && suspects_.due(paid_until_);
    if (!doubted && !suspected && rate_ == 0 && round_rate_ == 0) return std::nullopt;
    const bool unsure = !doubted && !suspected && !unsure_.empty();
    if (!doubted && !suspected && !unsure && next_.value() >= table_.slot_end()) {
      ++counters_.scrub_rounds;
      round_rate_ = 0;
      next_ = ChunkSlot(0);
      return std::nullopt;  // one round at most a Tick, as the table may be empty
    }
    const std::optional<ChunkSlot> found = doubted     ? NextInDoubt(questions)
                                           : suspected ? NextSuspect(questions)
                                           : unsure    ? NextUnsure(questions)
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
  if (questions.only_in_g3(chunk) && !suspects_.IsRecent(chunk, paid_until_)) return slot;
  ++put_off_;
  return std::nullopt;
}

// A chunk that cannot be read now comes again at its next turn.
std::optional<ChunkSlot> Scrubber::NextSuspect(const Questions& questions) {
  hold_.Count(work::kFind);
  const std::optional<ChunkSlot> slot = suspects_.Next(table_, paid_until_);
  if (!slot.has_value()) return std::nullopt;
  const Chunk& chunk = table_.at(*slot);
  if (!questions.only_in_g3(chunk) || !questions.has_tenant(chunk)) return std::nullopt;
  ++counters_.suspect_rereads;
  return slot;
}

// A chunk that cannot be read now is left to the round.
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

bool Scrubber::NoteUnreadable(const Chunk& chunk, MonotonicTime now) {
  const bool stays = suspects_.NoteFailed(chunk, now);
  ++(stays ? counters_.suspect_reads : counters_.unreadable_chunks);
  return stays;
}

void Scrubber::NoteReadable(const ChunkId& id) {
  counters_.suspects_cleared += suspects_.NoteGood(id);
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
