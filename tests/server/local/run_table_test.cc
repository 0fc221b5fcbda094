#include "server/local/run_table.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <string>

namespace kvkeep {
namespace {

// Returns "memory@offset+bytes" of every part.
std::string PartsOf(const RunTable& table, uint32_t first_run, uint64_t offset, uint64_t bytes) {
  std::string text;
  const absl::Status all = table.ForEach(first_run, offset, bytes, [&](const RunTable::Part& part) {
    text += std::to_string(part.memory) + "@" + std::to_string(part.offset) + "+" +
            std::to_string(part.bytes) + " ";
    return absl::OkStatus();
  });
  CHECK(all.ok());
  return text;
}

}  // namespace

TEST_CASE("bytes of a chunk are found in its runs, whatever part of it is asked for") {
  RunTable table;
  table.Add(0, 1000, 10);  // another chunk's
  table.Add(1, 0, 100);
  table.Add(2, 500, 1);
  table.Add(1, 200, 49);
  CHECK(PartsOf(table, 1, 0, 150) == "1@0+100 2@500+1 1@200+49 ");
  CHECK(PartsOf(table, 1, 0, 100) == "1@0+100 ");
  CHECK(PartsOf(table, 1, 99, 3) == "1@99+1 2@500+1 1@200+1 ");
  CHECK(PartsOf(table, 1, 149, 1) == "1@248+1 ");
  CHECK(PartsOf(table, 1, 100, 0).empty());
  CHECK(PartsOf(table, 0, 0, 10) == "0@1000+10 ");
}

TEST_CASE("the first error of what is done with the parts ends it") {
  RunTable table;
  table.Add(0, 0, 10);
  table.Add(1, 0, 10);
  int calls = 0;
  const absl::Status status = table.ForEach(0, 0, 20, [&](const RunTable::Part&) {
    ++calls;
    return absl::OutOfRangeError("gone");
  });
  CHECK(absl::IsOutOfRange(status));
  CHECK(calls == 1);
}

TEST_CASE("a chunk's runs must be there and have its bytes") {
  RunTable table;
  table.Add(0, 0, 10);
  table.Add(0, 20, 5);
  CHECK(table.CheckChunk(0, 0, 2, 15).ok());
  CHECK(table.CheckChunk(0, 1, 1, 5).ok());
  CHECK(table.CheckChunk(0, 2, 0, 0).ok());
  CHECK(absl::StrContains(table.CheckChunk(3, 0, 2, 16).message(), "chunks[3].payload_bytes"));
  CHECK(absl::IsInvalidArgument(table.CheckChunk(0, 1, 2, 5)));
  CHECK(absl::IsInvalidArgument(table.CheckChunk(0, UINT32_MAX, UINT32_MAX, 0)));
}

}  // namespace kvkeep
