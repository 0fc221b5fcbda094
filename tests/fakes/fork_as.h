// ForkAs: fork() with a chosen process number, for a process that takes over an ended one's number.
//
// Before exec or _exit the child may only make system calls: unlike fork(), the C library does not
// know of it.
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

// As fork(). Returns -1 and errno EEXIST if an unreaped process or thread has the number, EPERM or
// ENOSYS if the number cannot be chosen.
inline pid_t ForkAs(pid_t number) {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  arguments.set_tid = reinterpret_cast<uint64_t>(&number);
  arguments.set_tid_size = 1;
  return static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof(arguments)));
}

// Returns why it cannot be done here; empty if it can.
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
