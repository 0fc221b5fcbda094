#include "tools/bench/client/request_order.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep::bench {

RequestOrder::RequestOrder(std::span<const PromptRequest* const> requests, bool closed_loop)
    : closed_loop_(closed_loop), left_(requests.size()) {
  for (const PromptRequest* request : requests) {
    User& user = users_[request->user];
    user.requests.push_back(request);
    if (user.requests.size() > 1) continue;
    ready_.push({request->at_seconds, numbers_++, request});
    user.next = 1;
  }
}

std::optional<double> RequestOrder::NextDue() const {
  if (ready_.empty()) return std::nullopt;
  return ready_.top().since;
}

RequestOrder::Due RequestOrder::Begin(double now_seconds) {
  KVKEEP_CHECK(!ready_.empty() && ready_.top().since <= now_seconds);
  const Ready first = ready_.top();
  ready_.pop();
  --left_;
  return {.request = first.request, .since_seconds = first.since};
}

void RequestOrder::Ended(uint32_t number, double now_seconds) {
  User& user = users_.at(number);
  if (user.next == user.requests.size()) return;
  const PromptRequest* const request = user.requests[user.next++];
  const double since =
      closed_loop_ ? std::max(request->at_seconds, now_seconds) : request->at_seconds;
  ready_.push({since, numbers_++, request});
}

}  // namespace kvkeep::bench
