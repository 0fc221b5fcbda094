// kvkeep, the command line tool. Everything is in cli.h.
#include <unistd.h>

#include <iostream>

#include "client/payload_malloc.h"
#include "tools/kvkeep/cli.h"

int main(int argc, char** argv) {
  kvkeep::client::TuneMallocForPayloads();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return kvkeep::tools::RunCli(arguments, {.out = std::cout,
                                           .err = std::cerr,
                                           .progress = isatty(STDERR_FILENO) == 1,
                                           .can_ask = isatty(STDIN_FILENO) == 1});
}
