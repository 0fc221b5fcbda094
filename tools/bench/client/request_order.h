// RequestOrder: chooses the next request of a worker's users, and tells when it was due.
//
// A user's requests never overlap. In an open loop a request may have to wait for its user's last
// one, or for a free player. It is due from its planned begin: latencies that count from there
// leave nothing out (no coordinated omission). In a closed loop a user asks when both its time has
// come and the last answer has arrived, and the request is due from then. Times are seconds since
// the load's start. Not thread-safe; has no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "tools/bench/client/pattern.h"

namespace kvkeep::bench {

class RequestOrder {
 public:
  struct Due {
    const PromptRequest* request = nullptr;
    double since_seconds = 0;
  };

  // `requests`, by time, stay where they are.
  RequestOrder(std::span<const PromptRequest* const> requests, bool closed_loop);

  // Returns when the next request that could begin is due; none: all have begun, or their users are
  // // busy.
  std::optional<double> NextDue() const;
  // Begins the request of NextDue. REQUIRES: there is one, and its time has come.
  Due Begin(double now_seconds);
  // Reports that the user's request has ended.
  void Ended(uint32_t user, double now_seconds);
  // Returns whether every request has begun.
  bool AllBegun() const { return left_ == 0; }

 private:
  struct Ready {
    double since;
    size_t number;  // orders requests of equal times
    const PromptRequest* request;
    bool operator>(const Ready& other) const {
      return since != other.since ? since > other.since : number > other.number;
    }
  };
  struct User {
    std::vector<const PromptRequest*> requests;
    size_t next = 0;
  };

  const bool closed_loop_;
  std::map<uint32_t, User> users_;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;  // one of each idle user
  size_t left_;
  size_t numbers_ = 0;
};

}  // namespace kvkeep::bench
