// Helpers of the tests of G4: files that only their owner may read, and recalls.
#pragma once

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {

inline void WriteForOwner(const std::string& path, const std::string& text) {
  WriteFile(path, text);
  REQUIRE(chmod(path.c_str(), 0600) == 0);
}

// Makes a directory the G4 of a fleet, as `kvkeep g4 init` does.
inline void MakeG4Directory(const std::string& path, const std::string& fleet) {
  std::filesystem::create_directories(path);
  WriteFile(path + "/.kvkeep", fleet + "\n");
}

// Returns a fleet's key, another one for each digit: a key of equal bytes is refused as not random.
inline std::string FleetKeyOf(char digit) { return std::string(32, digit) + std::string(32, '0'); }

// Searches beyond the node, and gets the leased chunks. Returns how many are hits.
inline size_t RecallLeading(Engine& engine, const std::vector<TestChunk>& chunks,
                            std::chrono::microseconds wait,
                            std::chrono::microseconds recompute_per_key = {}) {
  const auto found = engine.client().Lookup(engine.ns(), KeysOf(chunks),
                                            {.lease = client::LeaseMode::kLeadingRun,
                                             .remote_wait = wait,
                                             .recompute_per_key = recompute_per_key});
  if (!found.ok()) FAIL(found.status());
  size_t hits = 0;
  for (uint32_t i = 0; i < found->leased_keys; ++i) {
    hits += engine.Get(chunks[i], &found->lease, i) == client::GetStatus::kHit;
  }
  return hits;
}

// Recalls them again and again until all come: beside much other work one search may find too
// little in its time.
inline bool RecallsAll(Engine& engine, const std::vector<TestChunk>& chunks) {
  return Eventually(
      [&] { return RecallLeading(engine, chunks, std::chrono::seconds(2)) == chunks.size(); },
      std::chrono::seconds(120));
}

}  // namespace kvkeep::e2e
