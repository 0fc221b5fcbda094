#include "tiers/io/errno_status.h"

#include <absl/strings/cord.h>
#include <absl/strings/str_cat.h>

#include <cerrno>
#include <system_error>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr char kHostShort[] = "kvkeep/host_short";

}  // namespace

absl::StatusCode ErrnoCode(int error) {
  KVKEEP_CHECK(error > 0);
  switch (error) {
    case EIO:        // the block layer's "failed", no reason given
    case EILSEQ:     // protection information or checksum of the drive did not match
    case ENODATA:    // critical medium error
    case EREMOTEIO:  // critical target error
    case EUCLEAN:    // the file system found itself damaged
    case EBADMSG:    // the file system's own checksum did not match
      return absl::StatusCode::kDataLoss;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:  // over RLIMIT_FSIZE or the file system's largest file
    case ENOMEM:
    case ENOBUFS:
      return absl::StatusCode::kResourceExhausted;
    case EROFS:
    case EPERM:
    case EACCES:
    case ETXTBSY:  // in use as a swap file
      return absl::StatusCode::kFailedPrecondition;
    case ENODEV:
    case ENXIO:
    case ENOLINK:    // transport to the drive lost
    case ESHUTDOWN:  // the file system was shut down
    case ETIMEDOUT:
    case ETIME:
    case EBADE:  // reserved by another host
    case EREMCHG:
    case ESTALE:
    case ENOTCONN:
    case ECANCELED:
    case EAGAIN:  // these three only after all tries
    case EBUSY:
    case EINTR:
      return absl::StatusCode::kUnavailable;
    case EINVAL:
    case EFAULT:
    case EBADF:
    case EOVERFLOW:
    case EISDIR:
    case ESPIPE:
    case EOPNOTSUPP:
    case ENOSYS:
      return absl::StatusCode::kInternal;
    default:
      return absl::StatusCode::kInternal;  // not one that the kernel's I/O paths are known to give
  }
}

absl::Status ErrnoStatus(int error, absl::string_view what) {
  absl::Status status(
      ErrnoCode(error),
      absl::StrCat(what, ": ", std::generic_category().message(error), " (errno ", error, ")"));
  const bool short_of = error == EAGAIN || error == EBUSY || error == EINTR || error == ENOMEM ||
                        error == ENOBUFS;
  if (short_of) status.SetPayload(kHostShort, absl::Cord());
  return status;
}

bool IsHostShort(const absl::Status& status) { return status.GetPayload(kHostShort).has_value(); }

}  // namespace kvkeep
