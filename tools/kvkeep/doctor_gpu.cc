#include "tools/kvkeep/doctor_gpu.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tools/kvkeep/doctor_service.h"

namespace kvkeep::tools {
namespace {

size_t GpuDevices(const std::string& root) {
  std::error_code none;  // no /dev: none there
  size_t found = 0;
  std::filesystem::directory_iterator entry(root + "/dev", none);
  for (; entry != std::filesystem::directory_iterator(); entry.increment(none)) {
    const std::string name = entry->path().filename().string();
    absl::string_view number = name;
    found += absl::ConsumePrefix(&number, "nvidia") && !number.empty() &&
             std::all_of(number.begin(), number.end(), absl::ascii_isdigit);
  }
  return found;
}

bool ServiceHidesDevices(const std::string& root) {
  const std::string value = ServiceSetting(root, "PrivateDevices").value_or("no");
  return value == "yes" || value == "true" || value == "on" || value == "1";
}

}  // namespace

Finding ExamineGpus(const Config& config, const Machine& machine) {
  Finding finding{.subject = "GPU"};
  const size_t devices = GpuDevices(machine.root);
  const bool local = !config.listen.local_path.empty();
  finding.found = absl::StrCat(
      devices, devices == 1 ? " device" : " devices", " (/dev/nvidia*), the driver's library ",
      machine.cuda_driver ? "loads" : "does not load", " (libcuda.so.1): ");
  if (config.gpu.mode == GpuChoice::kRequired && !machine.cuda_driver) {
    absl::StrAppend(&finding.found, "the daemon will not start, as gpu.mode is required");
    finding.state = Finding::State::kFail;
    finding.to_do = "install NVIDIA's driver, or set gpu.mode to auto";
  } else if (!local) {
    absl::StrAppend(&finding.found, "GPU workers copy by gRPC, as listen.local is off");
    if (devices == 0) return finding;
    finding.state = Finding::State::kWarn;
    finding.to_do = "set listen.local: the local path takes less time and CPU for a copy";
  } else if (config.gpu.mode != GpuChoice::kOff && machine.cuda_driver) {
    absl::StrAppend(&finding.found, "the daemon copies for GPU workers that register memory by ",
                    config.listen.local_path);
    if (devices > 0 && ServiceHidesDevices(machine.root)) {
      absl::StrAppend(&finding.found, "; not as kvkeepd.service, which hides the devices");
      finding.state = Finding::State::kWarn;
      finding.to_do =
          "copy gpu.conf.example, of kvkeepd.service.d in /usr/share/kvkeep/examples/systemd, to "
          "/etc/systemd/system/kvkeepd.service.d/gpu.conf; or set gpu.mode to off";
    }
  } else {
    absl::StrAppend(&finding.found, "the GPU path is off",
                    config.gpu.mode == GpuChoice::kOff ? " (gpu.mode)" : "",
                    ", GPU workers copy by the local path, ", config.listen.local_path);
  }
  return finding;
}

}  // namespace kvkeep::tools
