// Device memory of the fake driver: each allocation is a memfd, mapped in whoever uses it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/fakes/cuda/state.h"

namespace kvkeep::fakecuda {

// Maps all of `memory` for reading and writing, somewhere (at 0) or at a place that is reserved.
// 0 when that fails.
uint64_t MapMemory(int memory, uint64_t bytes, uint64_t at);
// Addresses on 2 MiB borders with nothing behind them. 0 when there are none.
uint64_t ReserveAddresses(uint64_t bytes);
// Takes what is behind them away; the addresses stay reserved.
void BlankAddresses(uint64_t at, uint64_t bytes);

// A memfd of that size whose name other processes can find in /proc.
UniqueFd MakeMemory(const std::string& name, uint64_t bytes);
// The name that the memory at `base` of a process has.
std::string MemoryName(uint64_t base);
// Whether `memory` is a memfd whose name begins so; links in /proc say.
bool HasName(const std::string& link, const std::string& name);

// The memory of a range goes, imported or own. REQUIRES: no copy in it.
void EndRange(State* state, const std::shared_ptr<Range>& range)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu);
// Ends the ranges of a context that ends.
void EndRanges(State* state, int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu);

}  // namespace kvkeep::fakecuda
