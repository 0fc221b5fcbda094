// The daemon's errors as gRPC shows them.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <grpcpp/support/status.h>

#include <string>

#include "tiers/store/types.h"

namespace kvkeep {

// A FailedPrecondition also says which start of the daemon this is, so that a client can tell
// "opened before the restart" from "never opened".
inline grpc::Status ToGrpc(const absl::Status& status, Incarnation incarnation) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message());
  if (status.code() == absl::StatusCode::kFailedPrecondition) {
    absl::StrAppend(&message, " (incarnation ", incarnation.value(), ")");
  }
  // The two enumerations agree by design.
  return {static_cast<grpc::StatusCode>(status.code()), message};
}

}  // namespace kvkeep
