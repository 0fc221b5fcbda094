#include "gpu/driver.h"

#include <catch2/catch.hpp>

#include "tests/fakes/cuda/fake_cuda.h"

namespace kvkeep {
namespace {

using Catch::Matchers::Contains;

absl::Status LoadStatus(const GpuDriver::Options& options) {
  return GpuDriver::Load(options).status();
}

GpuDriver::Options Fake() { return {.library = FakeCuda::kLibrary}; }

TEST_CASE("no driver is no error of ours: the status names what the loader looked for") {
  const absl::Status status = LoadStatus({.library = "libcuda-of-nobody.so.1"});
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(status.message()),
             Contains("no NVIDIA driver here") && Contains("libcuda-of-nobody.so.1"));
}

TEST_CASE("a library without cuGetProcAddress is taken for a driver that is too old") {
  const absl::Status status = LoadStatus({.library = "libm.so.6"});
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(status.message()), Contains("older than CUDA 12.0"));
}

TEST_CASE("options are checked") {
  CHECK(LoadStatus({.library = ""}).code() == absl::StatusCode::kInvalidArgument);
  GpuDriver::Options options = Fake();
  for (const int version : {11080, 13010}) {
    options.cuda_version = version;
    CHECK(LoadStatus(options).code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("drivers of CUDA 12.0 to 13.0 are taken, each with the batch copies that it has") {
  FakeCuda fake;
  const auto abi = [&](int driver, int newest) {
    fake.Set("version " + std::to_string(driver));
    GpuDriver::Options options = Fake();
    options.cuda_version = newest;
    absl::StatusOr<std::unique_ptr<GpuDriver>> loaded = GpuDriver::Load(options);
    REQUIRE(loaded.status() == absl::OkStatus());
    CHECK((*loaded)->version() == driver);
    return (*loaded)->batch_copy_abi();
  };
  CHECK(abi(12000, 13000) == BatchCopyAbi::kNone);
  CHECK(abi(12060, 13000) == BatchCopyAbi::kNone);
  CHECK(abi(12080, 13000) == BatchCopyAbi::kCuda12);
  CHECK(abi(12090, 13000) == BatchCopyAbi::kCuda12);
  CHECK(abi(13000, 13000) == BatchCopyAbi::kCuda13);
  CHECK(abi(13020, 13000) == BatchCopyAbi::kCuda13);
  CHECK(abi(13000, 12080) == BatchCopyAbi::kCuda12);
  CHECK(abi(13000, 12000) == BatchCopyAbi::kNone);
}

TEST_CASE("a driver below 12.0 is refused, with what to install") {
  FakeCuda fake;
  fake.Set("version 11080");
  const absl::Status status = LoadStatus(Fake());
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(status.message()), Contains("11.8") && Contains("525.60"));
}

TEST_CASE("a missing function is named") {
  FakeCuda fake;
  fake.Set("missing cuIpcOpenMemHandle");
  const absl::Status status = LoadStatus(Fake());
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(status.message()), Contains("cuIpcOpenMemHandle of CUDA 11.0"));
}

TEST_CASE("without batch copies and the old UUID call a driver is still good") {
  FakeCuda fake;
  fake.Set("version 13000\nmissing cuMemcpyBatchAsync");
  absl::StatusOr<std::unique_ptr<GpuDriver>> loaded = GpuDriver::Load(Fake());
  REQUIRE(loaded.status() == absl::OkStatus());
  CHECK((*loaded)->batch_copy_abi() == BatchCopyAbi::kNone);
  CHECK((*loaded)->raw().DeviceGetParentUuid != nullptr);
}

TEST_CASE("what cuInit says reaches the operator: the toolkit's stub, no device, a broken system") {
  FakeCuda fake;
  fake.Set("fail cuInit 34");
  CHECK_THAT(std::string(LoadStatus(Fake()).message()),
             Contains("cuInit: CUDA_ERROR_STUB_LIBRARY (34)"));
  CHECK(LoadStatus(Fake()).code() == absl::StatusCode::kFailedPrecondition);
  fake.Set("fail cuInit 100");
  CHECK(LoadStatus(Fake()).code() == absl::StatusCode::kNotFound);
  fake.Set("fail cuInit 802");
  CHECK(LoadStatus(Fake()).code() == absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace kvkeep
