// ReceiveBytes: recvmsg(2) for a caller that wants bytes only. The kernel would close descriptors
// that are not asked for on the thread that receives, and a peer chooses how long that takes
// (descriptor_closer.h).
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <span>

#include "server/sockets/descriptor_closer.h"

namespace kvkeep {

// Calls recvmsg(2) without room for anything beside the bytes: descriptors that come are closed for
// this owner. ECONNRESET: the owner is Full, nothing was received.
ssize_t ReceiveBytes(int socket, msghdr* message, int flags, DescriptorCloser::Owner owner);
// Like recv(2).
ssize_t ReceiveBytes(int socket, std::span<char> buffer, int flags, DescriptorCloser::Owner owner);

}  // namespace kvkeep
