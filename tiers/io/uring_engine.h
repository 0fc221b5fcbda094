// UringEngine: IoEngine by io_uring, one ring and one thread for all devices.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "tiers/io/io_engine.h"

namespace kvkeep {

// Unavailable or ResourceExhausted, with what to do, where io_uring is not to be had.
absl::StatusOr<std::unique_ptr<IoEngine>> CreateUringEngine(const IoEngineOptions& options);

}  // namespace kvkeep
