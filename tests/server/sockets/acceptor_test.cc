#include "server/sockets/acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/fakes/scratch_dir.h"
#include "tests/server/other_user.h"
#include "tiers/base/mutex.h"
#include "tiers/base/send_buffer.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// The connections that an acceptor handed on.
class Arrivals {
 public:
  Acceptor::Handlers handlers() {
    return {.connected = [this](Acceptor::Connection connection) { Add(std::move(connection)); },
            .failed =
                [this](const absl::Status& status) {
                  MutexLock lock(&mu_);
                  failure_ = status;
                  changed_.NotifyAll();
                }};
  }
  // Returns the next connection; fails the test after ten seconds.
  Acceptor::Connection Next() {
    const auto deadline = std::chrono::steady_clock::now() + seconds(10);
    MutexLock lock(&mu_);
    while (connections_.empty()) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      changed_.WaitFor(&mu_, std::chrono::milliseconds(100));
    }
    Acceptor::Connection next = std::move(connections_.front());
    connections_.erase(connections_.begin());
    return next;
  }
  absl::Status NextFailure() {
    const auto deadline = std::chrono::steady_clock::now() + seconds(10);
    MutexLock lock(&mu_);
    while (failure_.ok()) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      changed_.WaitFor(&mu_, std::chrono::milliseconds(100));
    }
    return failure_;
  }

 private:
  void Add(Acceptor::Connection connection) {
    MutexLock lock(&mu_);
    connections_.push_back(std::move(connection));
    changed_.NotifyAll();
  }

  Mutex mu_;
  CondVar changed_;
  std::vector<Acceptor::Connection> connections_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

std::unique_ptr<Acceptor> OpenAcceptor(std::vector<UnixSocketOptions> sockets, Arrivals* arrivals) {
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor =
      Acceptor::Open(std::move(sockets), arrivals->handlers());
  INFO(acceptor.status());
  REQUIRE(acceptor.ok());
  return *std::move(acceptor);
}

struct stat StatOf(const std::string& path) {
  struct stat info {};
  REQUIRE(lstat(path.c_str(), &info) == 0);
  return info;
}

// A folder where other users may look for sockets.
struct OpenDir : ScratchDir {
  OpenDir() { REQUIRE(chmod((*this / ".").c_str(), 0755) == 0); }
};

}  // namespace

TEST_CASE("a connection comes with its socket and its peer, non-blocking and close-on-exec") {
  const ScratchDir dir;
  Arrivals arrivals;
  const auto acceptor = OpenAcceptor({{.path = dir / "a"}, {.path = dir / "b"}}, &arrivals);
  for (const size_t socket : {1, 0, 1}) {
    const UniqueFd client = ConnectTo(dir / (socket == 0 ? "a" : "b"));
    REQUIRE(client.valid());
    const Acceptor::Connection connection = arrivals.Next();
    CHECK(connection.socket == socket);
    CHECK(connection.allowed.ok());
    CHECK(connection.peer.pid == getpid());
    CHECK(connection.peer.uid == geteuid());
    CHECK(connection.peer.gid == getegid());
    CHECK((fcntl(connection.fd.get(), F_GETFL) & O_NONBLOCK) != 0);
    CHECK((fcntl(connection.fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(write(client.get(), "x", 1) == 1);
    char byte = 0;
    pollfd readable{connection.fd.get(), POLLIN, 0};
    CHECK(poll(&readable, 1, 10'000) == 1);
    CHECK(read(connection.fd.get(), &byte, 1) == 1);
  }
}

TEST_CASE("a connection takes a mebibyte at once, as far as the kernel allows") {
  int allowed = 0;
  std::ifstream("/proc/sys/net/core/wmem_max") >> allowed;
  REQUIRE(allowed > 0);
  const ScratchDir dir;
  Arrivals arrivals;
  const auto acceptor = OpenAcceptor({{.path = dir / "a"}}, &arrivals);
  const UniqueFd client = ConnectTo(dir / "a");
  const Acceptor::Connection connection = arrivals.Next();
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  REQUIRE(getsockopt(connection.fd.get(), SOL_SOCKET, SO_SNDBUF, &bytes, &size) == 0);
  CHECK(bytes == 2 * std::min(allowed, kSendBufferBytes));  // the kernel doubles it: socket(7)
}

TEST_CASE("a socket's file has the mode and the group that were asked for, whatever the umask") {
  const ScratchDir dir;
  Arrivals arrivals;
  const mode_t before = umask(0077);
  const auto acceptor = OpenAcceptor(
      {{.path = dir / "a", .mode = 0666}, {.path = dir / "b", .mode = 0600}}, &arrivals);
  umask(before);
  CHECK((StatOf(dir / "a").st_mode & 07777) == 0666);
  CHECK((StatOf(dir / "b").st_mode & 07777) == 0600);
  CHECK(StatOf(dir / "a").st_gid == getegid());
  CHECK(Acceptor::Open({{.path = dir / "c", .group = "no-such-group"}}, arrivals.handlers())
            .status()
            .code() == absl::StatusCode::kInvalidArgument);
  if (!CanBeSomebodyElse()) return;
  const auto grouped = OpenAcceptor({{.path = dir / "d", .group = "64124"}}, &arrivals);
  CHECK(StatOf(dir / "d").st_gid == kSomeGroup);
  CHECK(StatOf(dir / "d").st_uid == 0);
}

TEST_CASE("mode and group of the file keep out whom they do not name") {
  if (!CanBeSomebodyElse()) return;
  const OpenDir dir;
  Arrivals arrivals;
  const auto acceptor = OpenAcceptor({{.path = dir / "a", .group = "64124"}}, &arrivals);
  CHECK(ConnectAs(kSomeUser, kSomeGroup, dir / "a").valid());
  CHECK(arrivals.Next().peer.uid == kSomeUser);
  const bool connected = ConnectAs(kSomeUser, kSomeGroup + 1, dir / "a").valid();
  const int error = errno;
  CHECK_FALSE(connected);
  CHECK(error == EACCES);
}

TEST_CASE("a peer passes by its user or its group; others are handed on as refused, by name") {
  if (!CanBeSomebodyElse()) return;
  const OpenDir dir;
  Arrivals arrivals;
  const auto acceptor = OpenAcceptor(
      {{.path = dir / "a", .mode = 0666, .policy = {.uids = {kSomeUser}, .gids = {kSomeGroup}}}},
      &arrivals);
  const struct {
    uid_t uid;
    gid_t gid;
    bool allowed;
  } cases[] = {{kSomeUser, 5, true},           {7, kSomeGroup, true},
               {kSomeUser, kSomeGroup, true},  {7, 5, false},
               {kSomeGroup, kSomeUser, false}, {0, 0, false}};  // root is no exception
  for (const auto& c : cases) {
    INFO(c.uid << " " << c.gid);
    const UniqueFd client = ConnectAs(c.uid, c.gid, dir / "a");
    REQUIRE(client.valid());
    const Acceptor::Connection connection = arrivals.Next();
    CHECK(connection.peer.uid == c.uid);
    CHECK(connection.peer.gid == c.gid);
    CHECK(connection.allowed.ok() == c.allowed);
    if (c.allowed) continue;
    CHECK(connection.allowed.code() == absl::StatusCode::kPermissionDenied);
    const std::string message(connection.allowed.message());
    CHECK(message.find(connection.peer.ToString()) == 0);
    CHECK(message.find("allowed_uids is [64123], allowed_gids is [64124]") != std::string::npos);
  }
}

TEST_CASE("two thousand connects leave no descriptor behind") {
  // Another thread closes them, and those of the earlier cases.
  const auto await_closed = [] {
    while (DescriptorCloser::OfProcess().closing() > 0) std::this_thread::yield();
  };
  await_closed();
  const ScratchDir dir;
  Arrivals arrivals;
  const auto acceptor = OpenAcceptor({{.path = dir / "a"}}, &arrivals);
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 2000; ++i) {
    REQUIRE(ConnectTo(dir / "a").valid());
    arrivals.Next();
  }
  await_closed();
  CHECK(OpenDescriptors() == before);
}

TEST_CASE("without descriptors clients wait, and come in when there are some again") {
  const ScratchDir dir;
  Arrivals arrivals;
  const auto acceptor = OpenAcceptor({{.path = dir / "a"}}, &arrivals);
  const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none{3, limit.rlim_max};  // all numbers below are taken
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (dir / "a").c_str(), sizeof(address.sun_path) - 1);
  const int connected =
      connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const absl::Status failure = arrivals.NextFailure();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(connected == 0);
  CHECK(failure.code() == absl::StatusCode::kUnavailable);
  CHECK(arrivals.Next().peer.pid == getpid());
}

TEST_CASE("the socket's file goes with the acceptor, unless it is another one's by now") {
  const ScratchDir dir;
  Arrivals arrivals;
  OpenAcceptor({{.path = dir / "a"}}, &arrivals).reset();
  CHECK_FALSE(std::filesystem::exists(dir / "a"));

  auto first = OpenAcceptor({{.path = dir / "a"}}, &arrivals);
  CHECK(Acceptor::Open({{.path = dir / "a"}}, arrivals.handlers()).status().code() ==
        absl::StatusCode::kUnavailable);
  std::filesystem::rename(dir / "a", dir / "moved");
  const auto second = OpenAcceptor({{.path = dir / "a"}}, &arrivals);
  first.reset();
  CHECK(ConnectTo(dir / "a").valid());
}

}  // namespace kvkeep
