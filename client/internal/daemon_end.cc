#include "client/internal/daemon_end.h"

#include <poll.h>

#include <algorithm>

namespace kvkeep::client {

bool DaemonEnd::Left() const {
  if (mark_.InChild()) return true;
  pollfd state{.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
  return poll(&state, 1, 0) == 1 && (state.revents & POLLRDHUP) != 0;
}

void DaemonEnds::Add(std::shared_ptr<const DaemonEnd> connection, Time until) {
  const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.connection == connection;
  });
  if (known == entries_.end()) {
    entries_.push_back({.connection = std::move(connection), .until = until});
  } else {
    known->until = std::max(known->until, until);
  }
}

bool DaemonEnds::empty() {
  const Time now = std::chrono::steady_clock::now();
  std::erase_if(entries_, [now](const Entry& entry) {
    return now >= entry.until || entry.connection->Left();
  });
  return entries_.empty();
}

}  // namespace kvkeep::client
