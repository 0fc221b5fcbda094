#include "tiers/store/reuse_meter.h"

#include <algorithm>

#include "tiers/base/units.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint64_t kTimesTheTiers = 8;
// If both tiers have more bytes than this, an eighth of all chunks is sampled, however few there
// are. A lookup of 512 keys that are all in the sample takes 150 us more.
constexpr uint64_t kSampledWholeBytes = 256 * kMiB;

uint64_t Highest(uint64_t tier_bytes) {
  return tier_bytes > kSampledWholeBytes ? UINT64_MAX / 8 : UINT64_MAX;
}

uint64_t Farthest(uint64_t tier_bytes) {
  return tier_bytes > UINT64_MAX / kTimesTheTiers ? UINT64_MAX : tier_bytes * kTimesTheTiers;
}

}  // namespace

ReuseMeter::ReuseMeter(uint64_t tier_bytes, MonotonicTime now)
    : distances_({.most_keys = kMostKeys,
                  .farthest_bytes = Farthest(tier_bytes),
                  .highest = Highest(tier_bytes)}),
      begun_(now),
      highest_(distances_.highest()) {}

void ReuseMeter::OnRequest(std::span<const Link> chain, uint64_t leading) {
  requests_.fetch_add(1, std::memory_order_relaxed);
  wanted_.fetch_add(chain.size(), std::memory_order_relaxed);
  leading_.fetch_add(leading, std::memory_order_relaxed);
  absl::InlinedVector<uint64_t, 64> sampled;
  const uint64_t highest = highest_.load(std::memory_order_relaxed);
  for (const Link& link : chain) {
    const uint64_t hash = ReuseDistances::HashOf(link.fingerprint);
    if (hash <= highest) sampled.push_back(hash);
  }
  if (sampled.empty()) return;
  MutexLock lock(&mu_);
  distances_.OnRequest(sampled, 0);
  highest_.store(distances_.highest(), std::memory_order_relaxed);
}

void ReuseMeter::OnStored(Fingerprint chunk, uint64_t bytes) {
  if (!Sampled(chunk)) return;
  MutexLock lock(&mu_);
  distances_.OnStored(chunk, bytes);
  highest_.store(distances_.highest(), std::memory_order_relaxed);
}

void ReuseMeter::OnFound(Fingerprint chunk, uint64_t bytes) {
  if (!Sampled(chunk)) return;
  MutexLock lock(&mu_);
  distances_.OnFound(chunk, bytes);
  highest_.store(distances_.highest(), std::memory_order_relaxed);
}

void ReuseMeter::OnRemoved(Fingerprint chunk) {
  if (!Sampled(chunk)) return;
  MutexLock lock(&mu_);
  distances_.OnRemoved(chunk);
}

void ReuseMeter::Clear(MonotonicTime now) {
  MutexLock lock(&mu_);
  distances_.Clear();
  highest_.store(distances_.highest(), std::memory_order_relaxed);
  requests_.store(0, std::memory_order_relaxed);
  wanted_.store(0, std::memory_order_relaxed);
  leading_.store(0, std::memory_order_relaxed);
  begun_ = now;
}

ReuseSnapshot ReuseMeter::snapshot(MonotonicTime now) const {
  MutexLock lock(&mu_);
  ReuseSnapshot snapshot{.curve = distances_.curve(),
                         .leading = leading_.load(std::memory_order_relaxed),
                         .sampled_chunks = distances_.size(),
                         .sampled_share = distances_.share(),
                         .measured_for = std::max(now - begun_, MonotonicTime(0))};
  snapshot.curve.requests = requests_.load(std::memory_order_relaxed);
  snapshot.curve.wanted = wanted_.load(std::memory_order_relaxed);
  return snapshot;
}

ReuseMeter::Note::~Note() {
  if (!asked_.empty()) meter_.OnRequest(asked_, leading_);
  if (stored_bytes_ > 0) meter_.OnStored(stored_, stored_bytes_);
  for (const Fingerprint chunk : removed_) meter_.OnRemoved(chunk);
}

void ReuseMeter::Note::Asked(std::span<const Link> chain, uint64_t leading) {
  asked_ = chain;
  leading_ = leading;
}

void ReuseMeter::Note::Stored(Fingerprint chunk, uint64_t bytes) {
  stored_ = chunk;
  stored_bytes_ = bytes;
}

void ReuseMeter::Note::Removed(Fingerprint chunk) {
  if (meter_.Sampled(chunk)) removed_.push_back(chunk);
}

}  // namespace kvkeep::store_internal
