// Soon: waits for an effect of threads that are never joined, for a minute or the test's own
// limit. Returns whether it happened.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace kvkeep {

inline bool Soon(const std::function<bool()>& condition,
                 std::chrono::seconds patience = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < end && !condition()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for those threads
  }
  return condition();
}

}  // namespace kvkeep
