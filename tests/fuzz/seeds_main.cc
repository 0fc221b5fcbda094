// Writes the seed corpus: local_protocol_seeds DIR
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/fuzz/script.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: local_protocol_seeds DIR\n");
    return 2;
  }
  int number = 0;
  for (const std::vector<uint8_t>& seed : kvkeep::SeedScripts()) {
    std::ofstream file(argv[1] + ("/seed-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()),
               static_cast<std::streamsize>(seed.size()));
    if (!file.flush()) return 1;
  }
  return 0;
}
