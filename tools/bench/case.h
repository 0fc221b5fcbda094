// CaseSpec: what one case of the benchmark does, as plain values that travel to the clients.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <cstdint>

#include "tools/bench/measured.h"

namespace kvkeep::bench {

enum class Verb {
  kGet,     // chunks that are in G2
  kPut,     // fresh keys each time; what was there is evicted
  kLookup,  // present keys, no lease
  kMixed,   // gets, puts and lookups by the weights below
  kPieces,  // one chunk at a time, waited for piece by piece: for chunks that are in G3
};
absl::string_view VerbName(Verb verb);
absl::StatusOr<Verb> ParseVerb(absl::string_view name);

struct CaseSpec {
  Verb verb = Verb::kGet;
  uint64_t size = 0;   // payload of a chunk
  uint32_t batch = 1;  // keys of a call
  uint32_t depth = 1;  // calls in flight per client
  uint64_t keys = 0;   // chunks 0 to keys - 1 are there; gets and lookups are of these
  bool verify = true;
  bool verify_all = false;  // every byte of every call, not of some
  bool no_g3 = true;        // puts stay in DRAM
  uint32_t get_weight = 8;  // of kMixed
  uint32_t put_weight = 1;
  uint32_t lookup_weight = 1;
  // On a GPU (gpu_memory.h): how a chunk lies there, and the verb is kGet or kPut; 0: on the host.
  uint64_t run_bytes = 0;
  uint32_t adjacent = 1;

  absl::Status Validate() const;
};

inline constexpr uint32_t kMaxDepth = 256;
inline constexpr uint32_t kMaxClients = 256;

Json ToJson(const CaseSpec& spec);
// Of what ToJson made.
CaseSpec CaseFromJson(const Json& json);

}  // namespace kvkeep::bench
