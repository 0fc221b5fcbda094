#include "tools/bench/server_program.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::bench {

absl::StatusOr<pid_t> StartProgram(const std::vector<std::string>& arguments, int output) {
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
    execvp(argv[0], argv.data());
    _exit(98);
  }
  return pid;
}

absl::StatusOr<ProgramOutput> RunProgram(const std::vector<std::string>& arguments) {
  const UniqueFd printed(memfd_create("output", MFD_CLOEXEC));
  if (!printed.valid()) return absl::ErrnoToStatus(errno, "memfd_create");
  KVKEEP_ASSIGN_OR_RETURN(const pid_t pid, StartProgram(arguments, printed.get()));
  ProgramOutput ran;
  waitpid(pid, &ran.status, 0);
  std::array<char, 4096> some;
  ssize_t got = 0;
  while ((got = pread(printed.get(), some.data(), some.size(),
                      static_cast<off_t>(ran.text.size()))) > 0) {
    ran.text.append(some.data(), static_cast<size_t>(got));
  }
  return ran;
}

}  // namespace kvkeep::bench
