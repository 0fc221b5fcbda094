// Guarded sockets: connections that a library (gRPC) reads from and closes. kvkeepd learns when
// they are closed, and keeps the library's threads from waiting for what peers pass.
//
// A kernel before Linux 6.16 takes whatever the peers of a Unix socket pass. Receiving a descriptor
// without asking for it closes it, and so does closing a socket with one unread: either may wait
// for as long as the peer likes (descriptor_closer.h), on a thread that others need. So
// descriptors that come by such a socket, and the socket, are closed on the closer's threads. The
// socket leaves its epoll first: a thread that asks the kernel for events holds each socket for a
// moment, and would close it if it were the last to let go. Nobody else may make a system call with
// its number.
//
// kvkeepd's own recvmsg(2), close(2) and epoll_ctl(2) do that (server/grpc/guarded_calls.cc); they
// stand before the C library's. Descriptors that a peer passed are charged to its user; when too
// many of a user's wait to be closed, that user's sockets are no longer read. Thread-safe; no lock.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "server/sockets/descriptor_closer.h"

namespace kvkeep {

// Returns the owner of the descriptors that this user passes by connections of this listening
// socket.
constexpr DescriptorCloser::Owner PassedByGuarded(size_t listening, uid_t user) {
  return (uint64_t{5} << 48) + (uint64_t{listening} << 32) + user;
}
// Returns the owner of these connections themselves. Closing one waits for no file of a peer's,
// only for lingering sockets in its queue, and such a wait ends
// (DescriptorCloser::Options::patience). The acceptor takes no more connections of a user with too
// many that wait: the library has closed them, so nothing else counts them.
constexpr DescriptorCloser::Owner ConnectionsOf(DescriptorCloser::Owner passed_by_guarded) {
  return passed_by_guarded - (uint64_t{1} << 48);
}
// The owner of a socket by which no descriptor comes: the guard only learns when it is closed.
inline constexpr DescriptorCloser::Owner kNothingPassed = uint64_t{6} << 48;

// Identifies one guarded socket; never used again.
enum class GuardId : uint64_t { kNone = 0 };

// Guards `fd` until it is closed. Descriptors that come by it belong to `owner`. It may be in one
// epoll at a time. Numbers of 2^20 and up are not guarded.
void GuardSocket(int fd, DescriptorCloser::Owner owner);
// Returns kNone if no socket with this number is guarded. Makes no system call.
GuardId GuardOf(int fd);

// For guarded_calls.cc.
struct Guard {
  DescriptorCloser::Owner owner = 0;
  std::optional<int> epoll;
};
// Returns 0 if `fd` is not guarded.
DescriptorCloser::Owner OwnerOfGuarded(int fd);
// Returns false if `fd` is in another epoll.
bool EnterEpoll(int fd, int epoll);
void LeaveEpoll(int fd, int epoll);
void AddGuard(int fd, DescriptorCloser::Owner owner);
// Ends the guard and returns it; none if there was none.
std::optional<Guard> TakeGuard(int fd);

}  // namespace kvkeep
