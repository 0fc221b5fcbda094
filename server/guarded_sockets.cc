#include "server/guarded_sockets.h"

#include <array>
#include <atomic>

namespace kvkeep {
namespace {

constexpr int kMost = 1 << 20;  // descriptors: as many as a process usually may have

// By descriptor. Zeros before anything runs, as it has no constructor: close(2) is called early.
std::array<DescriptorCloser::Owner, kMost> guarded;

using Guard = std::atomic_ref<DescriptorCloser::Owner>;

bool InTable(int fd) { return fd >= 0 && fd < kMost; }
Guard At(int fd) { return Guard(guarded[static_cast<size_t>(fd)]); }

}  // namespace

void GuardSocket(int fd, DescriptorCloser::Owner owner) {
  if (InTable(fd)) At(fd).store(owner);
}

DescriptorCloser::Owner GuardOf(int fd) {
  return InTable(fd) ? At(fd).load(std::memory_order_relaxed) : 0;
}

bool Unguard(int fd) { return GuardOf(fd) != 0 && At(fd).exchange(0) != 0; }

}  // namespace kvkeep
