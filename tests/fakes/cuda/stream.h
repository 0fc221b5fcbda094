// Enqueue: gives work to a stream of the fake driver.
#pragma once

#include <cuda.h>

#include "tests/fakes/cuda/state.h"

namespace kvkeep::fakecuda {

// `synchronous`: returns when it is done (or its context is broken). INVALID_HANDLE: the stream
// does not exist, or is the null stream, which kvkeep must not use.
CUresult Enqueue(State* state, CUstream stream, Operation operation, bool synchronous)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu);

}  // namespace kvkeep::fakecuda
