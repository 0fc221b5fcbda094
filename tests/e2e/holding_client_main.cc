// A client that holds everything that a client can hold, reports that, and waits to be killed:
//   e2e_holding_client ENDPOINT LEASED_CHUNK_NUMBER LEASED_CHUNK_BYTES UNFINISHED_PUT_BYTES
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/e2e/raw_session.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
  kvkeep::e2e::RawSession session(argv[1], "victim");
  session.Lease({.number = number(2), .bytes = number(3)});
  session.PutHalf(
      {.number = 1'000'000'000ull + static_cast<uint64_t>(getpid()), .bytes = number(4)});
  std::printf("holding\n");
  std::fflush(stdout);
  pause();
  return 0;
}
