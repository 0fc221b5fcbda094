#include "server/requests/pin_budget.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "server/requests/stall_watch.h"
#include "tests/fakes/manual_clock.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;

SessionToken Session(uint8_t number) {
  SessionToken token;
  token.bytes[0] = number;
  return token;
}
const PinBudget::Holder kA{TenantId(0), Session(1)}, kB{TenantId(0), Session(2)},
    kC{TenantId(0), Session(3)}, kOther{TenantId(1), Session(4)};

PinBudget::Wake Never() {
  return [] {
    FAIL("woken");
    return true;
  };
}

}  // namespace

TEST_CASE("a session pins up to half of its tenant's bytes and one chunk; others go on") {
  PinBudget budget({.tenant_bytes = {100}});
  PinBudget::Ticket ticket = 0;
  PinBudget::Hold first = budget.Take(kA, 49);
  CHECK(budget.HasRoom(kA));
  PinBudget::Hold second = budget.Take(kA, 40);  // as large as chunks are
  CHECK_FALSE(budget.HasRoom(kA));
  CHECK(budget.HasRoom(kB));
  CHECK(budget.HasRoomOr(kB, Never(), &ticket));
  budget.Poke();
}

TEST_CASE("over its tenant's limit a session that holds nothing waits as well, and is counted") {
  PinBudget budget({.tenant_bytes = {60, 60}});
  PinBudget::Ticket ticket = 0;
  auto first = std::make_unique<PinBudget::Hold>(budget.Take(kA, 29));
  const PinBudget::Hold second = budget.Take(kB, 31);
  int woken = 0;
  CHECK_FALSE(budget.HasRoomOr(
      kC, [&] { return ++woken > 0; }, &ticket));
  budget.Poke();
  CHECK(woken == 0);
  first.reset();
  CHECK(woken == 0);  // not from within a pin's end
  budget.Poke();
  CHECK(woken == 1);
  budget.Poke();
  CHECK(woken == 1);
  CHECK(budget.HasRoom(kC));
}

TEST_CASE("what one tenant holds and waits for is nothing to another") {
  PinBudget budget({.tenant_bytes = {60, 20}});
  PinBudget::Ticket ticket = 0;
  std::vector<PinBudget::Hold> holds;
  for (uint8_t session = 10; session < 20; ++session) {
    holds.push_back(budget.Take({TenantId(0), Session(session)}, 40));
    CHECK_FALSE(budget.HasRoomOr({TenantId(0), Session(session)}, Never(), &ticket));
  }
  CHECK(budget.HasRoomOr(kOther, Never(), &ticket));
  holds.push_back(budget.Take(kOther, 10));
  budget.Poke();
  CHECK(budget.UseOf(TenantId(0)).bytes == 400);
  CHECK(budget.UseOf(TenantId(0)).waits == 10);
  CHECK(budget.UseOf(TenantId(1)).bytes == 10);
  CHECK(budget.UseOf(TenantId(1)).waits == 0);
  CHECK(budget.UseOf(TenantId(1)).limit_bytes == 20);
  // And the other way round: one that is over its own part does not wait for the first.
  bool woken = false;
  CHECK_FALSE(budget.HasRoomOr(
      kOther, [&woken] { return (woken = true); }, &ticket));
  holds.pop_back();
  budget.Poke();
  CHECK(woken);
}

TEST_CASE("who waits is woken in turn, sessions by turns, and one that is gone is passed over") {
  PinBudget budget({.tenant_bytes = {20}});
  PinBudget::Ticket ticket = 0;
  std::vector<PinBudget::Hold> holds;
  holds.push_back(budget.Take(kA, 10));
  holds.push_back(budget.Take(kB, 10));
  std::vector<int> woken;
  const auto wait = [&](const PinBudget::Holder& session, int number, bool there = true) {
    CHECK_FALSE(budget.HasRoomOr(
        session,
        [&woken, &holds, &budget, session, number, there] {
          if (!there) return false;
          woken.push_back(number);
          holds.push_back(budget.Take(session, 10));
          budget.Poke();  // as a stream does; wakes no other one inside
          return true;
        },
        &ticket));
  };
  wait(kA, 1, false);
  wait(kA, 2);
  wait(kA, 3);
  wait(kB, 4);
  holds.clear();
  budget.Poke();
  CHECK(woken == std::vector<int>{4, 2});  // the turn of the ended one is over
  holds.clear();
  budget.Poke();
  CHECK(woken == std::vector<int>{4, 2, 3});
}

TEST_CASE("who ends while it waits is forgotten, and wakes nobody in its turn") {
  PinBudget budget({.tenant_bytes = {20}});
  std::vector<PinBudget::Hold> holds;
  for (const PinBudget::Holder& holder : {kA, kB}) holds.push_back(budget.Take(holder, 10));
  for (uint8_t number = 10; number < 200; ++number) {
    const PinBudget::Holder holder{TenantId(0), Session(number)};
    PinBudget::Ticket tickets[2] = {};
    for (PinBudget::Ticket& ticket : tickets) {
      CHECK_FALSE(budget.HasRoomOr(holder, Never(), &ticket));
    }
    CHECK(budget.UseOf(TenantId(0)).waiting == 2);
    for (const PinBudget::Ticket ticket : tickets) budget.Leave(holder, ticket);
    CHECK(budget.UseOf(TenantId(0)).waiting == 0);
    CHECK(budget.sessions() == 2);
  }
  // One of two of a session: the other keeps its turn.
  std::vector<int> woken;
  PinBudget::Ticket first = 0, second = 0, third = 0;
  CHECK_FALSE(budget.HasRoomOr(kA, Never(), &first));
  CHECK_FALSE(budget.HasRoomOr(
      kA, [&] { return woken.push_back(2), true; }, &second));
  CHECK_FALSE(budget.HasRoomOr(
      kB, [&] { return woken.push_back(3), true; }, &third));
  budget.Leave(kA, first);
  holds.clear();
  budget.Poke();
  CHECK(woken == std::vector<int>{2, 3});
  for (const PinBudget::Ticket ticket : {first, second}) budget.Leave(kA, ticket);  // too late
  CHECK(budget.UseOf(TenantId(0)).waiting == 0);
  CHECK(budget.sessions() == 0);
}

TEST_CASE("on many threads nobody waits for ever, and nothing is left in the end") {
  PinBudget budget({.tenant_bytes = {5}});
  PinBudget::Ticket ticket = 0;
  constexpr int kThreads = 4, kRounds = 2000;
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const PinBudget::Holder session{TenantId(0), Session(static_cast<uint8_t>(1 + t / 2))};
      PinBudget::Ticket mine = 0;
      for (int i = 0; i < kRounds; ++i) {
        auto go = std::make_shared<std::atomic<bool>>(false);
        while (!budget.HasRoomOr(
            session, [go] { return (*go = true); }, &mine)) {
          while (!go->exchange(false)) budget.Poke();
        }
        { const PinBudget::Hold hold = budget.Take(session, 2); }
        budget.Poke();
      }
      ++done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(done == kThreads);
  CHECK(budget.HasRoomOr(kA, Never(), &ticket));
}

TEST_CASE(
    "a clock that ran for the limit is told, once; one that was stopped or started anew not") {
  ManualClock time;
  StallWatch watch(&time, milliseconds(100));
  int stalls[3] = {};
  auto slow = watch.Add([&] { ++stalls[0]; });
  auto stopped = watch.Add([&] { ++stalls[1]; });
  auto anew = watch.Add([&] { ++stalls[2]; });
  for (const auto& clock : {slow, stopped, anew}) clock->Start();
  time.Advance(milliseconds(99));
  watch.Tick();
  CHECK(stalls[0] == 0);
  stopped->Stop();
  anew->Start();
  time.Advance(milliseconds(1));
  watch.Tick();
  watch.Tick();
  CHECK(stalls[0] == 1);
  CHECK(stalls[1] == 0);
  CHECK(stalls[2] == 0);
  slow->Start();
  anew.reset();  // its stream ended
  time.Advance(milliseconds(200));
  watch.Tick();
  CHECK(stalls[0] == 2);
  CHECK(stalls[2] == 0);
}

}  // namespace kvkeep
