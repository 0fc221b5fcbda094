#include "server/observe/stderr_sink.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <signal.h>
#include <spdlog/details/log_msg.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "tests/fakes/scratch_dir.h"

namespace kvkeep {
namespace {

void Say(StderrSink& sink, const std::string& line) {
  sink.log(spdlog::details::log_msg("kvkeepd", spdlog::level::info, line));
}

// Returns everything that can be read now.
std::string Drain(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string all;
  std::array<char, 65536> buffer;
  for (ssize_t n; (n = read(fd, buffer.data(), buffer.size())) > 0;) {
    all.append(buffer.data(), static_cast<size_t>(n));
  }
  return all;
}

std::string Line(int number) { return absl::StrCat("line ", number, " ", std::string(700, 'x')); }

// Checks that earlier lines arrive whole and in order; then the new line, once there is room.
void CheckFillsAndGoesOn(int to, int from) {
  StderrSink sink(to);
  int said = 0;
  while (sink.dropped() < 10) Say(sink, Line(said++));  // otherwise it waits for ever
  std::string expected;
  for (int i = 0; i < said - 10; ++i) absl::StrAppend(&expected, Line(i), "\n");
  std::string got = Drain(from);
  Say(sink, "the reader is back");
  got += Drain(from);
  CHECK(got == expected + "the reader is back\n");
  CHECK(sink.dropped() == 10);
}

}  // namespace

TEST_CASE("a reader that does not read costs lines and keeps nobody waiting") {
  std::array<int, 2> ends{-1, -1};
  SECTION("a pipe") {
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
  }
  SECTION("a socket, as systemd gives") {
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  }
  CheckFillsAndGoesOn(ends[1], ends[0]);
  CHECK((fcntl(ends[1], F_GETFL) & O_NONBLOCK) == 0);  // other processes may have it
  close(ends[0]);
  StderrSink sink(ends[1]);
  const sighandler_t before = signal(SIGPIPE, SIG_IGN);  // as in the daemon
  Say(sink, "nobody is there");
  signal(SIGPIPE, before);
  CHECK(sink.dropped() == 1);
  close(ends[1]);
}

TEST_CASE("a file gets each line, whoever else appends to it") {
  const ScratchDir dir;
  const int fd = open((dir / "log").c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  REQUIRE(fd >= 0);
  StderrSink sink(fd);
  Say(sink, "one");
  REQUIRE(write(fd, "two\n", 4) == 4);
  Say(sink, "three");
  REQUIRE(lseek(fd, 0, SEEK_SET) == 0);
  CHECK(Drain(fd) == "one\ntwo\nthree\n");
  CHECK(sink.dropped() == 0);
  close(fd);
}

}  // namespace kvkeep
