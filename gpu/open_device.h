// OpenedDevice: the driver that the loader finds by name, its first device's context on the calling
// thread, and a stream; for programs and tests that do with them what they want.
#pragma once

#include <memory>

#include "gpu/driver.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

struct OpenedDevice {
  std::unique_ptr<GpuDriver> driver;
  CUdevice device = 0;
  CUstream stream = nullptr;
};

inline absl::StatusOr<OpenedDevice> OpenFirstDevice(const GpuDriver::Options& options = {}) {
  OpenedDevice opened;
  KVKEEP_ASSIGN_OR_RETURN(opened.driver, GpuDriver::Load(options));
  CUcontext context = nullptr;
  KVKEEP_RETURN_IF_ERROR(opened.driver->DeviceGet(&opened.device, 0));
  KVKEEP_RETURN_IF_ERROR(opened.driver->DevicePrimaryCtxRetain(&context, opened.device));
  KVKEEP_RETURN_IF_ERROR(opened.driver->CtxSetCurrent(context));
  KVKEEP_RETURN_IF_ERROR(opened.driver->StreamCreate(&opened.stream, CU_STREAM_NON_BLOCKING));
  return opened;
}

}  // namespace kvkeep
