#include "tools/bench/server_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

namespace kvkeep::bench {

absl::StatusOr<pid_t> StartProgram(const std::vector<std::string>& arguments, int output,
                                   int given) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t starter = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != starter) _exit(99);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    if (given == kGivenDescriptor) fcntl(given, F_SETFD, 0);  // dup2 to itself would leave the flag
    if (given >= 0) dup2(given, kGivenDescriptor);
    execvp(argv[0], argv.data());
    _exit(98);
  }
  return pid;
}

}  // namespace kvkeep::bench
