// ForkAs: fork() with a chosen process number, to be what took the number of another that ended.
//
// Between it and exec or _exit the child makes system calls only: unlike fork() the C library does
// not know of it.
#pragma once

#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace kvkeep {

// As fork(); -1 and errno: EEXIST when there is such a process or thread, not reaped, EPERM or
// ENOSYS where nobody may choose.
inline pid_t ForkAs(pid_t number) {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  arguments.set_tid = reinterpret_cast<uint64_t>(&number);
  arguments.set_tid_size = 1;
  return static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof(arguments)));
}

// Why it cannot be done here; empty when it can.
inline std::string WhyNoForkAs() {
  pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  child = ForkAs(child);
  if (child == 0) _exit(0);
  if (child > 0) waitpid(child, nullptr, 0);
  const bool forbidden = child < 0 && errno != EEXIST;
  return forbidden ? "no process may choose its number here (clone3, set_tid)" : "";
}

}  // namespace kvkeep
