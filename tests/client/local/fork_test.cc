// fork() and descriptors.
#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "tests/client/local/fixture.h"

namespace kvkeep::client {
namespace {

size_t OpenDescriptors(size_t* inheritable = nullptr) {
  DIR* const dir = opendir("/proc/self/fd");
  size_t count = 0;
  while (const dirent* entry = readdir(dir)) {
    const int fd = atoi(entry->d_name);
    if (entry->d_name[0] == '.' || fd == dirfd(dir)) continue;
    ++count;
    if (inheritable != nullptr && (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) ++*inheritable;
  }
  closedir(dir);
  return count;
}

}  // namespace

TEST_CASE("a child of fork has no part in the connection, and the parent goes on") {
  LocalFixture f;
  f.daemon.AddChunk("m", Key("a"), 0, Bytes(10, 1));
  auto got = f.Acquire({Key("a")});
  REQUIRE(got.ok());
  const size_t descriptors = OpenDescriptors();
  const pid_t child = fork();
  if (child == 0) {
    int failed = 0;
    failed |= absl::IsFailedPrecondition(f.Lookup({Key("a")}).status()) ? 0 : 1;
    failed |= absl::IsFailedPrecondition(f.transport->AllocateStaging(1).status()) ? 0 : 2;
    failed |= got->valid() ? 4 : 0;
    failed |= got->lease.alive() ? 8 : 0;
    failed |= OpenDescriptors() == descriptors - 3 ? 0 : 16;  // socket, events, wake-up
    {
      const Acquired dropped = std::move(*got);  // gives nothing back
    }
    _exit(failed);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(got->valid());
  CHECK(f.Lookup({Key("a")}).ok());
  CHECK(f.daemon.released().empty());
  CHECK(f.transport->stats().sessions_opened == 1);
}

TEST_CASE("two thousand connections leave no descriptor behind, and none is inherited") {
  fakes::FakeLocalDaemon daemon;
  size_t inheritable_before = 0, inheritable = 0;
  (void)OpenDescriptors(&inheritable_before);
  {
    LocalTransport transport({.socket = daemon.socket()});
    REQUIRE(transport.WaitFirstAttempt(Deadline(10'000)).ok());
    REQUIRE(transport.AllocateStaging(4096).ok());
    (void)OpenDescriptors(&inheritable);
  }
  CHECK(inheritable == inheritable_before);
  REQUIRE(Eventually([&] {
    const size_t before = OpenDescriptors();
    // Two looks that agree show that the fake has closed its ends.
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return OpenDescriptors() == before;
  }));
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 2'000; ++i) {
    LocalTransport transport({.socket = daemon.socket()});
    REQUIRE(transport.WaitFirstAttempt(Deadline(10'000)).ok());
    if (i % 100 == 0) REQUIRE(transport.AllocateStaging(4096).ok());
  }
  CHECK(Eventually([&] { return OpenDescriptors() <= before; }));
}

}  // namespace kvkeep::client
