// A policy's memory for each chunk of a full tier, as the kernel counts it.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/tiers/policy/policy_load.h"
#include "tests/tiers/policy/resident_bytes.h"

namespace kvkeep {
namespace {

constexpr uint32_t kChunks = 200'000;

// Runs in a process of its own, as memory that others left to malloc would not count. The answer is
// whole bytes, at most 1,000.
double BytesAChunk(const std::string& name) {
  int pipe_ends[2] = {};
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    PolicyLoad load(kChunks);
    const uint64_t before = ResidentBytes();
    load.Use(name);
    load.Fill();
    const uint64_t bytes = ResidentBytes() - before;
    std::_Exit(write(pipe_ends[1], &bytes, sizeof(bytes)) == sizeof(bytes) ? 0 : 1);
  }
  uint64_t bytes = 0;
  close(pipe_ends[1]);
  const bool told = read(pipe_ends[0], &bytes, sizeof(bytes)) == sizeof(bytes);
  close(pipe_ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE((told && status == 0));
  return static_cast<double>(bytes) / kChunks;
}

}  // namespace

TEST_CASE("a policy takes the memory that it promises for a chunk, ghosts and shadows included") {
  struct Promise {
    const char* policy;
    double bytes;
  };
  // Huge pages make it somewhat more than is used.
  for (const Promise& promise :
       {Promise{"lru", 30}, {"arc", 75}, {"lfu", 40}, {"reuse", 300}, {"seconds", 300}}) {
    const double bytes = BytesAChunk(promise.policy);
    INFO(promise.policy << ": " << bytes << " bytes a chunk");
    CHECK(bytes > 8);
    CHECK(bytes <= promise.bytes);
  }
}

}  // namespace kvkeep
