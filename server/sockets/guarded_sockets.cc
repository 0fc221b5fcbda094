#include "server/sockets/guarded_sockets.h"

#include <array>
#include <atomic>

namespace kvkeep {
namespace {

constexpr int kMost = 1 << 20;  // descriptors: as many as a process usually may have

struct Slot {
  uint64_t id;
  DescriptorCloser::Owner owner;
  int epoll;  // its epoll plus one; 0: none
};

// By descriptor. It has no constructor, so it is zero before any code runs: close(2) is called
// early.
std::array<Slot, kMost> slots;
std::atomic<uint64_t> last_id{0};

Slot* At(int fd) { return fd >= 0 && fd < kMost ? &slots[static_cast<size_t>(fd)] : nullptr; }
template <typename T>
std::atomic_ref<T> Atomic(T& value) {
  return std::atomic_ref<T>(value);
}

}  // namespace

GuardId GuardOf(int fd) {
  Slot* const slot = At(fd);
  return slot == nullptr ? GuardId::kNone : GuardId{Atomic(slot->id).load()};
}

DescriptorCloser::Owner OwnerOfGuarded(int fd) {
  return GuardOf(fd) == GuardId::kNone ? 0 : Atomic(At(fd)->owner).load(std::memory_order_relaxed);
}

void AddGuard(int fd, DescriptorCloser::Owner owner) {
  Slot* const slot = At(fd);
  if (slot == nullptr) return;
  Atomic(slot->epoll).store(0);
  Atomic(slot->owner).store(owner);
  Atomic(slot->id).store(last_id.fetch_add(1) + 1);
}

std::optional<Guard> TakeGuard(int fd) {
  if (GuardOf(fd) == GuardId::kNone || Atomic(At(fd)->id).exchange(0) == 0) return std::nullopt;
  Guard guard{.owner = Atomic(At(fd)->owner).load()};
  const int epoll = Atomic(At(fd)->epoll).exchange(0);
  if (epoll != 0) guard.epoll = epoll - 1;
  return guard;
}

bool EnterEpoll(int fd, int epoll) {
  if (GuardOf(fd) == GuardId::kNone) return true;
  int none = 0;
  return Atomic(At(fd)->epoll).compare_exchange_strong(none, epoll + 1) || none == epoll + 1;
}

void LeaveEpoll(int fd, int epoll) {
  if (GuardOf(fd) == GuardId::kNone) return;
  int entered = epoll + 1;
  Atomic(At(fd)->epoll).compare_exchange_strong(entered, 0);
}

}  // namespace kvkeep
