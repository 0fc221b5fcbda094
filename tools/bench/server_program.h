// Programs that a measurement starts for itself: servers, and fio. Free functions; one thread.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace kvkeep::bench {

// A descriptor that a program is given is its descriptor of this number.
constexpr int kGivenDescriptor = 3;

// Forks and runs `arguments`, the program first, found as a shell would. What it prints goes to
// `output`, a descriptor. It dies with this process, however that ends. `given`: a descriptor that
// it gets as kGivenDescriptor; -1: none.
absl::StatusOr<pid_t> StartProgram(const std::vector<std::string>& arguments, int output,
                                   int given = -1);

struct ProgramOutput {
  int status = 0;  // as waitpid has it: 0 is well
  std::string text;
};
// The same, and waits for its end. What it printed, messages too.
absl::StatusOr<ProgramOutput> RunProgram(const std::vector<std::string>& arguments);

}  // namespace kvkeep::bench
