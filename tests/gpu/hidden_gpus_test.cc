// Reasons why a process does not see the machine's GPUs, on folders that stand for /proc and /dev.
#include "server/gpu/hidden_gpus.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/scratch_dir.h"

namespace kvkeep {

using Catch::Matchers::Contains;

TEST_CASE("GPUs that the kernel knows and this process is not let near are said to be hidden") {
  const ScratchDir dir;
  const std::string root = dir / "m";
  const std::filesystem::path dev = root + "/dev";
  std::filesystem::create_directories(dev);
  CHECK(WhyGpusAreHidden(root).empty());  // no module, no GPU
  std::filesystem::create_directories(root + "/proc/driver/nvidia/gpus/0000:01:00.0");
  CHECK_THAT(WhyGpusAreHidden(root),
             Contains("1 NVIDIA GPU, but this process is shown no /dev/nvidiactl") &&
                 Contains("gpu.conf.example"));
  std::filesystem::create_directories(root + "/proc/driver/nvidia/gpus/0000:02:00.0");
  std::filesystem::create_directory(dev / "nvidiactl");  // for any other error of open()
  CHECK_THAT(
      WhyGpusAreHidden(root),
      Contains("2 NVIDIA GPUs, but this process may not open /dev/nvidiactl (Is a directory)"));
  std::filesystem::remove(dev / "nvidiactl");
  std::ofstream(dev / "nvidiactl") << "";
  CHECK(WhyGpusAreHidden(root).empty());
}

}  // namespace kvkeep
