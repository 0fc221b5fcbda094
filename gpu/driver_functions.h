// KVKEEP_GPU_FUNCTIONS: the driver functions that kvkeep calls, each with the CUDA version whose
// arguments it is called with (the suffix of its type in cudaTypedefs.h). All of them are there
// from driver 12.0 on; what came later is optional and named in driver.h.
#pragma once

#define KVKEEP_GPU_FUNCTIONS(F)          \
  F(GetErrorName, 6000)                  \
  F(GetErrorString, 6000)                \
  F(Init, 2000)                          \
  F(DriverGetVersion, 2020)              \
  F(DeviceGet, 2000)                     \
  F(DeviceGetCount, 2000)                \
  F(DeviceGetName, 2000)                 \
  F(DeviceGetUuid, 11040)                \
  F(DeviceGetPCIBusId, 4010)             \
  F(DeviceGetAttribute, 2000)            \
  F(DevicePrimaryCtxRetain, 7000)        \
  F(DevicePrimaryCtxRelease, 11000)      \
  F(DevicePrimaryCtxReset, 11000)        \
  F(CtxGetCurrent, 4000)                 \
  F(CtxSetCurrent, 4000)                 \
  F(MemAlloc, 3020)                      \
  F(MemFree, 3020)                       \
  F(MemGetAddressRange, 3020)            \
  F(MemGetInfo, 3020)                    \
  F(PointerGetAttribute, 4000)           \
  F(MemHostRegister, 6050)               \
  F(MemHostUnregister, 4000)             \
  F(MemcpyHtoDAsync, 3020)               \
  F(MemcpyDtoHAsync, 3020)               \
  F(StreamCreate, 2000)                  \
  F(StreamDestroy, 4000)                 \
  F(StreamQuery, 2000)                   \
  F(StreamSynchronize, 2000)             \
  F(StreamWaitEvent, 3020)               \
  F(EventCreate, 2000)                   \
  F(EventDestroy, 4000)                  \
  F(EventRecord, 2000)                   \
  F(EventQuery, 2000)                    \
  F(EventSynchronize, 2000)              \
  F(IpcGetMemHandle, 4010)               \
  F(IpcOpenMemHandle, 11000)             \
  F(IpcCloseMemHandle, 4010)             \
  F(MemGetAllocationGranularity, 10020)  \
  F(MemCreate, 10020)                    \
  F(MemRelease, 10020)                   \
  F(MemRetainAllocationHandle, 11000)    \
  F(MemExportToShareableHandle, 10020)   \
  F(MemImportFromShareableHandle, 10020) \
  F(MemAddressReserve, 10020)            \
  F(MemAddressFree, 10020)               \
  F(MemMap, 10020)                       \
  F(MemUnmap, 10020)                     \
  F(MemSetAccess, 10020)
