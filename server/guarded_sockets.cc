#include "server/guarded_sockets.h"

#include <array>
#include <atomic>

namespace kvkeep {
namespace {

constexpr int kMost = 1 << 20;  // descriptors: as many as a process usually may have

// By descriptor. Zeros before anything runs: close(2) is called early.
constinit std::array<std::atomic<DescriptorCloser::Owner>, kMost> guarded{};

std::atomic<DescriptorCloser::Owner>* At(int fd) {
  return fd >= 0 && fd < kMost ? &guarded[static_cast<size_t>(fd)] : nullptr;
}

}  // namespace

void GuardSocket(int fd, DescriptorCloser::Owner owner) {
  if (auto* const at = At(fd)) at->store(owner);
}

DescriptorCloser::Owner GuardOf(int fd) {
  const auto* const at = At(fd);
  return at == nullptr ? 0 : at->load(std::memory_order_relaxed);
}

bool Unguard(int fd) { return GuardOf(fd) != 0 && At(fd)->exchange(0) != 0; }

}  // namespace kvkeep
