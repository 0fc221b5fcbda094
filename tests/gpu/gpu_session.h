// GpuSession: a driver, its first device's context on the calling thread, and a stream.
//
// The loader finds the driver by name; LD_LIBRARY_PATH chooses the fake one. All of the session
// ends with the object.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gpu/driver.h"
#include "gpu/open_device.h"
#include "tests/gpu/pattern.h"

namespace kvkeep {

class GpuSession {
 public:
  explicit GpuSession(const GpuDriver::Options& options = {}) {
    absl::StatusOr<OpenedDevice> opened = OpenFirstDevice(options);
    REQUIRE(opened.status() == absl::OkStatus());
    driver_ = std::move(opened->driver);
    device_ = opened->device;
    stream_ = opened->stream;
  }
  ~GpuSession() {
    if (stream_ != nullptr) (void)driver_->StreamDestroy(stream_);
    (void)driver_->CtxSetCurrent(static_cast<CUcontext>(nullptr));
    (void)driver_->DevicePrimaryCtxRelease(device_);
  }
  GpuSession(const GpuSession&) = delete;
  GpuSession& operator=(const GpuSession&) = delete;

  const GpuDriver& driver() const { return *driver_; }
  CUdevice device() const { return device_; }
  CUstream stream() const { return stream_; }

  // Ends the context and its stream, whose handle is invalid from then on.
  void ResetContext() {
    Require(driver_->DevicePrimaryCtxReset(device_));
    stream_ = nullptr;
  }

  // Returns the properties of memory on the device, for MemCreate.
  CUmemAllocationProp Properties() const {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_};
    return properties;
  }
  CUdeviceptr Alloc(size_t bytes) {
    CUdeviceptr address = 0;
    Require(driver_->MemAlloc(&address, bytes));
    return address;
  }
  void Write(CUdeviceptr to, const std::vector<std::byte>& bytes) {
    Require(driver_->MemcpyHtoDAsync(to, static_cast<const void*>(bytes.data()), bytes.size(),
                                     stream_));
    Require(driver_->StreamSynchronize(stream_));
  }
  std::vector<std::byte> Read(CUdeviceptr from, size_t bytes) {
    std::vector<std::byte> read(bytes);
    Require(driver_->MemcpyDtoHAsync(static_cast<void*>(read.data()), from, bytes, stream_));
    Require(driver_->StreamSynchronize(stream_));
    return read;
  }
  static void Require(const absl::Status& status) { REQUIRE(status == absl::OkStatus()); }

 private:
  std::unique_ptr<GpuDriver> driver_;
  CUdevice device_ = 0;
  CUstream stream_ = nullptr;
};

}  // namespace kvkeep
