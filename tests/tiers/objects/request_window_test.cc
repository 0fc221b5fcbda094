#include "tiers/objects/request_window.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

using Kind = RequestWindow::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<RequestWindow::Ticket> FillWindow(RequestWindow& window, MonotonicTime now,
                                              Kind kind = Kind::kRead) {
  std::vector<RequestWindow::Ticket> sent;
  while (const auto ticket = window.TryStart(kind, now)) sent.push_back(*ticket);
  return sent;
}

void ServeRound(RequestWindow& window, MonotonicTime now) {
  for (const auto& ticket : FillWindow(window, now)) window.Served(ticket);
}

}  // namespace

TEST_CASE("a window begins with 16, doubles a round until it shrinks, then grows by one a round") {
  SeededRandom random(1);
  RequestWindow window({}, &random);
  const MonotonicTime now(0);
  CHECK(FillWindow(window, now).size() == 16);
  CHECK(window.in_flight() == 16);
  RequestWindow growing({}, &random);
  std::deque<RequestWindow::Ticket> flying;
  uint32_t answers = 0;
  while (growing.size() < 64) {
    while (const auto ticket = growing.TryStart(Kind::kRead, now)) flying.push_back(*ticket);
    growing.Served(flying.front());
    flying.pop_front();
    ++answers;
    REQUIRE(growing.in_flight() <= growing.size());
  }
  CHECK(answers == 48);
  growing.Slow(flying.front(), now);
  flying.pop_front();
  CHECK(growing.size() == 32);
  for (; !flying.empty(); flying.pop_front()) growing.Served(flying.front());
  answers = 0;
  while (growing.size() < 64) {
    while (const auto ticket = growing.TryStart(Kind::kRead, now)) flying.push_back(*ticket);
    growing.Served(flying.front());
    flying.pop_front();
    ++answers;
  }
  CHECK(answers == (32 + 63) * 32 / 2);  // a round at each size
  for (int i = 0; i < 1000; ++i) {
    growing.Served(flying.front());
    flying.pop_front();
    flying.push_back(growing.TryStart(Kind::kRead, now).value());
  }
  CHECK(growing.size() == 64);
}

TEST_CASE("a window that is not used does not grow, nor one of failures") {
  SeededRandom random(1);
  RequestWindow window({}, &random);
  for (int i = 0; i < 1000; ++i) window.Served(window.TryStart(Kind::kRead, seconds(0)).value());
  for (const auto& ticket : FillWindow(window, seconds(0))) window.Ended(ticket);
  CHECK(window.size() == 16);
  CHECK(window.in_flight() == 0);
}

TEST_CASE("many answers that ask for less, to one window, shrink it once; and then hold all") {
  SeededRandom random(1);
  RequestWindow window({}, &random);
  MonotonicTime now = seconds(10);
  for (const auto& ticket : FillWindow(window, now)) window.Throttled(ticket, now);
  CHECK(window.size() == 11);
  const auto fewer = FillWindow(window, now);
  CHECK(fewer.size() == 11);
  for (const auto& ticket : fewer) window.Throttled(ticket, now);
  CHECK(window.size() == 7);
  CHECK(window.held_until() >= now + milliseconds(750));
  CHECK(window.held_until() <= now + seconds(1));
  CHECK_FALSE(window.TryStart(Kind::kRead, window.held_until() - MonotonicTime(1)).has_value());
  CHECK(window.TryStart(Kind::kRead, window.held_until()).has_value());
}

TEST_CASE("holds double up to a minute while it goes on, and begin anew after a served window") {
  SeededRandom random(1);
  RequestWindow window({}, &random);
  MonotonicTime now = seconds(10);
  std::vector<MonotonicTime> holds;
  for (int i = 0; i < 11; ++i) {
    for (const auto& ticket : FillWindow(window, now)) window.Throttled(ticket, now);
    holds.push_back(window.held_until() - now);
    now = window.held_until();
  }
  CHECK(window.size() == 1);
  CHECK(holds[0] == seconds(0));
  CHECK(holds[2] > milliseconds(1499));
  CHECK(holds[2] <= seconds(2));
  CHECK(holds[5] > seconds(11));
  CHECK(holds.back() >= seconds(45));
  CHECK(holds.back() <= seconds(60));
  ServeRound(window, now);
  CHECK(window.size() == 2);
  for (const auto& ticket : FillWindow(window, now)) window.Throttled(ticket, now);
  CHECK(window.held_until() == now);
  for (const auto& ticket : FillWindow(window, now)) window.Throttled(ticket, now);
  CHECK(window.held_until() - now > seconds(0));
  CHECK(window.held_until() - now <= seconds(1));
}

TEST_CASE("a server's own Retry-After holds longer, up to the longest, and never shorter") {
  SeededRandom random(1);
  for (const auto& [asked, least, most] :
       {std::tuple(seconds(0), milliseconds(0), seconds(0)),
        std::tuple(seconds(7), milliseconds(7000), seconds(7)),
        std::tuple(seconds(86400), milliseconds(60'000), seconds(60))}) {
    RequestWindow window({}, &random);
    window.Throttled(window.TryStart(Kind::kRead, seconds(1)).value(), seconds(1), asked);
    CHECK(window.held_until() >= seconds(1) + least);
    CHECK(window.held_until() <= seconds(1) + most);
  }
}

TEST_CASE("writes have a quarter of the connections, and none when less was asked for") {
  SeededRandom random(1);
  RequestWindow window({.first = 64}, &random);
  MonotonicTime now = seconds(10);
  const auto writes = FillWindow(window, now, Kind::kWrite);
  CHECK(writes.size() == 16);
  CHECK(FillWindow(window, now).size() == 48);
  window.Throttled(writes[0], now);
  for (size_t i = 1; i < writes.size(); ++i) window.Served(writes[i]);
  RequestWindow other({}, &random);
  other.Throttled(other.TryStart(Kind::kRead, now).value(), now);
  now = std::max(other.held_until(), now + seconds(5) - MonotonicTime(1));
  CHECK_FALSE(other.TryStart(Kind::kWrite, now).has_value());
  CHECK(other.TryStart(Kind::kRead, now).has_value());
  now += MonotonicTime(1);
  CHECK(other.TryStart(Kind::kWrite, now).has_value());
  RequestWindow small({.first = 3}, &random);
  CHECK(small.TryStart(Kind::kRead, now).has_value());
  CHECK_FALSE(small.TryStart(Kind::kWrite, now).has_value());
  RequestWindow tiny({.first = 1, .most = 1}, &random);  // so few connections are no one's fault
  CHECK(tiny.TryStart(Kind::kWrite, now).has_value());
}

TEST_CASE("slow bodies halve the window once in a while, down to one, and hold nothing back") {
  SeededRandom random(1);
  RequestWindow window({}, &random);
  MonotonicTime now = seconds(10);
  for (const auto& ticket : FillWindow(window, now)) window.Slow(ticket, now);
  CHECK(window.size() == 8);
  CHECK(window.held_until() < now);
  for (const uint32_t size : {4u, 2u, 1u, 1u}) {
    now += seconds(1);
    window.Slow(window.TryStart(Kind::kRead, now).value(), now);
    CHECK(window.size() == size);
  }
  CHECK(window.is_least(Kind::kRead));
}

TEST_CASE("slow writes have fewer at a time themselves, and reads as many as before") {
  SeededRandom random(1);
  RequestWindow window({.first = 64}, &random);
  MonotonicTime now = seconds(10);
  for (const uint32_t left : {8u, 4u, 2u, 1u, 1u}) {
    for (const auto& ticket : FillWindow(window, now, Kind::kWrite)) window.Slow(ticket, now);
    const auto writes = FillWindow(window, now, Kind::kWrite);
    CHECK(writes.size() == left);
    for (const auto& ticket : writes) window.Ended(ticket);
    now += seconds(1);
  }
  CHECK(window.size() == 64);
  for (int i = 0; i < 300; ++i) {
    for (const auto& ticket : FillWindow(window, now, Kind::kWrite)) window.Served(ticket);
  }
  CHECK(FillWindow(window, now, Kind::kWrite).size() == 16);
}

TEST_CASE("writes never take a read's turn, and go in a small window that no read uses") {
  SeededRandom random(1);
  RequestWindow eight({.first = 8, .most = 8}, &random);
  CHECK(FillWindow(eight, seconds(10), Kind::kWrite).size() == 2);
  CHECK(FillWindow(eight, seconds(10)).size() == 6);
  RequestWindow small({.first = 3}, &random);
  CHECK(FillWindow(small, seconds(10), Kind::kWrite).size() == 3);
  CHECK(FillWindow(small, seconds(10)).size() == 3);
  CHECK_FALSE(small.TryStart(Kind::kWrite, seconds(10)).has_value());
}

TEST_CASE("little is sent beyond what a server takes at a time, and the hold costs more") {
  // A request takes 20 ms. With a hold of a second a third of the server's capacity is used.
  for (const auto& [hold, share] : {std::pair(milliseconds(1000), 0.3),
                                    std::pair(milliseconds(50), 0.7)}) {
    SeededRandom random(5);
    RequestWindow window({.first_hold = hold}, &random);
    uint64_t served = 0, refused = 0;
    MonotonicTime now(0);
    for (int turn = 0; turn < 10'000; ++turn, now += milliseconds(20)) {
      const auto sent = FillWindow(window, now);
      for (size_t i = 0; i < sent.size(); ++i) {
        if (i < 40) {
          window.Served(sent[i]);
          ++served;
        } else {
          window.Throttled(sent[i], now + milliseconds(20));
          ++refused;
        }
      }
    }
    INFO(served / 400'000.0);
    CHECK(refused * 50 < served);
    CHECK(static_cast<double>(served) > share * 10'000 * 40);
  }
}

}  // namespace kvkeep
