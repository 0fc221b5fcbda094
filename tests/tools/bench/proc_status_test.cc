#include "tools/bench/proc_status.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace kvkeep::bench {
namespace {

// A process that has ended, and whose end nobody has taken note of yet: /proc still has it.
class Ended {
 public:
  Ended() : pid_(fork()) {
    if (pid_ == 0) _exit(0);
    siginfo_t info{};
    REQUIRE(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) == 0);
  }
  ~Ended() { waitpid(pid_, nullptr, 0); }
  Ended(const Ended&) = delete;
  int pid() const { return pid_; }

 private:
  const pid_t pid_;
};

}  // namespace

TEST_CASE("what a process holds and how often it was woken is told") {
  CHECK(ResidentBesideSharedBytes(getpid()).value() > 0);
  CHECK(ResidentSharedBytes(getpid()).ok());
  const auto wake_ups = WakeUpsOf(getpid());
  REQUIRE(wake_ups.ok());
  CHECK(!wake_ups->empty());
}

TEST_CASE("of a process that is not there, or has ended, nothing is taken for 0") {
  const Ended ended;
  for (const int pid : {ended.pid(), 0}) {
    INFO(pid);
    CHECK(absl::IsNotFound(ResidentBesideSharedBytes(pid).status()));
    CHECK(absl::IsNotFound(ResidentSharedBytes(pid).status()));
  }
  CHECK(absl::IsNotFound(WakeUpsOf(0).status()));
}

}  // namespace kvkeep::bench
