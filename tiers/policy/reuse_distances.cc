#include "tiers/policy/reuse_distances.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {

ReuseDistances::ReuseDistances(const Options& options) : options_(options) {
  KVKEEP_CHECK(options.most_keys >= 1 && options.most_keys <= UINT32_MAX / 4);
  Clear();
}

void ReuseDistances::Clear() {
  // One more than the limit: a newcomer is in before another is out.
  const uint32_t most = options_.most_keys + 1;
  highest_ = options_.highest;
  numbers_.clear();
  keys_.assign(most, {});
  free_.resize(most);
  for (uint32_t i = 0; i < most; ++i) free_[i] = most - 1 - i;
  at_place_.assign(size_t{2} * most, kNone);
  sums_.assign(at_place_.size() + 1, 0);
  next_place_ = oldest_place_ = 0;
  bytes_ = 0;
  curve_ = {};
}

// The finalizer of MurmurHash3: ids of traces are small numbers.
uint64_t ReuseDistances::HashOf(Fingerprint chunk) {
  uint64_t hash = chunk.value();
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdull;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return hash ^ (hash >> 33);
}

double ReuseDistances::share() const {
  constexpr double kAll = 18446744073709551616.0;  // 2^64
  return (static_cast<double>(highest_) + 1) / kAll;
}

void ReuseDistances::OnRequest(std::span<const EvictionPolicy::ChainLink> chain) {
  asked_.clear();
  for (const EvictionPolicy::ChainLink& link : chain) {
    const uint64_t hash = HashOf(link.fingerprint);
    if (hash <= highest_) asked_.push_back(hash);
  }
  OnRequest(asked_, chain.size());
}

void ReuseDistances::OnRequest(std::span<const uint64_t> sampled_hashes, uint64_t wanted) {
  ++curve_.requests;
  curve_.wanted += wanted;
  for (const uint64_t hash : sampled_hashes) {
    if (hash <= highest_) Measure(hash);
  }
  for (size_t i = sampled_hashes.size(); i-- > 0;) {
    if (sampled_hashes[i] <= highest_) MoveToTop(sampled_hashes[i]);
  }
}

void ReuseDistances::Measure(uint64_t hash) {
  const double weight = 1 / share();
  const auto found = numbers_.find(hash);
  if (found == numbers_.end() || keys_[found->second].bytes == 0) {
    curve_.cold += weight;
    return;
  }
  const Key& key = keys_[found->second];
  const uint64_t up_to = BytesUpTo(key.place);
  KVKEEP_CHECK(up_to >= key.bytes && up_to <= bytes_);
  const auto younger = static_cast<double>(bytes_ - up_to);
  const double distance = younger * weight + static_cast<double>(key.bytes);
  // Distances beyond 2^63 are all the same.
  const double most = 9.2e18;
  curve_.at[ReuseCurve::BucketOf(static_cast<uint64_t>(std::min(distance, most)))] += weight;
}

void ReuseDistances::MoveToTop(uint64_t hash) {
  // Must come first: it may move all keys.
  const uint32_t place = TakePlace();
  const auto found = numbers_.find(hash);
  const bool known = found != numbers_.end();
  const uint32_t number = known ? found->second : NewKey(hash);
  Key& key = keys_[number];
  if (known) {
    KVKEEP_CHECK(at_place_[key.place] == number);
    Weigh(key, false);
    at_place_[key.place] = kNone;
  }
  key.place = place;
  at_place_[place] = number;
  Weigh(key, true);
  if (numbers_.size() <= options_.most_keys) return;
  const auto last = std::prev(numbers_.end());
  KVKEEP_CHECK(last->first > 0 && last->first <= highest_);
  highest_ = last->first - 1;  // hashes of two keys differ
  Erase(last->second);
}

void ReuseDistances::OnStored(Fingerprint chunk, uint64_t bytes) {
  const uint64_t hash = HashOf(chunk);
  if (hash > highest_) return;
  if (!numbers_.contains(hash)) {
    MoveToTop(hash);  // not asked for before
    if (hash > highest_) return;
  }
  if (keys_[numbers_.find(hash)->second].bytes != 0) return;
  curve_.first_stored_chunks += 1 / share();
  curve_.first_stored_bytes += static_cast<double>(bytes) / share();
  SetBytes(hash, bytes);
}

void ReuseDistances::OnFound(Fingerprint chunk, uint64_t bytes) {
  const uint64_t hash = HashOf(chunk);
  if (hash > highest_) return;
  MoveToTop(hash);
  if (hash <= highest_) SetBytes(hash, bytes);
}

void ReuseDistances::SetBytes(uint64_t hash, uint64_t bytes) {
  const auto found = numbers_.find(hash);
  KVKEEP_CHECK(found != numbers_.end());
  Key& key = keys_[found->second];
  Weigh(key, false);
  key.bytes = bytes;
  Weigh(key, true);
  ForgetFarthest();
}

void ReuseDistances::OnRemoved(Fingerprint chunk) {
  const auto found = numbers_.find(HashOf(chunk));
  if (found != numbers_.end()) Erase(found->second);
}

void ReuseDistances::ForgetFarthest() {
  // The youngest stays, however large.
  while (numbers_.size() > 1 &&
         static_cast<double>(bytes_) / share() > static_cast<double>(options_.farthest_bytes)) {
    while (at_place_[oldest_place_] == kNone) KVKEEP_CHECK(++oldest_place_ < next_place_);
    Erase(at_place_[oldest_place_]);
  }
}

uint32_t ReuseDistances::NewKey(uint64_t hash) {
  KVKEEP_CHECK(!free_.empty());
  const uint32_t number = free_.back();
  free_.pop_back();
  keys_[number] = {.hash = hash};
  KVKEEP_CHECK(numbers_.emplace(hash, number).second);
  return number;
}

void ReuseDistances::Erase(uint32_t number) {
  Key& key = keys_[number];
  KVKEEP_CHECK(at_place_[key.place] == number);
  Weigh(key, false);
  at_place_[key.place] = kNone;
  KVKEEP_CHECK(numbers_.erase(key.hash) == 1);
  free_.push_back(number);
}

void ReuseDistances::Weigh(const Key& key, bool in) {
  if (key.bytes == 0) return;
  KVKEEP_CHECK(in || bytes_ >= key.bytes);
  bytes_ += in ? key.bytes : -key.bytes;
  for (size_t i = key.place + 1; i < sums_.size(); i += i & -i) {
    sums_[i] += in ? key.bytes : -key.bytes;
  }
}

uint64_t ReuseDistances::BytesUpTo(uint32_t place) const {
  uint64_t bytes = 0;
  for (size_t i = place + 1; i > 0; i -= i & -i) bytes += sums_[i];
  return bytes;
}

uint32_t ReuseDistances::TakePlace() {
  if (next_place_ == at_place_.size()) Compact();
  KVKEEP_CHECK(next_place_ < at_place_.size());
  return next_place_++;
}

void ReuseDistances::Compact() {
  next_place_ = oldest_place_ = 0;
  std::fill(sums_.begin(), sums_.end(), 0);
  for (uint32_t& at : at_place_) {
    const uint32_t number = std::exchange(at, kNone);
    if (number == kNone) continue;
    Key& key = keys_[number];
    key.place = next_place_;
    sums_[next_place_ + 1] = key.bytes;
    at_place_[next_place_++] = number;  // never behind `at`
  }
  KVKEEP_CHECK(next_place_ == numbers_.size());
  for (size_t i = 1; i < sums_.size(); ++i) {
    const size_t above = i + (i & -i);
    if (above < sums_.size()) sums_[above] += sums_[i];
  }
}

}  // namespace kvkeep
