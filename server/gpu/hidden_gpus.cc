#include "server/gpu/hidden_gpus.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

std::string WhyGpusAreHidden(const std::string& root) {
  // The kernel module's own list, which a sandbox of /dev does not hide.
  std::error_code none;
  size_t gpus = 0;
  std::filesystem::directory_iterator gpu(root + "/proc/driver/nvidia/gpus", none);
  for (; gpu != std::filesystem::directory_iterator(); gpu.increment(none)) {
    gpus += gpu->is_directory(none);
  }
  if (gpus == 0) return "";
  const char* const node = "/dev/nvidiactl";  // the first device that the driver opens
  const UniqueFd opened(open((root + node).c_str(), O_RDWR | O_CLOEXEC));
  if (opened.valid()) return "";
  const int error = errno;
  return absl::StrCat(
      "this machine has ", gpus, gpus == 1 ? " NVIDIA GPU" : " NVIDIA GPUs", ", but this process ",
      error == ENOENT ? absl::StrCat("is shown no ", node)
                      : absl::StrCat("may not open ", node, " (", std::strerror(error), ")"),
      ": by PrivateDevices or DevicePolicy of its service (gpu.conf.example of kvkeepd.service.d "
      "opens them), or by its container");
}

}  // namespace kvkeep
