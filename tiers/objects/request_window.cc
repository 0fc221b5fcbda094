#include "tiers/objects/request_window.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {

RequestWindow::RequestWindow(const WindowOptions& options, RandomSource* random)
    : options_(options), random_(*random), size_(std::min(options.first, options.most)),
      write_size_(most_writes()) {
  KVKEEP_CHECK(options.first >= 1 && options.most >= 1);
  KVKEEP_CHECK(options.first_hold.count() > 0 && options.longest_hold >= options.first_hold);
  KVKEEP_CHECK(options.no_writes_after_throttle.count() >= 0);
}

std::optional<RequestWindow::Ticket> RequestWindow::TryStart(Kind kind, MonotonicTime now) {
  if (now < held_until_ || reads_ >= size_ || in_flight() >= options_.most) return std::nullopt;
  if (kind == Kind::kWrite) {
    const bool small = size_ < std::min(options_.least_for_writes, options_.most);
    if (in_flight() >= size_ || writes_ >= write_size_ || (small && reads_ > 0) ||
        (throttled_at_.has_value() && now < *throttled_at_ + options_.no_writes_after_throttle)) {
      return std::nullopt;
    }
  }
  ++(kind == Kind::kWrite ? writes_ : reads_);
  Ticket ticket;
  ticket.epoch_ = epoch_;
  ticket.kind_ = kind;
  return ticket;
}

void RequestWindow::Served(Ticket ticket) {
  // A window that is not in use proves nothing of a larger one.
  const bool in_use = 2 * in_flight() >= size_;
  if (ticket.kind_ == Kind::kWrite && 2 * writes_ >= write_size_ &&
      ++served_writes_ >= write_size_) {
    served_writes_ = 0;
    write_size_ = std::min(write_size_ + 1, most_writes());
  }
  Leave(ticket);
  if (ticket.epoch_ != epoch_ || !in_use) return;
  if (++served_ < size_ && epoch_ > 0) return;
  served_ = 0;
  hold_ = std::chrono::nanoseconds(0);
  shrank_ = false;
  size_ = std::min(size_ + 1, options_.most);
}

void RequestWindow::Throttled(Ticket ticket, MonotonicTime now,
                              std::optional<std::chrono::seconds> retry_after) {
  Leave(ticket);
  throttled_at_ = now;
  if (ticket.epoch_ != epoch_) return;
  ++epoch_;
  served_ = 0;
  size_ = std::max<uint32_t>(1, size_ * 7 / 10);
  KVKEEP_CHECK(size_ <= options_.most);
  std::chrono::nanoseconds held{0};
  if (std::exchange(shrank_, true)) {
    hold_ = std::clamp<std::chrono::nanoseconds>(2 * hold_, options_.first_hold,
                                                 options_.longest_hold);
    const auto quarter = static_cast<uint64_t>(hold_.count()) / 4;
    held = hold_ - std::chrono::nanoseconds(random_.NextU64() % (quarter + 1));
  }
  if (retry_after.has_value()) {
    held = std::max<std::chrono::nanoseconds>(
        held, std::min<std::chrono::milliseconds>(*retry_after, options_.longest_hold));
  }
  held_until_ = std::max(held_until_, now + held);
}

void RequestWindow::Slow(Ticket ticket, MonotonicTime now) {
  Leave(ticket);
  const bool write = ticket.kind_ == Kind::kWrite;
  std::optional<MonotonicTime>& halved_at = write ? writes_halved_at_ : halved_at_;
  if (halved_at.has_value() && now < *halved_at + options_.between_halvings) return;
  halved_at = now;
  if (!write) ++epoch_;
  (write ? served_writes_ : served_) = 0;
  uint32_t& size = write ? write_size_ : size_;
  size = std::max<uint32_t>(1, size / 2);
}

uint32_t RequestWindow::most_writes() const { return std::max<uint32_t>(1, options_.most / 4); }

void RequestWindow::Ended(Ticket ticket) { Leave(ticket); }

void RequestWindow::Leave(Ticket ticket) {
  KVKEEP_CHECK(ticket.epoch_ <= epoch_);
  uint32_t& counted = ticket.kind_ == Kind::kWrite ? writes_ : reads_;
  KVKEEP_CHECK(counted > 0);
  --counted;
}

}  // namespace kvkeep
