// KVKEEP_CHECK: an invariant of ours that must hold, in release builds too.
//
// For our own bugs only. What the world can cause (disk, memory, network, a client's input) is an
// absl::Status. A failed check prints file, line and condition and aborts: a cache that may be
// wrong is worth less than one that restarts.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace kvkeep::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace kvkeep::internal

#define KVKEEP_CHECK(condition)                                        \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::kvkeep::internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
