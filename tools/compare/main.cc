// kvkeep-compare. Everything is in compare_cli.h.
#include <iostream>

#include "tools/compare/compare_cli.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return kvkeep::compare::RunCompare(arguments, std::cout, std::cerr);
}
