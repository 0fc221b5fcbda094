// kvkeep-bench-client: the processes with which tools/bench/kvkeep-bench measures: one for each
// client of a daemon, one for baselines, one for the daemon's status. It answers commands
// (commands.h).
#include <ext/stdio_filebuf.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "tools/bench/client/baselines.h"
#include "tools/bench/client/daemon_commands.h"
#include "tools/bench/client/load_client.h"
#include "tools/bench/client/pattern_request.h"

int main() {
  kvkeep::bench::Commands commands;
  kvkeep::bench::AddBaselineCommands(&commands);
  kvkeep::bench::AddDaemonCommands(&commands);
  kvkeep::bench::AddLoadCommands(&commands);
  kvkeep::bench::AddPatternRequestCommands(&commands);
  // Output of libraries goes to stderr, as it is no answer.
  __gnu_cxx::stdio_filebuf<char> to_answers(dup(STDOUT_FILENO), std::ios::out);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  std::ostream answers(&to_answers);
  commands.Serve(std::cin, answers);
  _exit(0);  // no destructors: nothing here may hold up the end
}
