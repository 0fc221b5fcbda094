// Runs a hidden test case ("[.child]") of this binary in a process of its own, to leave an index as
// kill -9 leaves it. The process is fresh, as RocksDB's threads do not survive a fork.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <string>

namespace kvkeep {

// Returns, in the hidden test case, the directory that its runner gave.
inline std::string IndexDirOfChild() {
  const char* const dir = std::getenv("KVKEEP_TEST_DIR");
  REQUIRE(dir != nullptr);
  return dir;
}

// Returns the wait status of a process that runs `test_case` on `index_dir`.
inline int RunChild(const char* test_case, const std::string& index_dir) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("KVKEEP_TEST_DIR", index_dir.c_str(), 1);
    execl("/proc/self/exe", "index_test", test_case, nullptr);
    _exit(1);
  }
  int how = 0;
  REQUIRE(waitpid(child, &how, 0) == child);
  return how;
}

// Runs a test case that kills itself, if all its earlier requirements hold.
inline void RunUntilKilled(const char* test_case, const std::string& index_dir) {
  const int how = RunChild(test_case, index_dir);
  REQUIRE(WIFSIGNALED(how));
  REQUIRE(WTERMSIG(how) == SIGKILL);
}

}  // namespace kvkeep
