#include "client/internal/daemon_end.h"

#include <poll.h>

namespace kvkeep::client {

bool DaemonEnd::Left() const {
  if (mark_.InChild()) return true;
  pollfd state{.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
  return poll(&state, 1, 0) == 1 && (state.revents & POLLRDHUP) != 0;
}

}  // namespace kvkeep::client
