// Device memory of the fake driver: each allocation is a memfd, mapped in every process that uses
// it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/fakes/cuda/state.h"

namespace kvkeep::fakecuda {

// Maps all of `memory` for reading and writing, anywhere (at 0) or at a reserved place. Returns 0
// on failure.
uint64_t MapMemory(int memory, uint64_t bytes, uint64_t at);
// Returns reserved addresses on 2 MiB borders, without memory; 0 if there are none.
uint64_t ReserveAddresses(uint64_t bytes);
// Unmaps the memory of these addresses, which stay reserved.
void BlankAddresses(uint64_t at, uint64_t bytes);

// Makes a memfd of that size, whose name other processes can find in /proc.
UniqueFd MakeMemory(const std::string& name, uint64_t bytes);
// Returns the name of the memory at `base` of a process.
std::string MemoryName(uint64_t base);
// Returns whether `memory` is a memfd whose name begins with `name`, by the links in /proc.
bool HasName(const std::string& link, const std::string& name);

// Frees the memory of a range, imported or own. REQUIRES: no copy in it.
void EndRange(State* state, const std::shared_ptr<Range>& range)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu);
// Ends the ranges of a context that ends.
void EndRanges(State* state, int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu);

}  // namespace kvkeep::fakecuda
