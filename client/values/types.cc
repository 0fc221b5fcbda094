#include "client/values/types.h"

namespace kvkeep::client {

absl::string_view PathName(Path path) { return path == Path::kLocal ? "local" : "grpc"; }

absl::string_view GetStatusName(GetStatus status) {
  switch (status) {
    case GetStatus::kHit:
      return "hit";
    case GetStatus::kMiss:
      return "miss";
    case GetStatus::kCorrupt:
      return "corrupt";
    case GetStatus::kBusy:
      return "busy";
    case GetStatus::kTooSmall:
      return "too_small";
    case GetStatus::kUnfinished:
      return "unfinished";
  }
  return "unknown";
}

absl::string_view PutStatusName(PutStatus status) {
  switch (status) {
    case PutStatus::kStored:
      return "stored";
    case PutStatus::kPresent:
      return "present";
    case PutStatus::kRejected:
      return "rejected";
    case PutStatus::kUnfinished:
      return "unfinished";
  }
  return "unknown";
}

}  // namespace kvkeep::client
