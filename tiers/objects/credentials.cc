#include "tiers/objects/credentials.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// Returns a random time from (100 - spread_percent) % of `whole` up to all of it.
MonotonicTime Jittered(MonotonicTime whole, int spread_percent, RandomSource& random) {
  const int64_t spread = whole.count() / 100 * spread_percent;
  if (spread <= 0) return whole;
  const uint64_t less = random.NextU64() % static_cast<uint64_t>(spread);
  return whole - MonotonicTime(static_cast<int64_t>(less));
}

}  // namespace

S3Credentials::S3Credentials(std::unique_ptr<S3KeySource> source, Clock* clock,
                             RandomSource* random)
    : source_(std::move(source)),
      clock_(*clock),
      random_(*random),
      state_(std::make_shared<State>()) {
  MutexLock lock(&state_->mu);
  state_->due = clock_.Now();
}

S3Credentials::~S3Credentials() = default;

SharedS3Keys S3Credentials::Current() const {
  MutexLock lock(&state_->mu);
  return state_->keys;
}

absl::Status S3Credentials::AwaitFirst(std::chrono::milliseconds within) const {
  const MonotonicTime until = RealClock()->Now() + within;
  MutexLock lock(&state_->mu);
  while (state_->counters.fetched + state_->counters.failed == 0) {
    const MonotonicTime left = until - RealClock()->Now();
    if (left.count() <= 0) break;
    state_->answered.WaitFor(&state_->mu, left);
  }
  return state_->keys == nullptr ? state_->status : absl::OkStatus();
}

absl::Status S3Credentials::status() const {
  MutexLock lock(&state_->mu);
  return state_->status;
}

std::optional<UnixSeconds> S3Credentials::expires() const {
  MutexLock lock(&state_->mu);
  return state_->keys == nullptr ? std::nullopt : state_->keys->expires;
}

KeyCounters S3Credentials::counters() const {
  MutexLock lock(&state_->mu);
  KeyCounters counters = state_->counters;
  if (state_->keys != nullptr) counters.expires = state_->keys->expires;
  return counters;
}

void S3Credentials::Tick() {
  const bool changed = source_->Changed();
  {
    MutexLock lock(&state_->mu);
    if (changed) {
      state_->due = clock_.Now();
      state_->expired = nullptr;
    }
    if (state_->asking || !state_->due.has_value() || clock_.Now() < *state_->due) return;
    state_->asking = true;
  }
  Ask();
}

bool S3Credentials::Expired(const SharedS3Keys& keys) {
  {
    MutexLock lock(&state_->mu);
    if (state_->keys != keys) return true;  // newer ones are there already
    if (state_->expired == keys) return state_->asking;
    state_->expired = keys;
    if (state_->asking) return true;
    state_->asking = true;
  }
  Ask();
  return true;
}

void S3Credentials::Ask() {
  source_->Fetch([weak = std::weak_ptr<State>(state_), &clock = clock_,
                  &random = random_](absl::StatusOr<S3Keys> keys) {
    if (const auto state = weak.lock()) Take(*state, clock, random, std::move(keys));
  });
}

void S3Credentials::Take(State& state, Clock& clock, RandomSource& random,
                         absl::StatusOr<S3Keys> keys) {
  const MonotonicTime now = clock.Now();
  const int64_t wall = static_cast<int64_t>(clock.UnixMicros() / 1'000'000);
  MutexLock lock(&state.mu);
  KVKEEP_CHECK(state.asking);
  state.asking = false;
  state.status = keys.status();
  ++(keys.ok() ? state.counters.fetched : state.counters.failed);
  state.answered.NotifyAll();
  if (!keys.ok()) {
    MonotonicTime pause = kFirstPause;
    for (int i = 0; i < state.failures && pause < kLongestPause; ++i) pause *= 2;
    ++state.failures;
    state.due = now + Jittered(std::min<MonotonicTime>(pause, kLongestPause), 50, random);
    return;
  }
  state.failures = 0;
  state.due.reset();
  if (keys->expires.has_value()) {
    const auto left = std::chrono::seconds(keys->expires->value() - wall);
    const MonotonicTime life =
        std::clamp<std::chrono::seconds>(left, kShortestLife, kLongestLife);
    state.due = now + Jittered(life / 10 * 8, 10, random);
  }
  // Equal keys keep the old object, so that requests signed with either count as one.
  if (state.keys == nullptr || !(*state.keys == *keys)) {
    state.keys = std::make_shared<const S3Keys>(*std::move(keys));
    state.expired = nullptr;
  }
}

}  // namespace kvkeep
