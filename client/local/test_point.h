// TestPoint: named moments of the local path at which a test may interfere, e.g. kill the process.
//
// In production the hook is null and a test point is one relaxed load. Set it before the first
// client is made. The names, in the order of a client's life: connected, hello-sent, welcomed,
// segments-mapped, namespace-open, get-sent, get-leased, piece-wait, staging-mapped,
// staging-filled, put-sent, put-copied, release-queued, release-sent.
#pragma once

#include <atomic>

namespace kvkeep::client {

using TestPointHook = void (*)(const char* name);
inline std::atomic<TestPointHook> test_point_hook{nullptr};

inline void TestPoint(const char* name) {
  if (TestPointHook hook = test_point_hook.load(std::memory_order_relaxed); hook != nullptr) {
    hook(name);
  }
}

}  // namespace kvkeep::client
