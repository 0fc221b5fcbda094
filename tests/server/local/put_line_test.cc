// Puts that wait for space are served in order of arrival, within a tenant.
#include "server/local/put_line.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace kvkeep {
namespace {

// Puts while there is room, one unit at a time.
struct LineWaiter final : PutLine::Waiter {
  LineWaiter(PutLine* line, uint32_t tenant, int* room, int puts, char name, std::string* order)
      : line(line), tenant(tenant), room(room), puts(puts), name(name), order(order) {}
  bool TryAgain() override {
    while (puts > 0) {
      if (!line->MayGo(tenant, this) || *room == 0) {
        line->Join(tenant, this);
        return true;
      }
      --*room;
      --puts;
      *order += name;
      line->Leave(tenant, this);
    }
    return false;
  }

  PutLine* const line;
  const uint32_t tenant;
  int* const room;
  int puts;
  const char name;
  std::string* const order;
};

}  // namespace

TEST_CASE("puts that wait go one after the other, and nobody overtakes") {
  PutLine line;
  int room = 0;
  std::string order;
  LineWaiter a(&line, 0, &room, 3, 'a', &order), b(&line, 0, &room, 2, 'b', &order);
  CHECK(line.MayGo(0, &b));
  CHECK(a.TryAgain());
  CHECK(b.TryAgain());
  CHECK(line.MayGo(0, &a));
  CHECK_FALSE(line.MayGo(0, &b));
  room = 1;
  CHECK(b.TryAgain());  // not its turn, though there is room
  line.Advance(0);
  CHECK(order == "a");
  room = 10;
  line.Advance(0);
  CHECK(order == "ababa");  // after its turn it goes behind the others
  CHECK(line.MayGo(0, &b));
  line.Advance(0);  // nobody waits
}

TEST_CASE("a tenant whose puts wait keeps no other from putting, and who leaves is forgotten") {
  PutLine line;
  int room = 0, other_room = 1;
  std::string order;
  LineWaiter a(&line, 0, &room, 1, 'a', &order), b(&line, 0, &room, 1, 'b', &order);
  LineWaiter other(&line, 1, &other_room, 1, 'o', &order);
  CHECK(a.TryAgain());
  CHECK(b.TryAgain());
  CHECK_FALSE(other.TryAgain());
  CHECK(order == "o");
  line.Leave(0, &a);
  line.Leave(0, &a);
  room = 1;
  line.Advance(0);
  CHECK(order == "ob");
}

}  // namespace kvkeep
