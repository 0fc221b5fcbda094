#include "tools/bench/turn_order.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep::bench {

TurnOrder::TurnOrder(std::span<const Turn* const> turns, bool closed_loop)
    : closed_loop_(closed_loop), left_(turns.size()) {
  for (const Turn* turn : turns) {
    User& user = users_[turn->user];
    user.turns.push_back(turn);
    if (user.turns.size() > 1) continue;
    ready_.push({turn->at_seconds, numbers_++, turn});
    user.next = 1;
  }
}

std::optional<double> TurnOrder::NextDue() const {
  if (ready_.empty()) return std::nullopt;
  return ready_.top().since;
}

TurnOrder::Due TurnOrder::Begin(double now_seconds) {
  KVKEEP_CHECK(!ready_.empty() && ready_.top().since <= now_seconds);
  const Ready first = ready_.top();
  ready_.pop();
  --left_;
  return {.turn = first.turn, .since_seconds = first.since};
}

void TurnOrder::Ended(uint32_t number, double now_seconds) {
  User& user = users_.at(number);
  if (user.next == user.turns.size()) return;
  const Turn* const turn = user.turns[user.next++];
  const double since = closed_loop_ ? std::max(turn->at_seconds, now_seconds) : turn->at_seconds;
  ready_.push({since, numbers_++, turn});
}

}  // namespace kvkeep::bench
