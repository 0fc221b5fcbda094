// AdmissionPolicy: which chunks of G2 are worth a write to G3. Drives wear out, and a chunk that
// nobody asks for again was written for nothing.
//
// A pure state machine, as EvictionPolicy; not thread-safe; every call is O(1). By name:
//
//     all           every chunk, the first time
//     second_use    a chunk that was offered before, lately, as once is not a pattern
//     write_budget  every chunk while the bytes written keep to a rate, saved up for an hour
#pragma once

#include <absl/strings/string_view.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/memory_toucher.h"
#include "tiers/policy/chunk_slot.h"

namespace kvkeep {

class AdmissionPolicy {
 public:
  virtual ~AdmissionPolicy() = default;
  virtual absl::string_view name() const = 0;
  // Returns whether to write a chunk of `bytes` that is not in G3 and has just come or been used.
  // After true the caller writes it. After false it may offer the chunk again at its next use.
  virtual bool Admit(Fingerprint chunk, uint64_t bytes, MonotonicTime now) = 0;
  // Accounts for a chunk that is written without a call of Admit, because it has to be.
  virtual void OnWritten(uint64_t /*bytes*/, MonotonicTime /*now*/) {}
  // Replaces AdmissionOptions::bytes_per_second. Policies without a rate ignore it.
  virtual void SetBytesPerSecond(double /*rate*/) {}
};

struct AdmissionOptions {
  uint32_t remembered_chunks = 1 << 20;  // second_use: chunks offered once
  double bytes_per_second = 0;           // write_budget: REQUIRES more than 0
  MemoryToucher* toucher = nullptr;      // outlives the policy; null: nothing is touched ahead
};

// Returns null for a name that is not listed above.
std::unique_ptr<AdmissionPolicy> MakeAdmissionPolicy(absl::string_view name,
                                                     const AdmissionOptions& options);
std::vector<std::string> AdmissionPolicyNames();

// Returns the write rate at which a drive rated for `terabytes_written` (1e12 bytes each) lasts
// `years`.
double EnduranceBytesPerSecond(double terabytes_written, double years);

}  // namespace kvkeep
