// Uncorrectable errors in memory that outlives the process: a page that the kernel gave up on
// raises SIGBUS in the thread that touches it, and stays broken until its file lets go of it. A
// process that only died of it would meet it again at every start.
//
// MemoryWatch: while one lives, an error in its memory leaves a note, a symbolic link in a
// directory, by which the next start finds the page and has the file take another one. Then the
// process ends by the signal as it would have, unless the thread was in one of the Guarded
// functions: these return that the memory cannot be read, and the caller goes on. For an error that
// nobody has touched yet it only makes the note, for TakeNew too.
//
// The first watch or guard installs the handler, once for the process; the handler before it gets
// each SIGBUS that is not about watched or guarded memory. Threads must not block SIGBUS. A note is
// made by system calls alone. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

// The contents of a note: the byte `offset` of the file with this number, which its maker chose.
struct MemoryErrorNote {
  uint64_t file = 0;
  uint64_t offset = 0;

  std::string ToName() const;  // "arena.error-FILE-OFFSET", both in hexadecimal
  // Returns nullopt if `name` is not the name of a note.
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

  // If `directory` is not valid, errors are counted but not noted.
  MemoryWatch(std::vector<Range> ranges, UniqueFd directory);
  // REQUIRES: nobody touches the memory any more.
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  uint64_t errors() const;  // that were met, by whatever thread
  // Returns the errors since the last call, each once, among the first kMaxNotes. One thread at a
  // time.
  std::vector<MemoryErrorNote> TakeNew();

  struct State;

 private:
  State* const state_;
};

// Asks the kernel to tell this process of an error as soon as it is found in memory that it maps,
// and not only when it is touched. For main(), before there are threads.
void HearOfMemoryErrorsEarly();

// Returns the XXH3-64 of memory that may be broken; nullopt if it cannot be read.
std::optional<uint64_t> GuardedXxh3(std::span<const std::byte> memory);
// Copies `from` to `to`. Returns false if `from` cannot be read; then `to` has some of it.
bool GuardedCopy(std::byte* to, std::span<const std::byte> from);

}  // namespace kvkeep
