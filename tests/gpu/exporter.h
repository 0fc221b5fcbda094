// Exporter: a process that owns GPU memory, like an engine's worker (exporter_main.cc). It takes
// one command at a time, and dies with the test.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

class Exporter {
 public:
  Exporter();
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // Returns the legacy handle of new memory that holds Pattern(bytes, seed). One at a time: Free
  // first.
  CUipcMemHandle Alloc(uint64_t bytes, int seed);
  // As above for memory of cuMemCreate; returns a descriptor.
  UniqueFd AllocVmm(uint64_t bytes, int seed);
  // Returns whether its memory holds Pattern(bytes, seed).
  bool Holds(int seed);
  void Free();
  // Frees the memory. Returns whether that ended the process by SIGABRT.
  bool DiesFreeing();
  // kill -9, and waits until the process is gone.
  void Kill();
  int pid() const { return pid_; }

 private:
  // Sends a line and returns the answer's, with the descriptor that came with it.
  std::string Ask(const std::string& line, UniqueFd* came = nullptr);

  int pid_ = 0;
  UniqueFd socket_;
};

}  // namespace kvkeep
