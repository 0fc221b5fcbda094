// A process is killed while the disk holds its writes: the lock on the file stays until the last of
// them has ended. So a process that takes the lock first, as a daemon does, never sees one land.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/e2e/daemon.h"
#include "tests/fakes/aligned_bytes.h"
#include "tests/sick/sick_site.h"
#include "tiers/io/io_engine.h"

namespace kvkeep::sick {
namespace {

constexpr size_t kFileBytes = 1 << 20;

DeviceOptions Locked(const std::string& path) { return {.path = path, .lock = true}; }

// Writes the whole file, and never ends by itself.
[[noreturn]] void Write(const std::string& path, IoMode mode) {
  const auto engine = CreateIoEngine({.mode = mode});
  if (!engine.ok()) _exit(1);
  const auto device = (*engine)->Open(Locked(path));
  if (!device.ok()) _exit(2);
  AlignedBytes bytes(kFileBytes);
  std::memset(bytes.data(), 'n', bytes.size());
  (*device)->Submit({.kind = IoOperation::Kind::kWrite,
                     .offset = DeviceOffset(0),
                     .data = bytes.data(),
                     .bytes = bytes.size(),
                     .done = [](absl::Status) {}});
  while (true) pause();
}

void WriteOld(const std::string& path) {
  const std::string old(kFileBytes, 'o');
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(fd >= 0);
  REQUIRE(pwrite(fd, old.data(), old.size(), 0) == static_cast<ssize_t>(old.size()));
  REQUIRE(fsync(fd) == 0);
  close(fd);
}

}  // namespace

TEST_CASE("a dead process's writes hold the lock of their file until they have landed") {
  if (!CanBeSick()) return;
  const auto mode = GENERATE(IoMode::kUring, IoMode::kThreads);
  if (mode == IoMode::kUring && !CreateIoEngine({.mode = mode}).ok()) {
    WARN("skipped: no io_uring here");
    return;
  }
  SickDisk disk("64M");
  const std::string path = disk.dir() + "/data";
  WriteOld(path);
  disk.Hang(SICK_WRITES);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) Write(path, mode);
  const bool hangs = e2e::Eventually([&] { return disk.hanging() > 0; });
  kill(child, SIGKILL);
  const auto engine = CreateIoEngine({});
  REQUIRE(engine.ok());
  // It is over when the kernel releases it; the lock has to stay until then.
  int refused = 0, opened = 0;
  for (int i = 0; i < 100; ++i) {
    ++((*engine)->Open(Locked(path)).ok() ? opened : refused);
    usleep(10'000);  // for the kernel to release the lock, which it must not
  }
  const uint32_t still = disk.hanging();
  disk.Heal();
  int status = 0;
  const bool reaped = waitpid(child, &status, 0) == child;
  CHECK(hangs);
  CHECK(still > 0);
  CHECK(opened == 0);
  CHECK(refused == 100);
  CHECK((reaped && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  absl::StatusOr<std::unique_ptr<Device>> next;
  CHECK(e2e::Eventually([&] {
    next = (*engine)->Open(Locked(path));
    return next.ok();
  }));
  // The writes under way have landed, and none comes any more.
  const std::string landed = e2e::ReadFile(path);
  WARN("landed after the kill: " << std::count(landed.begin(), landed.end(), 'n') << " bytes");
  CHECK(std::count(landed.begin(), landed.end(), 'n') > 0);
  usleep(200'000);                                  // for a write that must not come any more
  const bool same = e2e::ReadFile(path) == landed;  // too long to be printed
  CHECK(same);
}

}  // namespace kvkeep::sick
