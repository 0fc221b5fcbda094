// FailingCalls: system calls that fail when a test says so, so that the arm of every errno is
// taken.
//
// A program that links kvkeep_fakes_failing_calls has its file and memory calls (open, fstat,
// pread, fsync, mmap, ... and liburing's) go through here; without a FailingCalls they are what
// they were. While one exists, calls of the whole program count, but for writes to standard output
// and for those of RocksDB: after some failures it ends the process, or keeps files open. A
// test that asks for RocksDB's calls gets only these.
//
//   FailEachCall({EIO, ENOSPC}, [&](const CallFault& fault) {
//     const FailingCalls calls(fault);
//     CHECK(Open().ok() == calls.failed().empty());
//     return calls.failed();
//   });
//
// One at a time. Thread-safe: calls of other threads count as well.
#pragma once

#include <absl/functional/function_ref.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kvkeep {

// Makes a read or write move nothing instead of failing, as at the end of a file.
inline constexpr int kMovesNothing = -1;

struct CallFault {
  uint64_t number = UINT64_MAX;  // of the calls, or of those of that name
  std::string only = {};         // a call's name; empty: any
  int error = 0;                 // errno
  bool and_later = false;        // so do all later ones, of any name or of that one
  bool of_rocksdb = false;       // RocksDB's calls, and no others
};

class FailingCalls {
 public:
  explicit FailingCalls(const CallFault& fault);
  ~FailingCalls();
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;

  // The name of the first call that failed; empty: none did.
  std::string failed() const;
};

// Runs `attempt` once without a fault, to see what it calls; then for each of these calls and each
// error, but for no more than the first 12 calls of a name. It returns what failed. Returns how
// many attempts had one that failed. Considers only calls that are `like` this one.
uint64_t FailEachCall(const std::vector<int>& errors,
                      absl::FunctionRef<std::string(const CallFault&)> attempt,
                      const CallFault& like = {});

}  // namespace kvkeep
