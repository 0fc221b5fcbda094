// HasRings: whether io_uring is to be had. Tests of every engine go without it where it is not.
#pragma once

#include <catch2/catch.hpp>

#include "tiers/io/io_engine.h"

namespace kvkeep {

inline bool HasRings() {
  static const absl::Status made = CreateIoEngine({.mode = IoMode::kUring}).status();
  if (!made.ok()) WARN("skipped: " << made);
  return made.ok();
}

}  // namespace kvkeep
