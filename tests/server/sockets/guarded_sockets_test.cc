#include "server/sockets/guarded_sockets.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>

#include "proto/local/message.h"
#include "tests/fakes/lingering_sockets.h"
#include "tests/server/soon.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

constexpr DescriptorCloser::Owner kOwner = PassedByGuarded(1, 1000);

struct Pair {
  explicit Pair(DescriptorCloser::Owner owner) {
    std::array<int, 2> ends;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    peer = UniqueFd(ends[0]);
    guarded = UniqueFd(ends[1]);
    GuardSocket(guarded.get(), owner);
  }
  void Pass(UniqueFd fd) const {
    const std::array<std::byte, 1> byte{};
    const std::array<int, 1> fds{fd.get()};
    REQUIRE(local::SendPacket(peer.get(), byte, fds, 0).ok());
    DescriptorCloser::OfProcess().Close(std::move(fd), 0);  // ours would wait if it were the last
  }
  UniqueFd peer, guarded;
};

UniqueFd Epoll() { return UniqueFd(epoll_create1(EPOLL_CLOEXEC)); }

bool Enter(const UniqueFd& epoll, const UniqueFd& fd) {
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
  return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
}

int Events(const UniqueFd& epoll) {
  std::array<epoll_event, 4> events;
  return epoll_wait(epoll.get(), events.data(), events.size(), 0);
}

bool AllClosed() {
  return Soon([] { return DescriptorCloser::OfProcess().closing() == 0; });
}

}  // namespace

// Issue 26: gRPC's thread was the last holder, in epoll_wait(2), and waited for unread bytes.
TEST_CASE("a guarded socket has left its epoll when its close returns, whoever still holds it") {
  const UniqueFd epoll = Epoll();
  Pair pair(kOwner);
  REQUIRE(Enter(epoll, pair.guarded));
  const UniqueFd holder(dup(pair.guarded.get()));
  CHECK(write(pair.peer.get(), "a", 1) == 1);
  CHECK(Events(epoll) == 1);
  pair.guarded.Reset();
  CHECK(write(pair.peer.get(), "b", 1) == 1);  // it is open
  CHECK(Events(epoll) == 0);
  CHECK(AllClosed());
}

TEST_CASE("a guarded socket is in one epoll at a time") {
  const UniqueFd first = Epoll(), second = Epoll();
  const Pair pair(kOwner);
  REQUIRE(Enter(first, pair.guarded));
  CHECK_FALSE(Enter(second, pair.guarded));
  CHECK(errno == EEXIST);
  CHECK(epoll_ctl(first.get(), EPOLL_CTL_DEL, pair.guarded.get(), nullptr) == 0);
  CHECK(Enter(second, pair.guarded));
}

TEST_CASE("what comes by a guarded socket, or lies in its queue, is closed elsewhere") {
  LingeringSockets lingering;
  Pair pair(kOwner);
  pair.Pass(lingering.Make());
  std::array<char, 8> bytes;
  iovec room{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &room;
  message.msg_iovlen = 1;
  CHECK(recvmsg(pair.guarded.get(), &message, MSG_ERRQUEUE) == -1);
  CHECK(errno == EAGAIN);
  CHECK(recvmsg(pair.guarded.get(), &message, 0) == 1);
  CHECK(message.msg_controllen == 0);
  pair.Pass(lingering.Make());
  const auto began = std::chrono::steady_clock::now();
  pair.guarded.Reset();
  CHECK(AllClosed());
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(60));  // one lingers 100
}

TEST_CASE("a guard ends with its socket, and no two are the same") {
  for (const DescriptorCloser::Owner owner : {kOwner, kNothingPassed}) {
    Pair pair(owner);
    const int number = pair.guarded.get();
    const GuardId guard = GuardOf(number);
    CHECK(guard != GuardId::kNone);
    pair.guarded.Reset();
    CHECK(GuardOf(number) == GuardId::kNone);
    CHECK(AllClosed());
    GuardSocket(pair.peer.get(), owner);
    CHECK(GuardOf(pair.peer.get()) != guard);
  }
  CHECK(GuardOf(-1) == GuardId::kNone);
}

}  // namespace kvkeep
