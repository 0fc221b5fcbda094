#include "server/sockets/connection_table.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

UniqueFd Connection() {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(fd.valid());
  GuardSocket(fd.get(), kNothingPassed);
  return fd;
}

std::string Name(const UniqueFd& fd) { return "fd:" + std::to_string(fd.get()); }

// A table that has just looked for closed connections, slowly, does not look again at once.
bool BeforeLong(const std::function<bool()>& adds) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!adds()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

TEST_CASE("a table tells of the connection that has the number now, and counts open ones") {
  ConnectionTable<std::string> table;
  UniqueFd one = Connection();
  const int number = one.get();
  CHECK_FALSE(table.Find(Name(one)).has_value());
  REQUIRE(table.Add(one.get(), {{"a", 2}}, "one"));
  CHECK(table.Find(Name(one)) == "one");
  for (const char* other : {"", "fd:", "fd:x", "ipv4:127.0.0.1:1", "unix:", "fd:-1"}) {
    CHECK_FALSE(table.Find(other).has_value());
  }
  one.Reset();
  UniqueFd same_number = Connection();
  REQUIRE(same_number.get() == number);  // the kernel gives the lowest
  REQUIRE(table.Add(number, {{"a", 2}}, "two"));
  CHECK(table.Find(Name(same_number)) == "two");

  UniqueFd third = Connection();
  CHECK(table.Add(third.get(), {{"a", 2}}, "three"));
  const UniqueFd fourth = Connection();
  CHECK_FALSE(table.Add(fourth.get(), {{"a", 2}}, "four"));
  CHECK_FALSE(table.Find(Name(fourth)).has_value());
  CHECK(table.Add(fourth.get(), {{"b", 1}}, "of another group"));

  // A number that is a file's now, or that of a connection outside the table, is closed.
  same_number.Reset();
  const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(file.get() == number);
  const UniqueFd fifth = Connection();
  CHECK(BeforeLong([&] { return table.Add(fifth.get(), {{"a", 2}}, "five"); }));
  CHECK(table.Find(Name(third)) == "three");
  const int third_number = third.get();
  third.Reset();
  const UniqueFd elsewhere = Connection();
  REQUIRE(elsewhere.get() == third_number);
  const UniqueFd sixth = Connection();
  CHECK(BeforeLong([&] { return table.Add(sixth.get(), {{"a", 2}}, "six"); }));
}

TEST_CASE("a socket that is not guarded is no connection of a table") {
  ConnectionTable<int> table;
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK_FALSE(table.Add(fd.get(), {{"a", 2}}, 0));
}

TEST_CASE("a connection counts in each of its groups, and one that is full keeps it out of all") {
  ConnectionTable<int> table;
  UniqueFd one = Connection();
  const UniqueFd two = Connection(), three = Connection(), four = Connection();
  const auto add = [&](const UniqueFd& fd, const char* address) {
    return table.Add(fd.get(), {{"listener", 3}, {address, 1}}, 0);
  };
  CHECK(add(one, "x"));
  CHECK_FALSE(add(two, "x"));
  CHECK(table.Full({"x", 1}));
  CHECK_FALSE(table.Full({"listener", 3}));
  CHECK(add(two, "y"));
  CHECK(add(three, "z"));  // the refused one took no place of the listener
  CHECK_FALSE(add(four, "w"));
  CHECK_FALSE(table.Full({"w", 1}));
  one.Reset();
  CHECK(BeforeLong([&] { return add(four, "x"); }));
}

}  // namespace kvkeep
