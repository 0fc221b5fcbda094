// SharedRate: what a tenant may ask for in a second, and of that what one of its sessions may.
//
// Sessions that asked in this second or the last one have equal shares. Who is within its share
// goes on while its tenant has a token. Beyond it one goes on that asks alone, or while the tenant
// has more than half of what it can save: so what others leave is anybody's. Who asks for less than
// its share is not kept from it by one that asks for more; where many take at once what they saved,
// more than the half that is left for them, it may wait for a second or two.
//
// As for the tenant (token_bucket.h), a call that may go on does, whatever it takes. Where one call
// takes more than a second's worth the others wait for it, and then have their turn while the one
// that took it pays: shares are kept over time, not within such a call.
//
// A plain value: the core's lock protects it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "tiers/base/clock.h"
#include "tiers/base/token_bucket.h"

namespace kvkeep::store_internal {

class SharedRate {
 public:
  // One session's share of the rate.
  class SessionShare {
    friend class SharedRate;
    std::optional<TokenBucket> own_;  // since it first asked
    int64_t asked_in_ = -1;           // second
    uint64_t of_ = 0;                 // SharedRate::generation_, when it last asked
  };
  struct Refusal {
    std::chrono::milliseconds wait;
    uint64_t requesters = 1;  // more: it is the session's share that is used up
  };

  explicit SharedRate(uint64_t per_second) : all_(per_second) {}  // 0: no limit

  bool limited() const { return all_.limited(); }
  uint64_t per_second() const { return all_.per_second(); }
  // A rate that stays keeps what is owed of it. Of another one nothing is, by nobody.
  void SetRate(uint64_t per_second) {
    if (per_second == this->per_second()) return;
    all_ = TokenBucket(per_second);
    asked_ = before_ = 0;
    ++generation_;
  }

  // Nothing: it may go on.
  std::optional<Refusal> Ask(SessionShare& session, MonotonicTime now) {
    if (!limited()) return std::nullopt;
    if (session.of_ != generation_) {
      session = SessionShare();
      session.of_ = generation_;
    }
    const uint64_t requesters = CountRequesters(session, now);
    const uint64_t equal = per_second() / requesters;
    // A little is kept back, so that the tenant's tokens come back to a half while all take all of
    // their shares.
    const uint64_t share = std::max<uint64_t>(1, requesters == 1 ? equal : equal - equal / 16);
    if (!session.own_.has_value()) session.own_.emplace(share);
    session.own_->SetRate(share, now);
    if (const auto wait = all_.Wait(now)) return Refusal{.wait = *wait};
    const auto own_wait = session.own_->Wait(now);
    if (!own_wait.has_value()) return std::nullopt;
    const auto rest_wait = requesters == 1 ? std::nullopt : all_.WaitForHalf(now);
    if (rest_wait.has_value()) {
      return Refusal{.wait = std::min(*own_wait, *rest_wait), .requesters = requesters};
    }
    // What others leave is not held against it when they want theirs again: it owes one call.
    session.own_->Forgive();
    return std::nullopt;
  }
  // Null: of a session that is closed by now.
  void Take(SessionShare* session, uint64_t tokens) {
    all_.Take(tokens);
    if (session != nullptr && session->own_.has_value()) session->own_->Take(tokens);
  }

 private:
  uint64_t CountRequesters(SessionShare& session, MonotonicTime now) {
    const int64_t second = std::chrono::duration_cast<std::chrono::seconds>(now).count();
    if (second != second_) {
      before_ = second == second_ + 1 ? asked_ : 0;
      asked_ = 0;
      second_ = second;
    }
    if (session.asked_in_ != second) ++asked_;
    session.asked_in_ = second;
    return std::max({uint64_t{1}, asked_, before_});
  }

  TokenBucket all_;
  uint64_t generation_ = 0;  // how often the rate was changed
  int64_t second_ = 0;
  uint64_t asked_ = 0, before_ = 0;  // sessions, in this second and the one before it
};

}  // namespace kvkeep::store_internal
