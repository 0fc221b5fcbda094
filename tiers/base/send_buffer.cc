#include "tiers/base/send_buffer.h"

#include <sys/socket.h>

namespace kvkeep {

void WidenSendBuffer(int socket) {
  const int bytes = kSendBufferBytes;
  (void)setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

}  // namespace kvkeep
