// Who is next, and since when: on times made up, without a clock.
#include "tools/bench/turn_order.h"

#include <catch2/catch.hpp>

namespace kvkeep::bench {
namespace {

struct Turns {
  explicit Turns(std::vector<std::pair<double, uint32_t>> at_and_user) {
    for (const auto& [at, user] : at_and_user) made.push_back({.at_seconds = at, .user = user});
    for (const Turn& turn : made) pointers.push_back(&turn);
  }
  std::vector<Turn> made;
  std::vector<const Turn*> pointers;
};

}  // namespace

TEST_CASE("turns begin by time, users beside each other") {
  const Turns turns({{1, 7}, {1, 8}, {2, 9}});
  TurnOrder order(turns.pointers, /*closed_loop=*/false);
  CHECK(order.NextDue() == 1.0);
  CHECK(order.Begin(1).turn->user == 7);
  CHECK(order.Begin(1).turn->user == 8);
  CHECK(order.NextDue() == 2.0);
  CHECK_FALSE(order.AllBegun());
  CHECK(order.Begin(2).turn->user == 9);
  CHECK(order.AllBegun());
  CHECK_FALSE(order.NextDue().has_value());
}

TEST_CASE("in an open loop a turn that waited for its user is due since it was meant to begin") {
  const Turns turns({{1, 7}, {2, 7}});
  TurnOrder order(turns.pointers, /*closed_loop=*/false);
  order.Begin(1);
  CHECK_FALSE(order.NextDue().has_value());  // the user is busy
  order.Ended(7, 30);
  const TurnOrder::Due due = order.Begin(30);
  CHECK(due.turn == turns.pointers[1]);
  CHECK(due.since_seconds == 2);
}

TEST_CASE("in a closed loop it is due since the last one ended, or later when that is its time") {
  const Turns turns({{1, 7}, {2, 7}, {40, 7}});
  TurnOrder order(turns.pointers, /*closed_loop=*/true);
  order.Begin(1);
  order.Ended(7, 30);
  CHECK(order.Begin(30).since_seconds == 30);
  order.Ended(7, 31);
  CHECK(order.NextDue() == 40.0);
  CHECK(order.Begin(45).since_seconds == 40);  // nobody was free: that counts
  order.Ended(7, 46);
  CHECK(order.AllBegun());
}

}  // namespace kvkeep::bench
