// The contents of a device's data file, for tests that damage it. For the test's main thread.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {

inline constexpr size_t kBlock = 4096;

// Returns the offset of the chunk's payload in the file.
inline off_t FindPayload(int fd, const TestChunk& chunk) {
  const std::vector<std::byte> payload = Payload(chunk);
  std::array<std::byte, kBlock> block;
  for (off_t at = 0; pread(fd, block.data(), kBlock, at) == kBlock; at += kBlock) {
    if (std::memcmp(block.data(), payload.data(), kBlock) == 0) return at;
  }
  FAIL("the payload of chunk " << chunk.number << " is not on the device");
  return 0;
}

inline void Overwrite(int fd, off_t at, size_t bytes) {
  const std::string garbage(bytes, 'x');
  REQUIRE(pwrite(fd, garbage.data(), bytes, at) == static_cast<ssize_t>(bytes));
  REQUIRE(fsync(fd) == 0);
}

}  // namespace kvkeep::e2e
