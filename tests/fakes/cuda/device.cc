// Devices and contexts of the fake driver, and its error names.
//
// Rules, and where they are from (README.md):
// - A call before cuInit: NOT_INITIALIZED (3). Without a current context: INVALID_CONTEXT (201);
//   with a destroyed one: CONTEXT_IS_DESTROYED (709). [doc]
// - cuDevicePrimaryCtxReset ends all in the context. The thread that retained it still has to
//   release it. [doc]
// - cuDeviceGetUuid returns a MIG instance's own from 11.4 on, before that the whole GPU's.
//   [doc]
// - After an error such as 700 every call of the context returns it, and queued work is never
//   done. [doc]
#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/cuda/memory.h"
#include "tests/fakes/cuda/state.h"

namespace kvkeep::fakecuda {
namespace {

struct ErrorText {
  CUresult error;
  const char* name;
  const char* text;
};
#define KVKEEP_FAKE_ERROR(name, text) \
  ErrorText { name, #name, text }
constexpr std::array kErrors = {
    KVKEEP_FAKE_ERROR(CUDA_SUCCESS, "no error"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                      "part or all of the requested memory range is already mapped"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                      "pointer does not correspond to a registered memory region"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    KVKEEP_FAKE_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef KVKEEP_FAKE_ERROR

const ErrorText* FindError(CUresult error) {
  const auto* const found = std::find_if(kErrors.begin(), kErrors.end(),
                                         [&](const ErrorText& e) { return e.error == error; });
  return found == kErrors.end() ? nullptr : found;
}

bool IsDevice(const State& state, int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  return device >= 0 && static_cast<size_t>(device) < state.devices.size();
}

CUcontext ContextHandle(int device, uint64_t number) {
  return reinterpret_cast<CUcontext>(number << 8 | static_cast<uint64_t>(device + 1));
}

// Everything that lives in the context goes with it.
void EndContext(State* state, int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  DropStreams(state, device);
  for (auto it = state->streams.begin(); it != state->streams.end();) {
    if (it->second->device != device) {
      ++it;
      continue;
    }
    it->second->closing = true;
    state->ended_streams.push_back(it->second);
    it = state->streams.erase(it);
  }
  ++state->devices[device].context_number;
  state->devices[device].broken = CUDA_SUCCESS;
  state->changed.NotifyAll();
  const std::vector<std::shared_ptr<Stream>> ended = state->ended_streams;
  for (const std::shared_ptr<Stream>& stream : ended) {
    while (stream->device == device && !stream->finished) state->changed.Wait(&state->mu);
  }
  JoinEnded(state);
  EndRanges(state, device);
}

void FillUuid(CUuuid* uuid, int device, bool instance) {
  std::memset(uuid->bytes, 0, sizeof(uuid->bytes));
  std::memcpy(uuid->bytes, "kvkeep-fake", 11);
  uuid->bytes[14] = instance ? 'm' : 'g';
  uuid->bytes[15] = static_cast<char>(device);
}

}  // namespace

CUresult DeviceGetParentUuid(CUuuid* uuid, CUdevice device) {
  State& state = TheState();
  const Entry entry(&state, "cuDeviceGetUuid", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (!IsDevice(state, device)) return CUDA_ERROR_INVALID_DEVICE;
  FillUuid(uuid, device, false);
  return CUDA_SUCCESS;
}

extern "C" {

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** name) {
  const ErrorText* const found = FindError(error);
  *name = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
  const ErrorText* const found = FindError(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuInit(unsigned flags) {
  State& state = TheState();
  const Entry entry(&state, "cuInit", Needs::kNothing);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (entry.settings().devices == 0) return CUDA_ERROR_NO_DEVICE;
  if (!state.initialised) state.devices.resize(entry.settings().devices);
  state.initialised = true;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  State& state = TheState();
  const Entry entry(&state, "cuDriverGetVersion", Needs::kNothing);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  *version = entry.settings().version;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  State& state = TheState();
  const Entry entry(&state, "cuDeviceGetCount", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  *count = static_cast<int>(state.devices.size());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  State& state = TheState();
  const Entry entry(&state, "cuDeviceGet", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (!IsDevice(state, ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char* name, int bytes, CUdevice device) {
  State& state = TheState();
  const Entry entry(&state, "cuDeviceGetName", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (!IsDevice(state, device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(bytes), "kvkeep fake GPU %d", device);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  State& state = TheState();
  const Entry entry(&state, "cuDeviceGetUuid", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (!IsDevice(state, device)) return CUDA_ERROR_INVALID_DEVICE;
  FillUuid(uuid, device, entry.settings().mig);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* id, int bytes, CUdevice device) {
  State& state = TheState();
  const Entry entry(&state, "cuDeviceGetPCIBusId", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (!IsDevice(state, device)) return CUDA_ERROR_INVALID_DEVICE;
  if (bytes < 13) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  State& state = TheState();
  const Entry entry(&state, "cuDeviceGetAttribute", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (!IsDevice(state, device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
      *value = entry.settings().read_only_register ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
      *value = entry.settings().mig ? 0 : 1;
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return CUDA_SUCCESS;
  }
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  State& state = TheState();
  const Entry entry(&state, "cuDevicePrimaryCtxRetain", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (!IsDevice(state, device)) return CUDA_ERROR_INVALID_DEVICE;
  Device& retained = state.devices[device];
  if (retained.context_users++ == 0) ++retained.context_number;
  *context = ContextHandle(device, retained.context_number);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  State& state = TheState();
  const Entry entry(&state, "cuDevicePrimaryCtxRelease", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (!IsDevice(state, device)) return CUDA_ERROR_INVALID_DEVICE;
  if (state.devices[device].context_users == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--state.devices[device].context_users == 0) EndContext(&state, device);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device) {
  State& state = TheState();
  const Entry entry(&state, "cuDevicePrimaryCtxReset", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (!IsDevice(state, device)) return CUDA_ERROR_INVALID_DEVICE;
  EndContext(&state, device);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* handle) {
  State& state = TheState();
  const Entry entry(&state, "cuCtxGetCurrent", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const auto& current = ThreadContext();
  *handle = current.device < 0 ? nullptr : ContextHandle(current.device, current.number);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle) {
  State& state = TheState();
  const Entry entry(&state, "cuCtxSetCurrent", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const uint64_t number = reinterpret_cast<uint64_t>(handle) >> 8;
  const int device = static_cast<int>(reinterpret_cast<uint64_t>(handle) & 0xff) - 1;
  if (handle != nullptr && !IsDevice(state, device)) return CUDA_ERROR_INVALID_CONTEXT;
  ThreadContext() = {.device = device, .number = number};
  return CUDA_SUCCESS;
}

}  // extern "C"

}  // namespace kvkeep::fakecuda
