// InNamespace: runs a test case's body where it may mount; otherwise prints that and passes.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "tests/tiers/host/child_process.h"

namespace kvkeep {

inline void InNamespace(const std::function<void(const MountRoom&, Findings&)>& body) {
  const std::string report = RunInMountNamespace(body);
  if (report == kNotPermitted) {
    WARN("skipped: " << kNotPermitted);
    return;
  }
  CHECK(report == "");
}

}  // namespace kvkeep
