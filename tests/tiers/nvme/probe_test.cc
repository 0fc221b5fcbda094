#include "tiers/nvme/probe.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/scratch_dir.h"
#include "tiers/nvme/device_names.h"

namespace kvkeep {

TEST_CASE("a directory with a device that takes writes, and no trace of the probe") {
  const ScratchDir scratch;
  CHECK(absl::IsNotFound(ProbeDevice(scratch / "none")));
  CHECK(absl::IsNotFound(ProbeDevice(scratch / "")));  // no device is in it
  std::ofstream(scratch / kSuperblockName) << "some";
  CHECK(ProbeDevice(scratch / "").ok());
  CHECK_FALSE(std::filesystem::exists(scratch / kProbeName));
}

TEST_CASE("what cannot be written is told with its path") {
  const ScratchDir scratch;
  std::ofstream(scratch / kSuperblockName) << "some";
  std::filesystem::create_symlink("/dev/full", scratch / kProbeName);
  const absl::Status status = ProbeDevice(scratch / "");
  CHECK(absl::IsFailedPrecondition(status));  // nothing is written through a link
  CHECK(std::string(status.message()).find(kProbeName) != std::string::npos);
}

}  // namespace kvkeep
