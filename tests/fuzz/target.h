// A fuzz target: code that takes untrusted bytes, and seeds to begin with.
//
// `run` takes any bytes and ends the process (KVKEEP_CHECK, or a sanitizer) if a promise is broken.
// It keeps no state between calls. Every build runs it over `seeds` and mixtures of them
// (seeds_test.cc); libFuzzer makes up the rest (fuzz_main.cc).
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
extern const FuzzTarget kMediaTarget;   // files of devices, of the arena's mount, and of the state
extern const FuzzTarget kConfigTarget;  // the configuration file
extern const FuzzTarget kObjectsTarget;  // answers of object storage, and settings of one
extern const FuzzTarget kWireTarget;    // Put and Get frames, against the generated parser
extern const FuzzTarget kPeersTarget;   // another node of the fleet
extern const FuzzTarget kRequestsTarget;  // a client of gRPC: its messages over a store in memory
extern const FuzzTarget kBulkTarget;      // bulk_script.h: clients of the bulk door

}  // namespace kvkeep
