// ProgressMemory: the progress words of one session (proto/local/protocol.h), which the daemon
// writes and the client can only read.
//
// A sealed memfd: mapped read-write once, here; no descriptor of it can be mapped writable, cut or
// reopened. Words are taken and given back by one thread; Publish and EndSession may be called by
// any.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <vector>

#include "proto/local/protocol.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class ProgressMemory {
 public:
  // ResourceExhausted: no memory or descriptor is left.
  static absl::StatusOr<std::shared_ptr<ProgressMemory>> Create();
  ~ProgressMemory();
  ProgressMemory(const ProgressMemory&) = delete;
  ProgressMemory& operator=(const ProgressMemory&) = delete;

  // Returns a read-only descriptor for the client.
  absl::StatusOr<UniqueFd> OpenForClient() const;

  // Returns an unused word, with value 0; none when all are in use.
  std::optional<uint32_t> TakeWord();
  void GiveBack(uint32_t word);

  // Stores the value and wakes the clients that wait for it. A reader of the new value sees all
  // that was written before.
  void Publish(uint32_t word, local::ProgressWord value);
  // Sets the session word. Every reader sees this thread's later writes after it.
  void EndSession();

 private:
  ProgressMemory(UniqueFd fd, local::ProgressWord* words);

  const UniqueFd fd_;
  local::ProgressWord* const words_;
  uint32_t next_unused_ = 1;
  std::vector<uint32_t> given_back_;
};

}  // namespace kvkeep
