// kvkeep-bench. Everything is in bench_cli.h.
#include <unistd.h>

#include <iostream>

#include "tools/bench/bench_cli.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return kvkeep::bench::RunBench(arguments, std::cout, std::cerr, isatty(STDERR_FILENO) == 1);
}
