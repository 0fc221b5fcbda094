// Early return on a bad absl::Status, and unwrapping of absl::StatusOr (our Abseil has no such
// macros).
//
//   KVKEEP_RETURN_IF_ERROR(file.Sync());
//   KVKEEP_ASSIGN_OR_RETURN(Superblock superblock, ReadSuperblock(dir));
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <utility>

#define KVKEEP_RETURN_IF_ERROR(expression)                                                    \
  do {                                                                                        \
    if (absl::Status kvkeep_status = (expression); !kvkeep_status.ok()) return kvkeep_status; \
  } while (false)

#define KVKEEP_ASSIGN_OR_RETURN(lhs, expression) \
  KVKEEP_ASSIGN_OR_RETURN_1(KVKEEP_CONCAT_1(kvkeep_statusor_, __LINE__), lhs, expression)
#define KVKEEP_ASSIGN_OR_RETURN_1(statusor, lhs, expression) \
  auto statusor = (expression);                              \
  if (!statusor.ok()) return std::move(statusor).status();   \
  lhs = *std::move(statusor)
#define KVKEEP_CONCAT_1(a, b) KVKEEP_CONCAT_2(a, b)
#define KVKEEP_CONCAT_2(a, b) a##b
