// AdmissionPolicy: which chunks of G2 are worth a write to G3. Drives wear out, and a chunk that
// nobody asks for again was written for nothing.
//
// A pure state machine, as EvictionPolicy; not thread-safe; every call is O(1). By name:
//
//     all           every chunk, the first time
//     second_use    a chunk that was offered before, lately: once is no pattern
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
  // A chunk that is not in G3 came, or was used: whether it is to be written now. Yes: so it will
  // be, of that many bytes. No: it may be offered again at its next use.
  virtual bool Admit(Fingerprint chunk, uint64_t bytes, MonotonicTime now) = 0;
  // A chunk of that many bytes is written without being asked about: it has to be.
  virtual void OnWritten(uint64_t /*bytes*/, MonotonicTime /*now*/) {}
  // AdmissionOptions::bytes_per_second from now on; nothing for a policy that has no use for it.
  virtual void SetBytesPerSecond(double /*rate*/) {}
};

struct AdmissionOptions {
  uint32_t remembered_chunks = 1 << 20;  // second_use: how many that were offered once
  double bytes_per_second = 0;           // write_budget: REQUIRES more than 0
  MemoryToucher* toucher = nullptr;      // outlives the policy; null: nothing is touched ahead
};

// Null for another name than those above.
std::unique_ptr<AdmissionPolicy> MakeAdmissionPolicy(absl::string_view name,
                                                     const AdmissionOptions& options);
std::vector<std::string> AdmissionPolicyNames();

// What may be written per second so that a drive rated for so many terabytes (1e12) lasts so long.
double EnduranceBytesPerSecond(double terabytes_written, double years);

}  // namespace kvkeep
