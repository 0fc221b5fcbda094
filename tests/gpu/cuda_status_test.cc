#include "gpu/cuda_status.h"

#include <catch2/catch.hpp>

namespace kvkeep {
namespace {

absl::Status Made(CUresult error) { return CudaStatus(error, "cuCall", "NAME", "words"); }

TEST_CASE("a status of the driver says call, name, number and words, and keeps the number") {
  const absl::Status status = Made(CUDA_ERROR_INVALID_CONTEXT);
  CHECK(status.message() == "cuCall: NAME (201): words");
  CHECK(CudaErrorOf(status) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(CudaErrorOf(absl::InternalError("of somebody else")) == std::nullopt);
}

TEST_CASE("errors that break a context are told from those that do not") {
  for (const CUresult broken : {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED,
                                CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_UNKNOWN}) {
    CHECK(BreaksContext(broken));
    CHECK(BreaksContext(Made(broken)));
    CHECK(Made(broken).code() == absl::StatusCode::kUnavailable);
  }
  for (const CUresult fine : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY,
                              CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_NOT_READY}) {
    CHECK_FALSE(BreaksContext(fine));
    CHECK_FALSE(BreaksContext(Made(fine)));
  }
  CHECK_FALSE(BreaksContext(absl::UnavailableError("of somebody else")));
}

TEST_CASE("what the world may cause has a code of its own, and the rest is internal") {
  CHECK(Made(CUDA_ERROR_INVALID_VALUE).code() == absl::StatusCode::kInvalidArgument);
  CHECK(Made(CUDA_ERROR_OUT_OF_MEMORY).code() == absl::StatusCode::kResourceExhausted);
  CHECK(Made(CUDA_ERROR_NO_DEVICE).code() == absl::StatusCode::kNotFound);
  CHECK(Made(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED).code() == absl::StatusCode::kAlreadyExists);
  CHECK(Made(CUDA_ERROR_NOT_SUPPORTED).code() == absl::StatusCode::kUnimplemented);
  CHECK(Made(CUDA_ERROR_NOT_PERMITTED).code() == absl::StatusCode::kPermissionDenied);
  CHECK(Made(CUDA_ERROR_PROFILER_DISABLED).code() == absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace kvkeep
