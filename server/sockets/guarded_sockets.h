// Guarded sockets: connections that a library (gRPC) reads from and closes. kvkeepd learns when
// they are closed, and keeps the library's threads from waiting for what peers pass.
//
// A kernel before Linux 6.16 takes whatever the peers of a Unix socket pass. To receive a
// descriptor without asking for it is to close it, and so is to close a socket with one unread:
// either may wait for as long as the peer likes (descriptor_closer.h), on a thread that others
// need. So what comes by such a socket, and the socket, are closed on the closer's threads. The
// socket leaves its epoll first: a thread that asks the kernel for events holds each socket for a
// moment, and would close it if it were the last to let go. Nobody else may make a system call with
// its number.
//
// kvkeepd's own recvmsg(2), close(2) and epoll_ctl(2) do that (server/grpc/guarded_calls.cc); they
// stand before the C library's. What a peer passed is its user's to wait for; of a user of whose
// nothing more should be taken the sockets are read no more. Thread-safe; no lock.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "server/sockets/descriptor_closer.h"

namespace kvkeep {

// Of what this user passes by connections of this listening socket.
constexpr DescriptorCloser::Owner PassedByGuarded(size_t listening, uid_t user) {
  return (uint64_t{5} << 48) + (uint64_t{listening} << 32) + user;
}
// Of those connections. To close one waits for no file of a peer's, only for sockets in its queue
// that linger, and that ends (DescriptorCloser::Options::patience). Who takes connections takes no
// more of a user of whom too many wait: the library has closed them, so nothing else counts them.
constexpr DescriptorCloser::Owner ConnectionsOf(DescriptorCloser::Owner passed_by_guarded) {
  return passed_by_guarded - (uint64_t{1} << 48);
}
// Of a socket by which no descriptor comes: that it is closed is all that is learnt of it.
inline constexpr DescriptorCloser::Owner kNothingPassed = uint64_t{6} << 48;

// One guarded socket of all that there ever were.
enum class GuardId : uint64_t { kNone = 0 };

// From now on until it is closed. What comes by it is this owner's. It may be in one epoll at a
// time. Numbers of 2^20 and up are not guarded.
void GuardSocket(int fd, DescriptorCloser::Owner owner);
// kNone: no socket with this number is guarded. Asks nothing of the kernel.
GuardId GuardOf(int fd);

// For guarded_calls.cc.
struct Guard {
  DescriptorCloser::Owner owner = 0;
  std::optional<int> epoll;
};
// 0: it is not guarded.
DescriptorCloser::Owner OwnerOfGuarded(int fd);
// False: it is in another.
bool EnterEpoll(int fd, int epoll);
void LeaveEpoll(int fd, int epoll);
void AddGuard(int fd, DescriptorCloser::Owner owner);
// The guard that there was.
std::optional<Guard> TakeGuard(int fd);

}  // namespace kvkeep
