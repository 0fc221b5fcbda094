// CaseSpec: what one case of the benchmark does, as plain values that travel to the clients.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/client/measured.h"

namespace kvkeep::bench {

enum class Verb {
  kGet,     // chunks that are in G2
  kPut,     // fresh keys each time; older chunks are evicted
  kLookup,  // present keys, no lease
  kMixed,   // gets, puts and lookups by the weights below
  kPieces,  // one chunk at a time, awaited piece by piece: for chunks that are in G3
};
NLOHMANN_JSON_SERIALIZE_ENUM(Verb, {{Verb::kGet, "get"},
                                    {Verb::kPut, "put"},
                                    {Verb::kLookup, "lookup"},
                                    {Verb::kMixed, "mixed"},
                                    {Verb::kPieces, "pieces"}})

struct CaseSpec {
  Verb verb = Verb::kGet;
  uint64_t size = 0;   // payload of a chunk
  uint32_t batch = 1;  // keys of a call
  uint32_t depth = 1;  // calls in flight per client
  uint64_t keys = 0;   // chunks 0 to keys - 1 are present; gets and lookups use these
  bool verify = true;
  bool verify_all = false;  // every byte of every call, not of a sample
  bool no_g3 = true;        // puts stay in DRAM
  std::vector<uint32_t> mix = {8, 1, 1};  // of kMixed: weights of get, put and lookup
  // A chunk's layout on a GPU (gpu_memory.h), for kGet and kPut only; 0: on the host.
  uint64_t run_bytes = 0;
  uint32_t adjacent = 1;

  KVKEEP_FIELDS(verb, size, batch, depth, keys, verify, verify_all, no_g3, mix, run_bytes, adjacent)
  absl::Status Validate() const;
};

inline constexpr uint32_t kMaxDepth = 256;

}  // namespace kvkeep::bench
