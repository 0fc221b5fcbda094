// The parts of the fake driver's copies that are not found by a name of cuda.h.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace kvkeep::fakecuda {

struct BatchArguments {
  CUdeviceptr* destinations = nullptr;
  CUdeviceptr* sources = nullptr;
  size_t* sizes = nullptr;
  size_t count = 0;
  CUmemcpyAttributes* attributes = nullptr;
  size_t* first_copies = nullptr;
  size_t attribute_count = 0;
  CUstream stream = nullptr;
};

// cuMemcpyBatchAsync of drivers 12.8 and 12.9; cuda.h has 13.0's.
CUresult MemcpyBatchAsync12(CUdeviceptr* destinations, CUdeviceptr* sources, size_t* sizes,
                            size_t count, CUmemcpyAttributes* attributes, size_t* first_copies,
                            size_t attribute_count, size_t* refused, CUstream stream);

// cuDeviceGetUuid before 11.4: in MIG mode the UUID of the whole GPU.
CUresult DeviceGetParentUuid(CUuuid* uuid, CUdevice device);

}  // namespace kvkeep::fakecuda
