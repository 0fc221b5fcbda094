// Sizes a socket's send buffer for payloads. With the kernel's usual 208 KiB each side waits for
// the other some twenty times within a chunk; bytes in the buffer are still in the caches.
#pragma once

namespace kvkeep {

// The size to ask of the kernel, which reserves twice as much for its own accounts and allows at
// most net.core.wmem_max. Kernel memory, taken only while the peer does not read: it counts for the
// process that sends.
inline constexpr int kSendBufferBytes = 1 << 20;

// Widens the buffer of a socket for payloads as far as the kernel allows; a smaller buffer is only
// slower.
void WidenSendBuffer(int socket);

}  // namespace kvkeep
