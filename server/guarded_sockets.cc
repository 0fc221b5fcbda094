#include "server/guarded_sockets.h"

#include <array>
#include <atomic>

namespace kvkeep {
namespace {

constexpr int kMost = 1 << 20;  // descriptors: as many as a process usually may have
constexpr int kBits = 64;

// Zeros before anything runs: close(2) is called early.
constinit std::array<std::atomic<uint64_t>, kMost / kBits> guarded{};

uint64_t Bit(int fd) { return uint64_t{1} << (fd % kBits); }
bool InTable(int fd) { return fd >= 0 && fd < kMost; }

}  // namespace

void GuardSocket(int fd) {
  if (InTable(fd)) guarded[static_cast<size_t>(fd / kBits)].fetch_or(Bit(fd));
}

bool IsGuarded(int fd) {
  return InTable(fd) && (guarded[static_cast<size_t>(fd / kBits)].load(std::memory_order_relaxed) &
                         Bit(fd)) != 0;
}

bool Unguard(int fd) {
  if (!IsGuarded(fd)) return false;
  return (guarded[static_cast<size_t>(fd / kBits)].fetch_and(~Bit(fd)) & Bit(fd)) != 0;
}

}  // namespace kvkeep
