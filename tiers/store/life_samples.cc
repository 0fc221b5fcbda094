#include "tiers/store/life_samples.h"

#include <bit>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

uint64_t Between(MonotonicTime from, MonotonicTime to) {
  return to > from ? static_cast<uint64_t>((to - from).count()) : 0;
}

}  // namespace

LifeSamples::LifeSamples(uint32_t one_in) : mask_(one_in - 1) {
  KVKEEP_CHECK(std::has_single_bit(one_in));
}

void LifeSamples::OnStored(Fingerprint chunk, Where where, MonotonicTime now) {
  if (!Sampled(chunk)) return;
  if (!chunks_.contains(chunk.value())) {
    MakeRoom();
    if (!Sampled(chunk)) return;
  }
  Sample& sample = chunks_[chunk.value()];
  if (!sample.there()) {
    ++there_;
    sample.wanted = now;  // a put or a promotion counts as a request
  }
  sample.stored[where] = now;
  sample.evicted[where] = kNever;
}

void LifeSamples::OnEvicted(Fingerprint chunk, Where where, MonotonicTime now) {
  if (!Sampled(chunk)) return;
  const auto found = chunks_.find(chunk.value());
  if (found == chunks_.end() || found->second.stored[where] == kNever) return;
  Sample& sample = found->second;
  lifetime_[where].RecordAlone(Between(std::exchange(sample.stored[where], kNever), now));
  idle_[where].RecordAlone(Between(sample.wanted, now));
  sample.evicted[where] = now;
  if (sample.there()) return;
  KVKEEP_CHECK(there_ > 0);
  --there_;
  gone_.push_back({chunk.value(), now});
  if (gone_.size() > kMost) ForgetOldest();
}

void LifeSamples::OnRemoved(Fingerprint chunk, Where where) {
  if (!Sampled(chunk)) return;
  const auto found = chunks_.find(chunk.value());
  if (found == chunks_.end() || found->second.stored[where] == kNever) return;
  Sample& sample = found->second;
  sample.stored[where] = kNever;
  if (sample.there()) return;
  KVKEEP_CHECK(there_ > 0);
  --there_;
  chunks_.erase(found);  // a larger tier would not have it either
}

size_t LifeSamples::OnWanted(std::span<const EvictionPolicy::ChainLink> chunks, MonotonicTime now) {
  size_t sampled = 0;
  for (const EvictionPolicy::ChainLink& link : chunks) {
    if (!Sampled(link.fingerprint)) continue;
    ++sampled;
    WantedOne(link.fingerprint, now);
  }
  return sampled;
}

void LifeSamples::WantedOne(Fingerprint chunk, MonotonicTime now) {
  const auto found = chunks_.find(chunk.value());
  if (found == chunks_.end()) return;
  Sample& sample = found->second;
  sample.wanted = now;
  for (const Where where : {kG2, kG3}) {
    const MonotonicTime evicted = std::exchange(sample.evicted[where], kNever);
    if (evicted != kNever) wanted_again_[where].RecordAlone(Between(evicted, now));
  }
  if (!sample.known()) chunks_.erase(found);
}

// Makes room for one more chunk.
void LifeSamples::MakeRoom() {
  if (there_ >= kMost / 2) HalveTheSample();
  while (chunks_.size() >= kMost) ForgetOldest();
}

void LifeSamples::ForgetOldest() {
  KVKEEP_CHECK(!gone_.empty());
  const Gone oldest = gone_.front();
  gone_.pop_front();
  const auto found = chunks_.find(oldest.fingerprint);
  if (found == chunks_.end() || found->second.there()) return;
  if (found->second.gone_at() == oldest.at) chunks_.erase(found);
}

void LifeSamples::HalveTheSample() {
  mask_ = mask_ * 2 + 1;
  for (auto at = chunks_.begin(); at != chunks_.end();) {
    if (Sampled(Fingerprint(at->first))) {
      ++at;
      continue;
    }
    there_ -= at->second.there();
    at = chunks_.erase(at);
  }
}

LifeSnapshot LifeSamples::snapshot() const {
  LifeSnapshot now{.one_in = mask_ + 1, .sampled_chunks = there_};
  for (const Where where : {kG2, kG3}) {
    now.lifetime[where] = lifetime_[where].counts();
    now.idle[where] = idle_[where].counts();
    now.wanted_again[where] = wanted_again_[where].counts();
  }
  return now;
}

}  // namespace kvkeep::store_internal
