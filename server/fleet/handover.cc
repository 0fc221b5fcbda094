#include "server/fleet/handover.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {

Handover::Handover(const Options& options, std::function<HotChunks()> name_hottest,
                   Executor* executor, const Clock* clock)
    : options_(options),
      name_hottest_(std::move(name_hottest)),
      executor_(*executor),
      clock_(*clock),
      rate_(options.bytes_per_second) {}

Handover::~Handover() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(asked_ == 0 && running_ == 0);
}

void Handover::Begin(MonotonicTime deadline) {
  {
    MutexLock lock(&mu_);
    const bool goes_on = state_ != State::kIdle;
    deadline_ = goes_on ? std::max(deadline_, deadline) : deadline;
    // A node that drains gets no more chunks: what was handed over is all there is.
    if (goes_on || (run_ > 0 && handed_ == all_)) return;
    state_ = State::kNaming;
    ++run_;
    ++running_;
  }
  executor_.Post([this] {
    Name();
    Pump();
    MutexLock lock(&mu_);
    --running_;
  });
}

void Handover::Name() {
  const HotChunks hot = name_hottest_();
  std::deque<Batch> batches;
  if (options_.bytes_per_second > 0) batches = ToBatches(hot.hottest);
  {
    MutexLock lock(&mu_);
    if (state_ == State::kStopped) return;
    batches_ = std::move(batches);
    looked_ = false;
    handed_ = 0;
    all_ = hot.all;
    for (Taker& taker : takers_) {
      taker.done = false;
      taker.fruitless = 0;
      taker.reached = clock_.Now();
    }
    state_ = State::kGiving;
  }
}

HandedOver Handover::state() const {
  MutexLock lock(&mu_);
  return {.chunks = handed_,
          .left = all_ - handed_,
          .under_way = state_ == State::kNaming || state_ == State::kGiving};
}

void Handover::Stop() {
  MutexLock lock(&mu_);
  state_ = State::kStopped;
}

bool Handover::busy() const {
  MutexLock lock(&mu_);
  return asked_ > 0 || running_ > 0;
}

HandoverCounters Handover::counters() const {
  MutexLock lock(&mu_);
  return counters_;
}

// An offer is of one namespace.
std::deque<Handover::Batch> Handover::ToBatches(const std::vector<OfferedChunk>& chunks) {
  std::deque<Batch> batches;
  absl::flat_hash_map<NamespaceDigest, Batch> open;
  for (const OfferedChunk& chunk : chunks) {
    Batch& batch = open[chunk.id.ns];
    batch.chunks.push_back(chunk);
    batch.bytes += chunk.shape.blocks().value() * kBlockBytes;
    const size_t count = batch.chunks.size();
    if (count >= kMostChunks || (count >= kLeastChunks && batch.bytes >= kBatchBytes)) {
      batches.push_back(std::exchange(batch, {}));
    }
  }
  for (auto& [ns, batch] : open) {
    if (!batch.chunks.empty()) batches.push_back(std::move(batch));
  }
  return batches;
}

void Handover::Tick(const Takers& takers) {
  std::vector<Taker> now_there;
  for (const std::shared_ptr<OfferTaker>& node : takers) {
    now_there.push_back({.node = node, .reachable = node->reachable()});
  }
  const MonotonicTime now = clock_.Now();
  {
    MutexLock lock(&mu_);
    for (Taker& taker : now_there) {
      const auto before = std::find_if(takers_.begin(), takers_.end(),
                                       [&](const Taker& one) { return one.node == taker.node; });
      const bool reachable = taker.reachable;
      if (before != takers_.end()) taker = std::move(*before);
      taker.reachable = reachable;
      if (reachable || before == takers_.end()) taker.reached = now;
    }
    takers_.swap(now_there);
    looked_ = true;
  }
  Pump();
}

bool Handover::IsOver(MonotonicTime now) const {
  if (now >= deadline_) return true;
  if (asked_ > 0) return false;
  if (batches_.empty()) return true;
  return looked_ && std::all_of(takers_.begin(), takers_.end(), [&](const Taker& taker) {
           return taker.done || (!taker.reachable && now - taker.reached > options_.patience);
         });
}

bool Handover::Takes(const OfferTaker* node) const {
  return std::any_of(takers_.begin(), takers_.end(), [node](const Taker& taker) {
    return taker.node.get() == node && taker.reachable && !taker.done;
  });
}

std::pair<Handover::Taker*, Handover::Batches::iterator> Handover::Next(MonotonicTime now) {
  for (size_t i = 0; i < takers_.size(); ++i) {
    Taker& taker = takers_[++turn_ % takers_.size()];
    if (!Takes(taker.node.get()) || taker.asked || taker.rests_until > now) continue;
    const auto batch = std::find_if(batches_.begin(), batches_.end(), [&](const Batch& one) {
      mu_.AssertHeld();
      return one.with == nullptr || one.with == taker.node || !Takes(one.with.get());
    });
    if (batch != batches_.end()) return {&taker, batch};
  }
  return {nullptr, batches_.end()};
}

void Handover::Pump() {
  while (true) {
    std::shared_ptr<OfferTaker> node;
    Batch batch;
    uint64_t run = 0;
    MonotonicTime until{0};
    {
      const MonotonicTime now = clock_.Now();
      MutexLock lock(&mu_);
      if (state_ != State::kGiving) return;
      if (IsOver(now)) {
        state_ = State::kIdle;
        batches_.clear();
        return;
      }
      if (asked_bytes_ >= rate_.saved(now)) return;
      const auto [taker, next] = Next(now);
      if (taker == nullptr) return;
      taker->asked = true;
      node = taker->node;
      batch = std::move(*next);
      batches_.erase(next);
      ++asked_;
      asked_bytes_ += batch.bytes;
      ++counters_.offers;
      run = run_;
      until = std::min(deadline_, now + options_.offer_within);
    }
    std::vector<OfferedChunk> chunks = batch.chunks;
    node->Offer(std::move(chunks), until,
                [this, run, node,
                 batch = std::move(batch)](const absl::StatusOr<OfferAnswer>& answer) mutable {
                  OnAnswer(run, node, std::move(batch), answer);
                });
  }
}

bool Handover::Take(const OfferAnswer& answer, Batch& batch) {
  Batch rest{.chunks = {}, .bytes = 0, .fruitless = batch.fruitless};
  uint64_t taken_bytes = 0;
  for (size_t i = 0; i < batch.chunks.size(); ++i) {
    const uint64_t bytes = batch.chunks[i].shape.blocks().value() * kBlockBytes;
    const OfferEnd end = answer.chunks[i];
    if (end == OfferEnd::kRefused) {
      rest.chunks.push_back(batch.chunks[i]);
      rest.bytes += bytes;
    } else if (end == OfferEnd::kTaken) {
      taken_bytes += bytes;
    }
  }
  const size_t handed = batch.chunks.size() - rest.chunks.size();
  handed_ += handed;
  counters_.handed_chunks += handed;
  counters_.handed_bytes += taken_bytes;
  counters_.refused_chunks += rest.chunks.size();
  rate_.saved(clock_.Now());  // what came meanwhile is saved first
  rate_.Take(taken_bytes);
  batch = std::move(rest);
  return handed > 0;
}

void Handover::OnAnswer(uint64_t run, const std::shared_ptr<OfferTaker>& node, Batch batch,
                        const absl::StatusOr<OfferAnswer>& answer) {
  {
    MutexLock lock(&mu_);
    ++running_;
  }
  Note(run, node, std::move(batch), answer);
  Pump();
  MutexLock lock(&mu_);
  --running_;
}

void Handover::Note(uint64_t run, const std::shared_ptr<OfferTaker>& node, Batch batch,
                    const absl::StatusOr<OfferAnswer>& answer) {
  const bool usable = answer.ok() && answer->chunks.size() == batch.chunks.size();
  MutexLock lock(&mu_);
  --asked_;
  asked_bytes_ -= batch.bytes;
  const auto taker = std::find_if(takers_.begin(), takers_.end(),
                                  [&](const Taker& one) { return one.node == node; });
  if (taker != takers_.end()) taker->asked = false;
  if (run != run_ || state_ != State::kGiving) return;
  const bool some = usable && Take(*answer, batch);
  if (some) batch.fruitless = 0;
  if (taker != takers_.end()) {
    const bool may_ask_again = usable ? !answer->full
                                      : absl::IsResourceExhausted(answer.status()) ||
                                            absl::IsUnavailable(answer.status()) ||
                                            absl::IsDeadlineExceeded(answer.status());
    taker->fruitless = some ? 0 : std::min(taker->fruitless + 1, kMostFruitless);
    // A node that is busy or away may be well soon; the deadline bounds that.
    taker->done |= !may_ask_again || (usable && taker->fruitless >= kMostFruitless);
    if (!some) taker->rests_until = clock_.Now() + options_.rest * taker->fruitless;
  }
  batch.with = some && !answer->full ? node : nullptr;
  // A batch that a full or broken node did not take says nothing against the batch.
  if (!some && usable && !answer->full) ++batch.fruitless;
  if (!batch.chunks.empty() && batch.fruitless < kMostFruitless) {
    batches_.push_front(std::move(batch));
  }
}

}  // namespace kvkeep
