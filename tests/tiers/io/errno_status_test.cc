#include "tiers/io/errno_status.h"

#include <catch2/catch.hpp>
#include <cerrno>

namespace kvkeep {

TEST_CASE("an errno becomes the status that device.h promises") {
  const auto [error, code] = GENERATE(table<int, absl::StatusCode>({
      {EIO, absl::StatusCode::kDataLoss},
      {EILSEQ, absl::StatusCode::kDataLoss},
      {ENODATA, absl::StatusCode::kDataLoss},
      {EUCLEAN, absl::StatusCode::kDataLoss},
      {ENOSPC, absl::StatusCode::kResourceExhausted},
      {EDQUOT, absl::StatusCode::kResourceExhausted},
      {EFBIG, absl::StatusCode::kResourceExhausted},
      {EROFS, absl::StatusCode::kFailedPrecondition},
      {EPERM, absl::StatusCode::kFailedPrecondition},
      {ENODEV, absl::StatusCode::kUnavailable},
      {ENXIO, absl::StatusCode::kUnavailable},
      {ENOLINK, absl::StatusCode::kUnavailable},
      {ECANCELED, absl::StatusCode::kUnavailable},
      {EINVAL, absl::StatusCode::kInternal},
      {EFAULT, absl::StatusCode::kInternal},
      {EBADF, absl::StatusCode::kInternal},
      {4000, absl::StatusCode::kInternal},  // no errno at all
  }));
  CAPTURE(error);
  CHECK(ErrnoCode(error) == code);
}

TEST_CASE("a status tells that the kernel was short of something, which is no device's fault") {
  for (const int error : {EAGAIN, EBUSY, EINTR, ENOMEM, ENOBUFS}) {
    CHECK(IsHostShort(ErrnoStatus(error, "read")));
  }
  for (const int error : {EIO, ENOSPC, EDQUOT, ENODEV, EINVAL}) {
    CHECK_FALSE(IsHostShort(ErrnoStatus(error, "read")));
  }
  CHECK_FALSE(IsHostShort(absl::OkStatus()));
  CHECK_FALSE(IsHostShort(absl::ResourceExhaustedError("full")));
}

TEST_CASE("a status says what was done, why it failed, and the number") {
  const absl::Status status = ErrnoStatus(EIO, "/data/0: read of 4096 bytes at 8192");
  CHECK(status.message() == "/data/0: read of 4096 bytes at 8192: Input/output error (errno 5)");
}

}  // namespace kvkeep
