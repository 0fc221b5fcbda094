#include "tiers/objects/breaker.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

int64_t SecondOf(MonotonicTime now) {
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace

Breaker::Breaker(const BreakerOptions& options, RandomSource* random)
    : options_(options), random_(*random) {
  KVKEEP_CHECK(options.connection_failures > 0 && options.least_answers > 0);
  KVKEEP_CHECK(options.failed_percent > 0 && options.failed_percent <= 100);
  KVKEEP_CHECK(options.first_pause.count() > 0 && options.longest_pause >= options.first_pause);
  KVKEEP_CHECK(options.misconfigured_pause.count() > 0);
}

std::optional<Breaker::Ticket> Breaker::Admit(MonotonicTime now) {
  Ticket ticket;
  if (state_ == State::kProbing || (state_ == State::kOpen && now < retry_at_)) return std::nullopt;
  if (state_ == State::kOpen) {
    state_ = State::kProbing;
    ++epoch_;
  }
  ticket.epoch_ = epoch_;
  return ticket;
}

bool Breaker::Counts(Ticket ticket) const {
  KVKEEP_CHECK(ticket.epoch_ > 0 && ticket.epoch_ <= epoch_);
  return ticket.epoch_ == epoch_;
}

void Breaker::Serves(Ticket ticket, MonotonicTime now) {
  if (!Counts(ticket)) return;
  if (state_ == State::kProbing) return Close();
  KVKEEP_CHECK(state_ == State::kClosed);
  connection_failures_ = 0;
  Count(now, false);
}

void Breaker::Fails(Ticket ticket, Failure failure, MonotonicTime now) {
  if (!Counts(ticket)) return;
  if (state_ == State::kProbing) return Open(now, false);
  KVKEEP_CHECK(state_ == State::kClosed);
  connection_failures_ = failure == Failure::kConnection ? connection_failures_ + 1 : 0;
  Count(now, true);
  if (connection_failures_ >= options_.connection_failures || TooMany(now)) Open(now, false);
}

void Breaker::Misconfigured(Ticket ticket, MonotonicTime now) {
  if (Counts(ticket)) Open(now, true);
}

void Breaker::Abandons(Ticket ticket, MonotonicTime now) {
  if (!Counts(ticket) || state_ != State::kProbing) return;
  state_ = State::kOpen;
  ++epoch_;
  retry_at_ = now;
}

std::chrono::nanoseconds Breaker::RetryIn(MonotonicTime now) const {
  if (state_ != State::kOpen) return std::chrono::nanoseconds(0);
  return std::max(retry_at_ - now, std::chrono::nanoseconds(0));
}

void Breaker::Count(MonotonicTime now, bool failed) {
  const int64_t number = SecondOf(now);
  Second& second = seconds_[static_cast<size_t>(number) % kSeconds];
  if (second.number != number) second = {.number = number};
  ++second.answers;
  second.failures += failed ? 1 : 0;
  KVKEEP_CHECK(second.failures <= second.answers);
}

bool Breaker::TooMany(MonotonicTime now) const {
  uint64_t answers = 0, failures = 0;
  for (const Second& second : seconds_) {
    if (second.number <= SecondOf(now) - static_cast<int64_t>(kSeconds)) continue;
    answers += second.answers;
    failures += second.failures;
  }
  return answers >= options_.least_answers && failures * 100 >= answers * options_.failed_percent;
}

void Breaker::Open(MonotonicTime now, bool misconfigured) {
  KVKEEP_CHECK(state_ != State::kOpen);
  if (misconfigured) {
    pause_ = options_.misconfigured_pause;
  } else if (state_ == State::kProbing && !misconfigured_) {
    pause_ = std::min<std::chrono::nanoseconds>(2 * pause_, options_.longest_pause);
  } else {
    pause_ = options_.first_pause;
  }
  KVKEEP_CHECK(pause_.count() > 0);
  state_ = State::kOpen;
  misconfigured_ = misconfigured;
  ++epoch_;
  ++times_opened_;
  const uint64_t quarter = static_cast<uint64_t>(pause_.count()) / 4;
  retry_at_ = now + pause_ - std::chrono::nanoseconds(random_.NextU64() % (quarter + 1));
}

void Breaker::Close() {
  KVKEEP_CHECK(state_ == State::kProbing);
  state_ = State::kClosed;
  misconfigured_ = false;
  ++epoch_;
  connection_failures_ = 0;
  seconds_ = {};
}

}  // namespace kvkeep
