#include "server/observe/stderr_sink.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace kvkeep {

StderrSink::StderrSink(int fd) : fd_(fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return;  // it is closed: every write fails
  if (S_ISREG(info.st_mode)) kind_ = Kind::kFile;
  if (S_ISSOCK(info.st_mode)) kind_ = Kind::kSocket;
  if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) return;
  // O_NONBLOCK on stderr itself would affect every process that shares it, such as a shell.
  own_ = UniqueFd(open(absl::StrCat("/proc/self/fd/", fd).c_str(),
                       O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (own_.valid()) kind_ = Kind::kNonBlocking;  // fails for another user's, which su(1) leaves
}

void StderrSink::log(const spdlog::details::log_msg& message) {
  if (TryLine(absl::string_view(message.payload.data(), message.payload.size()))) return;
  dropped_.fetch_add(1, std::memory_order_relaxed);
}

bool StderrSink::TryLine(absl::string_view line) {
  const std::string text = absl::StrCat(line, "\n");
  MutexLock lock(&mu_);
  if (!rest_.empty()) rest_.erase(0, Write(rest_));
  const size_t written = rest_.empty() ? Write(text) : 0;
  if (written == 0) return false;
  rest_ = text.substr(written);
  return true;
}

size_t StderrSink::Write(absl::string_view text) const {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = WriteOnce(text.substr(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

ssize_t StderrSink::WriteOnce(absl::string_view text) const {
  switch (kind_) {
    case Kind::kFile:
      return write(fd_, text.data(), text.size());
    case Kind::kSocket:
      return send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    case Kind::kNonBlocking:
      return write(own_.get(), text.data(), text.size());
    case Kind::kAsked:
      break;
  }
  // A pipe that polls as writable takes PIPE_BUF bytes at once.
  pollfd writable{.fd = fd_, .events = POLLOUT, .revents = 0};
  if (poll(&writable, 1, 0) != 1 || (writable.revents & POLLOUT) == 0) return 0;
  return write(fd_, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
}

}  // namespace kvkeep
