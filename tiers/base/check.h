// KVKEEP_CHECK: an invariant of ours that must hold, in release builds too.
//
// For our own bugs only. Errors that the world can cause (disk, memory, network, a client's input)
// are an absl::Status. A failed check prints file, line and condition and aborts: a cache that may
// be wrong is worth less than one that restarts. Where nobody reads stderr, it aborts without a
// word.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace kvkeep::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition) {
  char text[1024];  // no more than a pipe takes at once
  const int length =
      std::snprintf(text, sizeof(text), "%s:%d: check failed: %s\n", file, line, condition);
  constexpr int kPatienceMs = 1000;
  pollfd takes{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (length > 0 && poll(&takes, 1, kPatienceMs) > 0) {
    const auto most = static_cast<int>(sizeof(text)) - 1;
    [[maybe_unused]] const ssize_t written =
        write(STDERR_FILENO, text, static_cast<size_t>(std::min(length, most)));
  }
  std::abort();
}

}  // namespace kvkeep::internal

#define KVKEEP_CHECK(condition)                                        \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::kvkeep::internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
