#include "server/local/put_line.h"

#include <algorithm>

namespace kvkeep {

bool PutLine::MayGo(uint32_t tenant, const Waiter* waiter) const {
  const auto line = lines_.find(tenant);
  return line == lines_.end() || line->second.front() == waiter;
}

void PutLine::Join(uint32_t tenant, Waiter* waiter) {
  std::deque<Waiter*>& line = lines_[tenant];
  if (std::find(line.begin(), line.end(), waiter) == line.end()) line.push_back(waiter);
}

void PutLine::Leave(uint32_t tenant, const Waiter* waiter) {
  const auto line = lines_.find(tenant);
  if (line == lines_.end()) return;
  std::erase(line->second, waiter);
  if (line->second.empty()) lines_.erase(line);
}

void PutLine::Advance(uint32_t tenant) {
  // Each turn removes a waiter from the line, or is the last one.
  for (auto line = lines_.find(tenant); line != lines_.end(); line = lines_.find(tenant)) {
    Waiter* const first = line->second.front();
    if (!first->TryAgain()) {
      Leave(tenant, first);
    } else if (const auto now = lines_.find(tenant);
               now == lines_.end() || now->second.front() == first) {
      return;
    }
  }
}

}  // namespace kvkeep
