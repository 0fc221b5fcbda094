// DescriptorCloser: closes descriptors that a peer passed, and sockets that may have some in their
// queues, on threads that may wait.
//
// The last close of a file may wait: for a TCP socket that lingers, for a FUSE server, or for a
// Unix socket with one of these unread in its queue. A peer chooses what it passes, so it would
// choose how long the daemon waits. Threads are made when there is something to close and end when
// there has been nothing for a while. A wait that a signal can end, such as for a lingering socket,
// ends after Options::patience. A wait that no signal ends (a FUSE server that does not answer)
// keeps its thread; so an owner has few threads at a time, and others have theirs.
//
// Thread-safe. Close never waits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

class DescriptorCloser {
 public:
  // The account that descriptors are charged to: a listener, or one user at a listener. Any
  // distinct numbers.
  using Owner = uint64_t;
  struct Options {
    size_t max_threads = 16;
    size_t owner_threads = 3;
    size_t owner_waiting = 64;  // more, and the owner is Full
    size_t max_waiting = 1024;  // of all owners: more, and each owner that has any is Full
    std::chrono::milliseconds patience{2};
    std::chrono::milliseconds rest{1000};  // a thread with nothing to do ends after it
  };

  explicit DescriptorCloser(const Options& options);
  ~DescriptorCloser();  // its threads go on until they have closed all
  DescriptorCloser(const DescriptorCloser&) = delete;
  DescriptorCloser& operator=(const DescriptorCloser&) = delete;
  // Returns the process's closer, which is never destroyed.
  static DescriptorCloser& OfProcess();

  void Close(UniqueFd fd, Owner owner);
  // Returns true if nothing more should be taken from this owner: too many of its descriptors wait
  // to be closed.
  bool Full(Owner owner) const;
  // Returns the number of descriptors not closed yet.
  size_t closing() const;
  size_t threads() const;

 private:
  class Shared;
  const std::shared_ptr<Shared> shared_;
};

// A descriptor that DescriptorCloser::OfProcess closes. Move-only, as UniqueFd is.
class ExpendableFd {
 public:
  ExpendableFd() = default;
  ExpendableFd(UniqueFd fd, DescriptorCloser::Owner owner = 0)  // NOLINT: stands where UniqueFd did
      : fd_(std::move(fd)), owner_(owner) {}
  ~ExpendableFd() { Reset(); }
  ExpendableFd(ExpendableFd&& other) noexcept = default;
  ExpendableFd& operator=(ExpendableFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::move(other.fd_);
      owner_ = other.owner_;
    }
    return *this;
  }

  int get() const { return fd_.get(); }
  const UniqueFd& fd() const { return fd_; }
  bool valid() const { return fd_.valid(); }
  // Hands the descriptor to the caller.
  int Release() { return fd_.Release(); }
  void Reset() {
    if (fd_.valid()) DescriptorCloser::OfProcess().Close(std::move(fd_), owner_);
  }

 private:
  UniqueFd fd_;
  DescriptorCloser::Owner owner_ = 0;
};

}  // namespace kvkeep
