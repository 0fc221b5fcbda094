// Uncorrectable errors in memory that outlives the process: a page that the kernel gave up on
// raises SIGBUS in whoever touches it, and stays as it is until its file lets go of it. A process
// that only died of it would meet it again at every start.
//
// MemoryWatch: while one lives, an error in its memory leaves a note, a symbolic link in a
// directory, by which the next start finds the page and has the file take another one. Then the
// process ends by the signal as it would have, unless the thread was in one of the Guarded
// functions: those answer that the memory cannot be read, and the caller goes on. Of an error that
// nobody has touched yet it only makes the note, for TakeNew too.
//
// The handler is installed by the first watch or guard, once, for the process; whoever handled
// SIGBUS before gets what is not about watched or guarded memory. Threads must not block SIGBUS. A
// note is made by system calls alone. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

// What a note says: byte `offset` of a file that its maker numbers so.
struct MemoryErrorNote {
  uint64_t file = 0;
  uint64_t offset = 0;

  std::string ToName() const;  // "arena.error-FILE-OFFSET", both in hexadecimal
  // Nothing: not the name of a note.
  static std::optional<MemoryErrorNote> FromName(const std::string& name);
  bool operator==(const MemoryErrorNote&) const = default;
};

class MemoryWatch {
 public:
  struct Range {
    std::span<std::byte> memory;
    uint64_t file = 0;
    uint64_t offset = 0;  // in the file, of memory's first byte
  };
  static constexpr size_t kMaxWatches = 16;    // of a process at once; more watch nothing
  static constexpr uint64_t kMaxNotes = 1024;  // of one watch

  // Not valid `directory`: nothing is noted, errors are counted only.
  MemoryWatch(std::vector<Range> ranges, UniqueFd directory);
  // REQUIRES: nobody touches the memory any more.
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  uint64_t errors() const;  // that were met, by whatever thread
  // Where, each once: those since the last call, of the first kMaxNotes. By one thread at a time.
  std::vector<MemoryErrorNote> TakeNew();

  struct State;

 private:
  State* const state_;
};

// Asks the kernel to tell this process of an error as soon as it is found in memory that it maps,
// and not only when it is touched. For main(), before there are threads.
void HearOfMemoryErrorsEarly();

// XXH3-64 of memory that may be broken; nothing: it cannot be read.
std::optional<uint64_t> GuardedXxh3(std::span<const std::byte> memory);
// False: `from` cannot be read, and `to` has some of it.
bool GuardedCopy(std::byte* to, std::span<const std::byte> from);

}  // namespace kvkeep
