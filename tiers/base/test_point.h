// TestPoint: named moments at which a test may interfere, e.g. kill the process.
//
// In production the hook is null and a test point is one relaxed load. A hook is set before the
// first thread is started; it is called on whatever thread gets there, locks held.
// Names: the daemon's are in tests/crash/kill_points_test.cc, those of the key ring in
// tests/e2e/encryption_test.cc, the client's in
// client/local/test_point.h.
#pragma once

#include <atomic>

namespace kvkeep {

using TestPointHook = void (*)(const char* name);
inline std::atomic<TestPointHook> test_point_hook{nullptr};

inline void TestPoint(const char* name) {
  if (TestPointHook hook = test_point_hook.load(std::memory_order_relaxed); hook != nullptr) {
    hook(name);
  }
}

}  // namespace kvkeep
