// FailingCalls: system calls that fail on request of a test, so that it covers every errno's
// branch.
//
// The file and memory calls (open, fstat, pread, fsync, mmap, ... and liburing's) of a program that
// links kvkeep_fakes_failing_calls go through here; without a FailingCalls they are unchanged.
// While one exists, calls of the whole program count, except writes to standard output and
// RocksDB's calls: after some failures RocksDB ends the process, or keeps files open. A test can
// ask for RocksDB's calls instead, and gets only these.
//
//   FailEachCall({EIO, ENOSPC}, [&](const CallFault& fault) {
//     const FailingCalls calls(fault);
//     CHECK(Open().ok() == calls.failed().empty());
//     return calls.failed();
//   });
//
// Only one may exist at a time. Thread-safe: calls of other threads count as well.
#pragma once

#include <absl/functional/function_ref.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kvkeep {

// Makes a read or write move nothing instead of failing, as at the end of a file.
inline constexpr int kMovesNothing = -1;

struct CallFault {
  uint64_t number = UINT64_MAX;  // of all calls, or of the calls of that name
  std::string only = {};         // a call's name; empty: any
  int error = 0;                 // errno
  bool and_later = false;        // all later calls fail too, of any name or of `only`
  bool of_rocksdb = false;       // only RocksDB's calls
};

class FailingCalls {
 public:
  explicit FailingCalls(const CallFault& fault);
  ~FailingCalls();
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;

  // Returns the name of the first call that failed; empty if none did.
  std::string failed() const;
};

// Runs `attempt` once without a fault, to record its calls; then once for each of these calls and
// each error, for the first 12 calls of a name at most. `attempt` returns the name of the failed
// call. Returns how many attempts had a failed call. Considers only calls that are `like` this one.
uint64_t FailEachCall(const std::vector<int>& errors,
                      absl::FunctionRef<std::string(const CallFault&)> attempt,
                      const CallFault& like = {});

}  // namespace kvkeep
