// Keeps the descriptors and mappings of a local connection out of children of fork().
//
// In the child, every registered descriptor is closed before fork() returns there, so that the
// daemon sees the parent's connection end when the parent ends. The child leaves everything else of
// the library alone: locks may be held by threads that do not exist there. Objects remember the
// process they were made in and ask InChild before they touch anything.
#pragma once

#include <sys/types.h>

#include <utility>

#include "tiers/base/unique_fd.h"

namespace kvkeep::client {

// Counts the forks between the first process that used the library and this one.
int ForkGeneration();

// Tells an object whether it lives on in a child of the process that made it.
class ForkMark {
 public:
  bool InChild() const { return generation_ != ForkGeneration(); }

 private:
  int generation_ = ForkGeneration();
};

// A descriptor that no child of fork() keeps. Move-only; closes it when destroyed, except in a
// child, where its number may by then mean something else.
class GuardedFd {
 public:
  GuardedFd() = default;
  explicit GuardedFd(UniqueFd fd);
  ~GuardedFd() { Reset(); }
  GuardedFd(GuardedFd&& other) noexcept = default;
  GuardedFd& operator=(GuardedFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::move(other.fd_);
      mark_ = other.mark_;
    }
    return *this;
  }

  int get() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  void Reset();

 private:
  UniqueFd fd_;
  ForkMark mark_;
};

}  // namespace kvkeep::client
