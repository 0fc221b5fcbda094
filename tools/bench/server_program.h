// Programs that a measurement starts for itself: servers, and fio. Free functions; one thread.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace kvkeep::bench {

// Forks and runs `arguments`, the program first, found as a shell would. What it prints goes to
// `output`, a descriptor. It dies with this process, however that ends.
absl::StatusOr<pid_t> StartProgram(const std::vector<std::string>& arguments, int output);

struct ProgramOutput {
  int status = 0;  // as waitpid has it: 0 is well
  std::string text;
};
// The same, and waits for its end. What it printed, messages too.
absl::StatusOr<ProgramOutput> RunProgram(const std::vector<std::string>& arguments);

}  // namespace kvkeep::bench
