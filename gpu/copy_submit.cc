#include "gpu/copy_submit.h"

#include <vector>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

absl::Status SubmitOne(const GpuDriver& driver, const DeviceCopy& copy, DeviceCopyWay way,
                       CUstream stream) {
  const size_t bytes = copy.bytes;
  const CUdeviceptr device = copy.device;
  return way == DeviceCopyWay::kToHost
             ? driver.MemcpyDtoHAsync(static_cast<void*>(copy.host), device, bytes, stream)
             : driver.MemcpyHtoDAsync(device, static_cast<const void*>(copy.host), bytes, stream);
}

absl::Status SubmitBatch(const GpuDriver& driver, std::span<const DeviceCopy> copies,
                         DeviceCopyWay way, CUstream stream) {
  std::vector<CUdeviceptr> device, host;
  std::vector<size_t> sizes;
  device.reserve(copies.size());
  host.reserve(copies.size());
  sizes.reserve(copies.size());
  for (const DeviceCopy& copy : copies) {
    device.push_back(copy.device);
    host.push_back(reinterpret_cast<CUdeviceptr>(copy.host));
    sizes.push_back(copy.bytes);
  }
  const bool to_host = way == DeviceCopyWay::kToHost;
  return driver.MemcpyBatch({.destinations = to_host ? host.data() : device.data(),
                             .sources = to_host ? device.data() : host.data(),
                             .sizes = sizes.data(),
                             .count = copies.size()},
                            stream);
}

}  // namespace

Submitted SubmitCopies(const GpuDriver& driver, std::span<const DeviceCopy> copies,
                       DeviceCopyWay way, CUstream stream) {
  KVKEEP_CHECK(copies.size() <= kMaxBatchCopies);
  Submitted submitted;
  if (copies.size() > 1 && driver.batch_copy_abi() != BatchCopyAbi::kNone) {
    submitted.status = SubmitBatch(driver, copies, way, stream);
    submitted.calls = 1;
    if (submitted.status.ok()) submitted.pieces = copies.size();
    return submitted;
  }
  for (const DeviceCopy& copy : copies) {
    submitted.status = SubmitOne(driver, copy, way, stream);
    ++submitted.calls;
    if (!submitted.status.ok()) return submitted;
    ++submitted.pieces;
  }
  return submitted;
}

}  // namespace kvkeep
