// Guarded sockets: Unix sockets that a library (gRPC) reads from and closes, on a kernel that takes
// whatever their peers pass (Linux before 6.16). To receive a descriptor without asking for it is
// to close it, and so is to close a socket with one unread: either may wait for as long as the peer
// likes (descriptor_closer.h), on a thread that others need.
//
// kvkeepd's own recvmsg(2) and close(2), in guarded_calls.cc, which stand before the C library's,
// do that for these sockets on the closer's threads. Thread-safe; no lock.
#pragma once

#include "server/descriptor_closer.h"

namespace kvkeep {

inline constexpr DescriptorCloser::Owner kGuardedOwner = uint64_t{4} << 48;

// From now on until it is closed.
void GuardSocket(int fd);
bool IsGuarded(int fd);
// Whether it was.
bool Unguard(int fd);

}  // namespace kvkeep
