#include "tools/bench/pattern_device.h"

#include <utility>

#include "tiers/base/units.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kDeviceFileBytes = kGiB, kQuickDeviceFileBytes = 16 * kMiB;
constexpr double kDeviceSeconds = 2, kQuickDeviceSeconds = 0.05;

}  // namespace

PatternDevice::PatternDevice(const std::string& directory, bool quick) {
  if (directory.empty()) {
    why_not_ = "say with --scratch which directory is on the daemon's drive";
    return;
  }
  auto fio = Fio::Make({.directory = directory,
                        .data_bytes = quick ? kQuickDeviceFileBytes : kDeviceFileBytes,
                        .seconds = quick ? kQuickDeviceSeconds : kDeviceSeconds});
  if (fio.ok()) {
    fio_ = *std::move(fio);
  } else {
    why_not_ = std::string(fio.status().message());
  }
}

double PatternDevice::ReadRate() {
  if (fio_ == nullptr) return 0;
  const absl::StatusOr<double> gb_per_second = fio_->Read();
  if (gb_per_second.ok()) return *gb_per_second * 1e9;
  why_not_ = std::string(gb_per_second.status().message());
  return 0;
}

}  // namespace kvkeep::bench
