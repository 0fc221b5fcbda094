#include "server/sockets/descriptor_closer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "proto/local/message.h"
#include "server/sockets/unix_socket.h"
#include "tests/fakes/lingering_sockets.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/server/other_user.h"
#include "tests/server/soon.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A wait that no signal ends, as far as a test is concerned.
constexpr milliseconds kForEver{3'600'000};

struct Pipe {
  Pipe() {
    std::array<int, 2> ends;
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    read = UniqueFd(ends[0]);
    write = UniqueFd(ends[1]);
  }
  // The write end is closed.
  bool Ended(int timeout_ms) const {
    pollfd end{.fd = read.get(), .events = POLLIN, .revents = 0};
    return poll(&end, 1, timeout_ms) == 1 && (end.revents & POLLHUP) != 0;
  }
  UniqueFd read, write;
};

}  // namespace

TEST_CASE("a socket that lingers is closed in a moment, and Close does not wait for it") {
  LingeringSockets lingering;
  DescriptorCloser closer({.rest = milliseconds(10)});
  const auto begin = steady_clock::now();
  for (int i = 0; i < 100; ++i) closer.Close(lingering.Make(), 1);
  CHECK(Soon([&] { return closer.closing() == 0; }));
  CHECK(steady_clock::now() - begin < std::chrono::seconds(60));  // one lingers 100
  CHECK(Soon([&] { return closer.threads() == 0; }));             // nothing is left of it
}

TEST_CASE("a Unix socket is closed in a moment, whatever lies unread in its queue") {
  LingeringSockets lingering;
  DescriptorCloser closer({.rest = milliseconds(10)});
  const auto begin = steady_clock::now();
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    std::array<int, 2> pair;
    REQUIRE(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair.data()) == 0);
    const UniqueFd sender(pair[0]);
    UniqueFd ours(pair[1]);
    UniqueFd passed = lingering.Make();
    const std::array<std::byte, 1> byte{};
    const std::array<int, 1> fds{passed.get()};
    REQUIRE(local::SendPacket(sender.get(), byte, fds, 0).ok());
    closer.Close(std::move(passed), 1);  // ours would wait as well, if it were the last
    closer.Close(std::move(ours), 1);
  }
  CHECK(Soon([&] { return closer.closing() == 0; }));
  CHECK(steady_clock::now() - begin < std::chrono::seconds(60));
}

TEST_CASE("an owner whose descriptors are not closed keeps its own threads only") {
  LingeringSockets lingering;
  DescriptorCloser closer({.owner_waiting = 4, .patience = kForEver, .rest = milliseconds(10)});
  for (int i = 0; i < 10; ++i) closer.Close(lingering.Make(), 1);
  CHECK(closer.Full(1));
  CHECK_FALSE(closer.Full(2));
  for (int i = 0; i < 20; ++i) {
    Pipe other;
    closer.Close(std::move(other.write), 2);
    CHECK(other.Ended(10'000));
  }
  CHECK(Soon([&] { return closer.closing() == 10; }));
  lingering.End();
  CHECK(Soon([&] { return closer.closing() == 0; }));
  CHECK_FALSE(closer.Full(1));
}

TEST_CASE("of all owners together so many wait, and there are so many threads") {
  LingeringSockets lingering;
  DescriptorCloser closer(
      {.max_threads = 2, .max_waiting = 3, .patience = kForEver, .rest = milliseconds(10)});
  for (DescriptorCloser::Owner owner = 1; owner <= 5; ++owner) {
    closer.Close(lingering.Make(), owner);
  }
  REQUIRE(Soon([&] { return closer.threads() == 2; }));
  CHECK(Soon([&] { return closer.Full(5); }));
  lingering.End();
  CHECK(Soon([&] { return closer.closing() == 0 && closer.threads() == 0; }));
}

TEST_CASE("who connects to our sockets passes no descriptor until it is let in") {
  const ScratchDir dir;
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const std::string path = dir / (type == SOCK_STREAM ? "stream" : "packets");
    const auto listening = ListenOnUnixSocket({.path = path, .mode = 0600}, type);
    REQUIRE(listening.ok());
    const UniqueFd peer = ConnectTo(path, type);
    REQUIRE(peer.valid());
    const UniqueFd ours(accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!TakeDescriptors(ours.get(), false)) {
      WARN("skipped: this kernel has no SO_PASSRIGHTS (Linux 6.16)");
      return;
    }
    const UniqueFd before = ConnectTo(path, type);  // not accepted yet
    const std::array<std::byte, 1> byte{};
    const std::array<int, 1> fds{0};
    CHECK_FALSE(local::SendPacket(peer.get(), byte, fds, 0).ok());
    CHECK_FALSE(local::SendPacket(before.get(), byte, fds, 0).ok());
    CHECK(local::SendPacket(peer.get(), byte, {}, 0).ok());
    REQUIRE(TakeDescriptors(ours.get(), true));
    CHECK(local::SendPacket(peer.get(), byte, fds, 0).ok());
  }
}

}  // namespace kvkeep
