// ThreadPoolEngine: IoEngine by blocking pread and pwrite on a few threads, for kernels and
// containers without io_uring. Same behaviour; callbacks run on its threads, several at once.
#pragma once

#include <memory>
#include <string>

#include "tiers/io/io_engine.h"

namespace kvkeep {

// `why`: for describe(), the reason that it is not io_uring.
std::unique_ptr<IoEngine> CreateThreadPoolEngine(const IoEngineOptions& options, std::string why);

}  // namespace kvkeep
