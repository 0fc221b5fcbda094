// Writes a target's seeds to files: NAME_seeds DIR
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/fuzz/target.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIR\n", argv[0]);
    return 2;
  }
  int number = 0;
  for (const kvkeep::FuzzInput& seed : kvkeep::KVKEEP_FUZZ_TARGET.seeds()) {
    std::ofstream file(argv[1] + ("/seed-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()),
               static_cast<std::streamsize>(seed.size()));
    if (!file.flush()) return 1;
  }
  return 0;
}
