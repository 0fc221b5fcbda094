// Whether the process at the other end of a connection has ended, and which process that is.
#include "client/local/daemon_process.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/client/local/gpu_rig.h"
#include "tests/fakes/scratch_dir.h"

namespace kvkeep::client {
namespace {

TEST_CASE("of daemons that have not ended each is kept once") {
  const auto watch = [](int pid) {
    return std::make_shared<const DaemonProcess>(
        UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))));
  };
  DaemonProcesses daemons;
  for (int i = 0; i < 3; ++i) daemons.Add(watch(getpid()));
  CHECK(daemons.size() == 1);
  CHECK_FALSE(watch(getpid())->IsAlso(*watch(getppid())));
  daemons.Add(watch(getppid()));
  CHECK(daemons.size() == 2);
  WatchedProcess ends;
  const auto ending = std::make_shared<const DaemonProcess>(*ends.Watch()(0));
  daemons.Add(ending);
  daemons.Add(ending);
  CHECK(daemons.size() == 3);
  ends.End();
  daemons.Add(watch(getpid()));
  CHECK(daemons.size() == 2);
}

TEST_CASE("the kernel tells when the process at a socket's other end has ended") {
  const ScratchDir dir;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = dir / "s";
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  const int child = fork();
  if (child == 0) {  // the listening process is the peer
    listen(listener.get(), 1);
    while (true) pause();
  }
  REQUIRE(child > 0);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  REQUIRE(Eventually([&] {
    return connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }));
  absl::StatusOr<UniqueFd> pidfd = DaemonProcess::OpenPidfd(socket.get());
  REQUIRE(pidfd.status() == absl::OkStatus());
  const DaemonProcess process(*std::move(pidfd));
  CHECK_FALSE(process.Ended());
  REQUIRE(kill(child, SIGKILL) == 0);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(process.Ended());
}

}  // namespace
}  // namespace kvkeep::client
