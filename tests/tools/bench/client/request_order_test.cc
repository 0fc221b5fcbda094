// The next request, and when it is due: on made-up times, without a clock.
#include "tools/bench/client/request_order.h"

#include <catch2/catch.hpp>

namespace kvkeep::bench {
namespace {

struct Requests {
  explicit Requests(std::vector<std::pair<double, uint32_t>> at_and_user) {
    for (const auto& [at, user] : at_and_user) made.push_back({.at_seconds = at, .user = user});
    for (const PromptRequest& request : made) pointers.push_back(&request);
  }
  std::vector<PromptRequest> made;
  std::vector<const PromptRequest*> pointers;
};

}  // namespace

TEST_CASE("requests begin by time, users beside each other") {
  const Requests requests({{1, 7}, {1, 8}, {2, 9}});
  RequestOrder order(requests.pointers, /*closed_loop=*/false);
  CHECK(order.NextDue() == 1.0);
  CHECK(order.Begin(1).request->user == 7);
  CHECK(order.Begin(1).request->user == 8);
  CHECK(order.NextDue() == 2.0);
  CHECK_FALSE(order.AllBegun());
  CHECK(order.Begin(2).request->user == 9);
  CHECK(order.AllBegun());
  CHECK_FALSE(order.NextDue().has_value());
}

TEST_CASE("in an open loop a request that waited for its user is due since it was meant to begin") {
  const Requests requests({{1, 7}, {2, 7}});
  RequestOrder order(requests.pointers, /*closed_loop=*/false);
  order.Begin(1);
  CHECK_FALSE(order.NextDue().has_value());  // the user is busy
  order.Ended(7, 30);
  const RequestOrder::Due due = order.Begin(30);
  CHECK(due.request == requests.pointers[1]);
  CHECK(due.since_seconds == 2);
}

TEST_CASE("in a closed loop it is due since the last one ended, or later when that is its time") {
  const Requests requests({{1, 7}, {2, 7}, {40, 7}});
  RequestOrder order(requests.pointers, /*closed_loop=*/true);
  order.Begin(1);
  order.Ended(7, 30);
  CHECK(order.Begin(30).since_seconds == 30);
  order.Ended(7, 31);
  CHECK(order.NextDue() == 40.0);
  CHECK(order.Begin(45).since_seconds == 40);  // no worker was free: that counts
  order.Ended(7, 46);
  CHECK(order.AllBegun());
}

}  // namespace kvkeep::bench
