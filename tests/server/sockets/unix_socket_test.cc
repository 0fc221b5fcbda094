#include "server/sockets/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>

#include "tests/fakes/fork_as.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/server/other_user.h"

namespace kvkeep {
namespace {

// Linux before 6.5.
bool OnlyTheNumberIsKnown(int socket) {
  int pidfd = -1;
  socklen_t length = sizeof(pidfd);
  constexpr int kSoPeerPidfd = 77;
  const bool known = getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &pidfd, &length) == 0;
  const int error = errno;
  const UniqueFd closed(pidfd);
  return !known && error == ENOPROTOOPT;
}

bool HasEnded(const absl::StatusOr<UniqueFd>& watched, int timeout_ms) {
  if (!watched.ok()) return true;
  pollfd ended{.fd = watched->get(), .events = POLLIN, .revents = 0};
  return poll(&ended, 1, timeout_ms) == 1;
}

// Connects to `path`, leaves its end of it to a child that lives until `gate` is closed, and ends.
[[noreturn]] void ConnectAndLeave(const std::string& path, const std::array<int, 2>& gate) {
  const UniqueFd socket = ConnectTo(path);
  if (!socket.valid()) _exit(1);
  const pid_t heir = fork();
  if (heir == 0) {
    close(gate[1]);
    char byte;
    _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
  }
  _exit(heir > 0 ? 0 : 1);
}

}  // namespace

TEST_CASE("a peer is seen to end, though another process has its socket, or its number by now") {
  const ScratchDir dir;
  const auto listening = ListenOnUnixSocket({.path = dir / "a", .mode = 0600}, SOCK_STREAM);
  REQUIRE(listening.ok());
  std::array<int, 2> gate;
  REQUIRE(pipe2(gate.data(), O_CLOEXEC) == 0);
  const UniqueFd shut(gate[0]);
  const UniqueFd open_while_tested(gate[1]);
  const pid_t peer = fork();
  if (peer == 0) ConnectAndLeave(dir / "a", gate);
  int status = -1;
  REQUIRE(waitpid(peer, &status, 0) == peer);
  REQUIRE(status == 0);

  pid_t other = 0;
  SECTION("nobody has its number") {}
  SECTION("another process has its number") {
    const std::string forbidden = WhyNoForkAs();
    other = forbidden.empty() ? ForkAs(peer) : 0;
    if (forbidden.empty() && other == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      pause();
      _exit(0);
    }
    if (!forbidden.empty()) WARN("skipped: " << forbidden);
    REQUIRE(other >= 0);
  }
  const UniqueFd connection(accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(connection.valid());
  CHECK(PeerOf(connection.get())->pid == peer);
  if (other > 0 && OnlyTheNumberIsKnown(connection.get())) {
    WARN("skipped: Linux before 6.5 finds a peer by its number");
  } else {
    CHECK(HasEnded(WatchPeer(connection.get()), 0));
  }
  if (other > 0) {
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
  }
}

}  // namespace kvkeep
