#include "gpu/cuda_status.h"

#include <absl/strings/cord.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr absl::string_view kPayload = "kvkeep/cuda_error";

struct Meaning {
  CUresult error;
  absl::StatusCode code;
};

constexpr std::array kMeanings = {
    Meaning{CUDA_ERROR_INVALID_VALUE, absl::StatusCode::kInvalidArgument},
    Meaning{CUDA_ERROR_INVALID_HANDLE, absl::StatusCode::kInvalidArgument},
    Meaning{CUDA_ERROR_MAP_FAILED, absl::StatusCode::kInvalidArgument},
    Meaning{CUDA_ERROR_OUT_OF_MEMORY, absl::StatusCode::kResourceExhausted},
    Meaning{CUDA_ERROR_TOO_MANY_PEERS, absl::StatusCode::kResourceExhausted},
    Meaning{CUDA_ERROR_NO_DEVICE, absl::StatusCode::kNotFound},
    Meaning{CUDA_ERROR_INVALID_DEVICE, absl::StatusCode::kNotFound},
    Meaning{CUDA_ERROR_NOT_FOUND, absl::StatusCode::kNotFound},
    Meaning{CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, absl::StatusCode::kNotFound},
    Meaning{CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, absl::StatusCode::kAlreadyExists},
    Meaning{CUDA_ERROR_NOT_PERMITTED, absl::StatusCode::kPermissionDenied},
    Meaning{CUDA_ERROR_NOT_SUPPORTED, absl::StatusCode::kUnimplemented},
    Meaning{CUDA_ERROR_NOT_INITIALIZED, absl::StatusCode::kFailedPrecondition},
    Meaning{CUDA_ERROR_INVALID_CONTEXT, absl::StatusCode::kFailedPrecondition},
    Meaning{CUDA_ERROR_STUB_LIBRARY, absl::StatusCode::kFailedPrecondition},
    Meaning{CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, absl::StatusCode::kFailedPrecondition},
    Meaning{CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, absl::StatusCode::kFailedPrecondition},
};

// The driver's documentation says of each that the process must be ended to go on using CUDA, or
// that the context is gone; of the unknown error it says nothing, so the worst is assumed.
constexpr std::array kContextBroken = {
    CUDA_ERROR_DEINITIALIZED,
    CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUDA_ERROR_ECC_UNCORRECTABLE,
    CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUDA_ERROR_CONTAINED,
    CUDA_ERROR_ILLEGAL_ADDRESS,
    CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_ASSERT,
    CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_MISALIGNED_ADDRESS,
    CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUDA_ERROR_INVALID_PC,
    CUDA_ERROR_LAUNCH_FAILED,
    CUDA_ERROR_SYSTEM_NOT_READY,
    CUDA_ERROR_EXTERNAL_DEVICE,
    CUDA_ERROR_UNKNOWN,
};

absl::StatusCode CodeOf(CUresult error) {
  if (BreaksContext(error)) return absl::StatusCode::kUnavailable;
  for (const Meaning& meaning : kMeanings) {
    if (meaning.error == error) return meaning.code;
  }
  return absl::StatusCode::kInternal;
}

}  // namespace

absl::Status CudaStatus(CUresult error, absl::string_view call, absl::string_view name,
                        absl::string_view text) {
  KVKEEP_CHECK(error != CUDA_SUCCESS);
  const int number = static_cast<int>(error);
  absl::Status status(CodeOf(error), absl::StrCat(call, ": ", name, " (", number, "): ", text));
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(number)));
  return status;
}

std::optional<CUresult> CudaErrorOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  int number = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &number)) return {};
  return static_cast<CUresult>(number);
}

bool BreaksContext(CUresult error) {
  return std::find(kContextBroken.begin(), kContextBroken.end(), error) != kContextBroken.end();
}

bool BreaksContext(const absl::Status& status) {
  const std::optional<CUresult> error = CudaErrorOf(status);
  return error.has_value() && BreaksContext(*error);
}

}  // namespace kvkeep
