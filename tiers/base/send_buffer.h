// How much of a payload a socket takes at once. With the kernel's usual 208 KiB each side waits for
// the other some twenty times within a chunk; what is in the buffer is in the caches still.
#pragma once

namespace kvkeep {

// Asked of the kernel, which keeps twice as much for its own accounts and allows at most
// net.core.wmem_max. Kernel memory, taken only while the peer does not read: it counts for the
// process that sends.
inline constexpr int kSendBufferBytes = 1 << 20;

// For sockets that payloads go through. Does what the kernel allows; a smaller buffer is slower and
// nothing else.
void WidenSendBuffer(int socket);

}  // namespace kvkeep
