// A fuzz target: what is tried with bytes that anybody may have made, and bytes to begin with.
//
// `run` takes any bytes at all and ends the process (KVKEEP_CHECK, or a sanitizer) when a promise
// is broken. It keeps nothing from one call to the next. Every build runs it over `seeds` and
// mixtures of them (seeds_test.cc); libFuzzer makes up the rest (fuzz_main.cc).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvkeep {

using FuzzInput = std::vector<uint8_t>;

struct FuzzTarget {
  const char* name = "";
  void (*run)(std::span<const uint8_t> input) = nullptr;
  std::vector<FuzzInput> (*seeds)() = nullptr;
};

extern const FuzzTarget kLocalTarget;   // script.h: a client of the local path
extern const FuzzTarget kMediaTarget;   // what lies on devices, on the arena's mount, in the state
extern const FuzzTarget kConfigTarget;  // the configuration file
extern const FuzzTarget kObjectsTarget;  // answers of object storage, and what is said of one
extern const FuzzTarget kWireTarget;    // Put and Get frames, against the generated parser
extern const FuzzTarget kRequestsTarget;  // a client of gRPC: its messages over a store in memory

}  // namespace kvkeep
