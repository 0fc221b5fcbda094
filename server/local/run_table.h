// RunTable: the runs of a request in order, and which of them each chunk has. Numbers only: the
// owner knows by index which memory a run lies in.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvkeep {

class RunTable {
 public:
  struct Part {
    uint32_t memory = 0;
    uint64_t offset = 0;  // in that memory
    uint64_t bytes = 0;
  };

  void Reserve(size_t runs);
  void Add(uint32_t memory, uint64_t offset, uint32_t bytes);
  size_t size() const { return runs_.size(); }

  // InvalidArgument, with the chunk's number: its runs do not exist, or have another sum.
  absl::Status CheckChunk(size_t chunk, uint32_t first_run, uint32_t runs,
                          uint32_t payload_bytes) const;
  // Calls `each` for consecutive parts of the bytes [offset, offset + bytes) of the chunk that
  // begins at `first_run`; stops at its first error. REQUIRES: inside the chunk, which was checked.
  absl::Status ForEach(uint32_t first_run, uint64_t offset, uint64_t bytes,
                       absl::FunctionRef<absl::Status(const Part&)> each) const;

 private:
  struct Run {
    uint32_t memory = 0;
    uint64_t offset = 0;
  };
  std::vector<Run> runs_;
  std::vector<uint64_t> starts_ = {0};  // of each run, counted over all; one more: the end
};

}  // namespace kvkeep
