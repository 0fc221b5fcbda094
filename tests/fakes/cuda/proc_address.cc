// cuGetProcAddress of the fake driver: which function of which CUDA version this driver has.
//
// Rules, and where they are from (README.md):
// - It gives the version asked for. Beyond the driver's version: INVALID_VALUE. A missing
//   function: success, a null pointer and a status. [doc]
// - cuMemcpyBatchAsync has `failIdx` from 12.8 on, and is without it from 13.0 on, both by that
//   name. [doc]
#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/fakes/cuda/copy.h"
#include "tests/fakes/cuda/state.h"

namespace kvkeep::fakecuda {
namespace {

struct Function {
  const char* name;
  int since;  // the CUDA version that came with these arguments
  void* address;
};

template <typename F>
void* Address(F* function) {
  return reinterpret_cast<void*>(function);
}

// Names as cuda.h has them: its macros put the suffix of the newest arguments behind a name, so the
// string must be the bare one.
const auto& Functions() {
#define KVKEEP_FAKE_FUNCTION(name, since) \
  Function { "cu" #name, since, Address(&cu##name) }
  static const auto* const functions = new std::array{
      KVKEEP_FAKE_FUNCTION(GetErrorName, 6000),
      KVKEEP_FAKE_FUNCTION(GetErrorString, 6000),
      KVKEEP_FAKE_FUNCTION(Init, 2000),
      KVKEEP_FAKE_FUNCTION(DriverGetVersion, 2020),
      KVKEEP_FAKE_FUNCTION(DeviceGet, 2000),
      KVKEEP_FAKE_FUNCTION(DeviceGetCount, 2000),
      KVKEEP_FAKE_FUNCTION(DeviceGetName, 2000),
      KVKEEP_FAKE_FUNCTION(DeviceGetPCIBusId, 4010),
      KVKEEP_FAKE_FUNCTION(DeviceGetAttribute, 2000),
      KVKEEP_FAKE_FUNCTION(DevicePrimaryCtxRetain, 7000),
      KVKEEP_FAKE_FUNCTION(CtxGetCurrent, 4000),
      KVKEEP_FAKE_FUNCTION(CtxSetCurrent, 4000),
      KVKEEP_FAKE_FUNCTION(MemHostUnregister, 4000),
      KVKEEP_FAKE_FUNCTION(StreamCreate, 2000),
      KVKEEP_FAKE_FUNCTION(StreamQuery, 2000),
      KVKEEP_FAKE_FUNCTION(StreamSynchronize, 2000),
      KVKEEP_FAKE_FUNCTION(StreamWaitEvent, 3020),
      KVKEEP_FAKE_FUNCTION(EventCreate, 2000),
      KVKEEP_FAKE_FUNCTION(EventRecord, 2000),
      KVKEEP_FAKE_FUNCTION(EventQuery, 2000),
      KVKEEP_FAKE_FUNCTION(EventSynchronize, 2000),
      KVKEEP_FAKE_FUNCTION(IpcGetMemHandle, 4010),
      KVKEEP_FAKE_FUNCTION(IpcCloseMemHandle, 4010),
      KVKEEP_FAKE_FUNCTION(MemGetAllocationGranularity, 10020),
      KVKEEP_FAKE_FUNCTION(MemCreate, 10020),
      KVKEEP_FAKE_FUNCTION(MemRelease, 10020),
      KVKEEP_FAKE_FUNCTION(MemRetainAllocationHandle, 11000),
      KVKEEP_FAKE_FUNCTION(PointerGetAttribute, 4000),
      KVKEEP_FAKE_FUNCTION(MemExportToShareableHandle, 10020),
      KVKEEP_FAKE_FUNCTION(MemImportFromShareableHandle, 10020),
      KVKEEP_FAKE_FUNCTION(MemAddressReserve, 10020),
      KVKEEP_FAKE_FUNCTION(MemAddressFree, 10020),
      KVKEEP_FAKE_FUNCTION(MemMap, 10020),
      KVKEEP_FAKE_FUNCTION(MemUnmap, 10020),
      KVKEEP_FAKE_FUNCTION(MemSetAccess, 10020),
      Function{"cuDevicePrimaryCtxRelease", 11000, Address(&cuDevicePrimaryCtxRelease_v2)},
      Function{"cuDevicePrimaryCtxReset", 11000, Address(&cuDevicePrimaryCtxReset_v2)},
      Function{"cuMemAlloc", 3020, Address(&cuMemAlloc_v2)},
      Function{"cuMemFree", 3020, Address(&cuMemFree_v2)},
      Function{"cuMemGetAddressRange", 3020, Address(&cuMemGetAddressRange_v2)},
      Function{"cuMemGetInfo", 3020, Address(&cuMemGetInfo_v2)},
      Function{"cuMemHostRegister", 6050, Address(&cuMemHostRegister_v2)},
      Function{"cuMemcpyHtoDAsync", 3020, Address(&cuMemcpyHtoDAsync_v2)},
      Function{"cuMemcpyDtoHAsync", 3020, Address(&cuMemcpyDtoHAsync_v2)},
      Function{"cuStreamDestroy", 4000, Address(&cuStreamDestroy_v2)},
      Function{"cuEventDestroy", 4000, Address(&cuEventDestroy_v2)},
      Function{"cuIpcOpenMemHandle", 11000, Address(&cuIpcOpenMemHandle_v2)},
      Function{"cuDeviceGetUuid", 9020, Address(&DeviceGetParentUuid)},
      Function{"cuDeviceGetUuid", 11040, Address(&cuDeviceGetUuid_v2)},
      Function{"cuMemcpyBatchAsync", 12080, Address(&MemcpyBatchAsync12)},
      Function{"cuMemcpyBatchAsync", 13000, Address(&cuMemcpyBatchAsync_v2)},
  };
#undef KVKEEP_FAKE_FUNCTION
  return *functions;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** out, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* status) {
  State& state = TheState();
  const Entry entry(&state, "cuGetProcAddress", Needs::kNothing);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const Settings& settings = entry.settings();
  if (symbol == nullptr || out == nullptr || version > settings.version ||
      flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Function* best = nullptr;
  bool known = false;
  for (const Function& function : Functions()) {
    if (std::strcmp(function.name, symbol) != 0 || function.since > settings.version ||
        settings.missing.count(symbol) > 0) {
      continue;
    }
    known = true;
    if (function.since <= version && (best == nullptr || best->since < function.since)) {
      best = &function;
    }
  }
  *out = best == nullptr ? nullptr : best->address;
  if (status != nullptr) {
    *status = best != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : known         ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"

}  // namespace kvkeep::fakecuda
