// kvkeep-sim: runs seeds of the simulation. Prints the seed before it can fail, so that
// `kvkeep-sim --seed N --verbose` replays it.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/sim/simulation.h"

namespace {

struct Arguments {
  uint64_t first_seed = 1;
  uint64_t seeds = 1;
  uint64_t steps = 2000;
  bool verbose = false;
};

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const auto number = [&] {
      return std::strtoull(i + 1 < argc ? argv[i + 1] : "0", nullptr, 10);
    };
    if (std::strcmp(argv[i], "--seed") == 0) arguments.first_seed = number();
    if (std::strcmp(argv[i], "--seeds") == 0) arguments.seeds = number();
    if (std::strcmp(argv[i], "--steps") == 0) arguments.steps = number();
    if (std::strcmp(argv[i], "--verbose") == 0) arguments.verbose = true;
  }
  return arguments;
}

// A process of its own, so that a failed check of one seed is reported with its number.
bool RunSeed(uint64_t seed, const Arguments& arguments) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const kvkeep::SimulationReport report = kvkeep::RunSimulation(
        {.seed = seed, .steps = arguments.steps, .verbose = arguments.verbose});
    std::printf("seed %lu: %s\n", seed, report.Describe().c_str());
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  std::printf("seed %lu FAILED: replay with --seed %lu --steps %lu --verbose\n", seed, seed,
              arguments.steps);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  if (arguments.verbose) setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost by an abort
  uint64_t failed = 0;
  for (uint64_t i = 0; i < arguments.seeds; ++i) {
    failed += RunSeed(arguments.first_seed + i, arguments) ? 0 : 1;
  }
  std::printf("%lu seeds of %lu steps: %lu failed\n", arguments.seeds, arguments.steps, failed);
  return failed == 0 ? 0 : 1;
}
