// Soon: whether something that threads which nobody joins bring about happens within ten seconds.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace kvkeep {

inline bool Soon(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < end && !condition()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for those threads
  }
  return condition();
}

}  // namespace kvkeep
