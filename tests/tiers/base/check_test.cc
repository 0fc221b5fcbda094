#include "tiers/base/check.h"

#include <absl/strings/match.h>
#include <fcntl.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <string>

namespace kvkeep {
namespace {

// Returns the signal by which a process died whose check failed, and its standard error in `err`.
int DiesOf(int err) {
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGABRT, SIG_DFL);  // Catch's reports it
    dup2(err, STDERR_FILENO);
    alarm(60);  // otherwise one that hangs stays for ever
    const int two = 2;
    KVKEEP_CHECK(two == 3);
  }
  int how = 0;
  REQUIRE(waitpid(pid, &how, 0) == pid);
  return WIFSIGNALED(how) ? WTERMSIG(how) : 0;
}

}  // namespace

TEST_CASE("a check that fails says which one, and ends the process") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(DiesOf(ends[1]) == SIGABRT);
  std::string said(1000, '\0');
  said.resize(static_cast<size_t>(read(ends[0], said.data(), said.size())));
  CHECK(absl::StrContains(said, "check_test.cc:"));
  CHECK(absl::EndsWith(said, ": check failed: two == 3\n"));
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a check that fails ends the process where nobody reads what it says") {
  int ends[2];
  REQUIRE(pipe2(ends, O_NONBLOCK) == 0);
  const std::string page(4096, 'x');
  while (write(ends[1], page.data(), page.size()) > 0) {
  }
  REQUIRE(fcntl(ends[1], F_SETFL, 0) == 0);  // a write waits now
  CHECK(DiesOf(ends[1]) == SIGABRT);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace kvkeep
