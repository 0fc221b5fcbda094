#include "tiers/io/operation_check.h"

#include <absl/strings/str_cat.h>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {

absl::Status CheckOperation(const IoOperation& operation, uint64_t size_bytes, bool read_only) {
  KVKEEP_CHECK(operation.done != nullptr);
  const uint64_t offset = operation.offset.value();
  const auto address = reinterpret_cast<uintptr_t>(operation.data);
  if (operation.data == nullptr || operation.bytes == 0) {
    return absl::InternalError(absl::StrCat(DescribeOperation(operation), ": nothing to move"));
  }
  if (offset % kBlockBytes != 0 || operation.bytes % kBlockBytes != 0 ||
      address % kBlockBytes != 0) {
    return absl::InternalError(absl::StrCat(DescribeOperation(operation), ", memory at ",
                                            absl::Hex(address), ": not aligned to ", kBlockBytes));
  }
  if (offset > size_bytes || operation.bytes > size_bytes - offset) {
    return absl::InternalError(absl::StrCat(DescribeOperation(operation),
                                            ": outside the device of ", size_bytes, " bytes"));
  }
  if (read_only && operation.kind == IoOperation::Kind::kWrite) {
    return absl::FailedPreconditionError(
        absl::StrCat(DescribeOperation(operation), ": the device was opened read-only"));
  }
  return absl::OkStatus();
}

std::string DescribeOperation(const IoOperation& operation) {
  return absl::StrCat(operation.kind == IoOperation::Kind::kRead ? "read" : "write", " of ",
                      operation.bytes, " bytes at ", operation.offset.value());
}

}  // namespace kvkeep
