#include "tools/bench/fio.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/fakes/scratch_dir.h"
#include "tests/tools/bench/has_fio.h"

namespace kvkeep::bench {
namespace {

TEST_CASE("fio reads in a directory of any name, and leaves nothing there") {
  if (!HasFio()) return;
  const ScratchDir scratch;
  const std::string directory = scratch / "a drive: 'x' $HOME; y:z";
  REQUIRE(std::filesystem::create_directory(directory));
  {
    const auto fio =
        Fio::Make({.directory = directory, .data_bytes = 4 << 20, .seconds = 0.01});
    INFO(fio.status());
    REQUIRE(fio.ok());
    CHECK(std::filesystem::file_size(directory + "/fio.data") == 4 << 20);
    CHECK((*fio)->Read().ok());
  }
  CHECK(std::filesystem::is_empty(directory));
  CHECK(std::distance(std::filesystem::directory_iterator(scratch.path()), {}) == 1);
}

TEST_CASE("fio that cannot write is unavailable") {
  const ScratchDir scratch;
  const auto fio =
      Fio::Make({.directory = scratch / "missing", .data_bytes = 4 << 20, .seconds = 0.01});
  CHECK(absl::IsUnavailable(fio.status()));
}

}  // namespace
}  // namespace kvkeep::bench
