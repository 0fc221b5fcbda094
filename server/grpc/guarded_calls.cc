// recvmsg(2), close(2) and epoll_ctl(2) of kvkeepd, and of the libraries that it links: the linker
// finds them before the C library's. For guarded sockets (guarded_sockets.h) DescriptorCloser
// closes the descriptors that come with a message, and the socket. Bytes of gRPC's connections pass
// Http2Gate (http2_gate.h). All else is the system call.
//
// gpr_malloc_aligned() and gpr_free_aligned() replace libgpr's in the same way. In gRPC 1.51.1 only
// the arenas of calls use them, so they count the memory of all calls.
#include <grpc/support/alloc.h>
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <span>

#include "server/grpc/gated_tls.h"
#include "server/sockets/guarded_sockets.h"
#include "server/sockets/http2_gate.h"
#include "server/sockets/receive_bytes.h"

namespace kvkeep {
namespace {

constexpr size_t kMostRuns = 64;  // of memory, that one read fills

ssize_t Receive(int fd, msghdr* message, int flags) {
  const DescriptorCloser::Owner owner = OwnerOfGuarded(fd);
  if (owner == 0 || owner == kNothingPassed) return syscall(SYS_recvmsg, fd, message, flags);
  // Unix sockets have no error queue. If asked for it, as gRPC does, the kernel returns the next
  // bytes instead, here none of them, and the descriptors that came with them, which gRPC would
  // keep.
  if ((flags & MSG_ERRQUEUE) != 0) {
    errno = EAGAIN;
    return -1;
  }
  return ReceiveBytes(fd, message, flags, owner);
}

// Returns false if the connection is cut off for what was received.
bool PassRuns(Http2Connection* connection, std::span<const iovec> runs, size_t bytes) {
  for (const iovec& run : runs) {
    const auto* const begin = static_cast<const std::byte*>(run.iov_base);
    const size_t filled = std::min(bytes, run.iov_len);
    if (!Http2Gate::OfProcess().Pass(connection, {begin, filled})) return false;
    bytes -= filled;
    if (bytes == 0) break;
  }
  return true;
}

ssize_t ReceiveAtGate(Http2Connection* connection, msghdr* message, int flags) {
  const size_t most = Http2Gate::OfProcess().BeginRead(connection);
  if (most == 0) return -1;
  std::array<iovec, kMostRuns> runs;
  size_t count = 0;
  for (size_t room = most; room > 0 && count < std::min(message->msg_iovlen, kMostRuns); ++count) {
    runs[count] = message->msg_iov[count];
    runs[count].iov_len = std::min(runs[count].iov_len, room);
    room -= runs[count].iov_len;
  }
  msghdr less = *message;
  less.msg_iov = runs.data();
  less.msg_iovlen = count;
  const ssize_t received = Receive(connection->fd(), &less, flags);
  if (received < 0) return received;
  message->msg_namelen = less.msg_namelen;
  message->msg_controllen = less.msg_controllen;
  message->msg_flags = less.msg_flags;
  if (connection->wire() == Http2Connection::Wire::kTls) {
    NoteEncrypted(connection->fd(), static_cast<size_t>(received));
    return received;
  }
  if (!PassRuns(connection, std::span(runs).first(count), static_cast<size_t>(received))) {
    errno = ECONNRESET;
    return -1;
  }
  return received;
}

int64_t AllocatedBytes(void* memory) { return static_cast<int64_t>(malloc_usable_size(memory)); }

}  // namespace
}  // namespace kvkeep

extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message,
                                                                  int flags) {
  kvkeep::Http2Connection* const connection = kvkeep::Http2Gate::Find(fd);
  if (connection == nullptr || (flags & MSG_ERRQUEUE) != 0) {
    return kvkeep::Receive(fd, message, flags);
  }
  return kvkeep::ReceiveAtGate(connection, message, flags);
}

extern "C" __attribute__((visibility("default"))) void* gpr_malloc_aligned(size_t size,
                                                                           size_t alignment) {
  void* const memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) abort();  // as gpr_malloc does
  kvkeep::Http2Gate::OfProcess().CountCallBytes(kvkeep::AllocatedBytes(memory));
  return memory;
}

extern "C" __attribute__((visibility("default"))) void gpr_free_aligned(void* memory) {
  kvkeep::Http2Gate::OfProcess().CountCallBytes(-kvkeep::AllocatedBytes(memory));
  free(memory);
}

extern "C" __attribute__((visibility("default"))) int epoll_ctl(
    int epoll, int operation, int fd, epoll_event* event) noexcept {
  if (operation == EPOLL_CTL_ADD && !kvkeep::EnterEpoll(fd, epoll)) {
    errno = EEXIST;
    return -1;
  }
  if (operation == EPOLL_CTL_ADD && kvkeep::Http2Gate::Find(fd) != nullptr) {
    kvkeep::Http2Gate::OfProcess().EnteredEpoll(fd, epoll, *event);
  }
  if (operation == EPOLL_CTL_DEL) kvkeep::LeaveEpoll(fd, epoll);
  return static_cast<int>(syscall(SYS_epoll_ctl, epoll, operation, fd, event));
}

extern "C" __attribute__((visibility("default"))) int close(int fd) {
  kvkeep::Http2Gate::Closing(fd);
  const std::optional<kvkeep::Guard> guard = kvkeep::TakeGuard(fd);
  if (!guard.has_value() || guard->owner == kvkeep::kNothingPassed) {
    return static_cast<int>(syscall(SYS_close, fd));
  }
  if (guard->epoll.has_value()) syscall(SYS_epoll_ctl, *guard->epoll, EPOLL_CTL_DEL, fd, nullptr);
  kvkeep::DescriptorCloser::OfProcess().Close(kvkeep::UniqueFd(fd),
                                              kvkeep::ConnectionsOf(guard->owner));
  return 0;
}

namespace kvkeep {

// Defined here, so that a program that guards sockets links these calls.
void GuardSocket(int fd, DescriptorCloser::Owner owner) { AddGuard(fd, owner); }

}  // namespace kvkeep
