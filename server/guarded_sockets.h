// Guarded sockets: Unix sockets that a library (gRPC) reads from and closes, on a kernel that takes
// whatever their peers pass (Linux before 6.16). To receive a descriptor without asking for it is
// to close it, and so is to close a socket with one unread: either may wait for as long as the peer
// likes (descriptor_closer.h), on a thread that others need.
//
// kvkeepd's own recvmsg(2) and close(2), in guarded_calls.cc, which stand before the C library's,
// do that for these sockets on the closer's threads. What a peer passed is its user's to wait for;
// of a user of whose nothing more should be taken the sockets are read no more. Thread-safe; no
// lock.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "server/descriptor_closer.h"

namespace kvkeep {

// Of the sockets themselves. To close one waits for no file of a peer's, only for sockets in its
// queue that linger, and that ends (DescriptorCloser::Options::patience).
inline constexpr DescriptorCloser::Owner kGuardedSockets = uint64_t{4} << 48;
// Of what this user passes by connections of this listening socket.
constexpr DescriptorCloser::Owner PassedByGuarded(size_t listening, uid_t user) {
  return (uint64_t{5} << 48) + (uint64_t{listening} << 32) + user;
}

// From now on until it is closed. What comes by it is this owner's.
void GuardSocket(int fd, DescriptorCloser::Owner owner);
// 0: it is not guarded.
DescriptorCloser::Owner GuardOf(int fd);
// Whether it was.
bool Unguard(int fd);

}  // namespace kvkeep
