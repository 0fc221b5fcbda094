#include "tools/bench/child_process.h"

#include <absl/strings/str_cat.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"

namespace kvkeep::bench {
namespace {

constexpr uint64_t kMaxMessageBytes = 64 * kMiB;

// A length and then the text. False: the other end is gone.
bool WriteAll(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReadAll(int fd, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = recv(fd, at, bytes, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    at += received;
    bytes -= static_cast<size_t>(received);
  }
  return true;
}

bool WriteMessage(int fd, const Json& message) {
  // A status' message may hold anything: bad UTF-8 must not end the child.
  const std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  const uint64_t bytes = text.size();
  return bytes <= kMaxMessageBytes && WriteAll(fd, &bytes, sizeof(bytes)) &&
         WriteAll(fd, text.data(), bytes);
}

bool ReadMessage(int fd, Json* message) {
  uint64_t bytes = 0;
  if (!ReadAll(fd, &bytes, sizeof(bytes)) || bytes > kMaxMessageBytes) return false;
  std::string text(bytes, '\0');
  if (!ReadAll(fd, text.data(), bytes)) return false;
  *message = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return !message->is_discarded();
}

Json Wrap(const absl::StatusOr<Json>& answer) {
  if (answer.ok()) return {{"value", *answer}};
  return {{"code", answer.status().raw_code()},
          {"message", std::string(answer.status().message())}};
}

absl::StatusOr<Json> Unwrap(const std::string& name, const Json& wrapped) {
  if (wrapped.contains("value")) return wrapped["value"];
  return absl::Status(static_cast<absl::StatusCode>(wrapped.value("code", 2)),
                      absl::StrCat(name, ": ", wrapped.value("message", std::string())));
}

[[noreturn]] void Serve(int fd, ChildProcess::Handler handle) {
  Json command;
  while (ReadMessage(fd, &command)) {
    if (!WriteMessage(fd, Wrap(handle(command)))) break;
  }
  _exit(0);  // no destructors: nothing here may hold up the end
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Fork(
    std::string name, absl::AnyInvocable<Handler() &&> make) {
  int ends[2];  // ours and the child's
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(name, ": socketpair"));
  }
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const pid_t starter = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, absl::StrCat(name, ": fork"));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != starter) _exit(1);  // it ended before the line above
    close(ours.get());
    Serve(theirs.get(), std::move(make)());
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(std::move(name), std::move(ours), pid));
}

ChildProcess::~ChildProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::Status ChildProcess::Send(const Json& command) {
  if (WriteMessage(socket_.get(), command)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(name_, " died"));
}

absl::StatusOr<Json> ChildProcess::Receive(std::chrono::milliseconds timeout) {
  pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  const int polled = poll(&ready, 1, static_cast<int>(timeout.count()));
  if (polled == 0) return absl::DeadlineExceededError(absl::StrCat(name_, " does not answer"));
  Json answer;
  if (polled < 0 || !ReadMessage(socket_.get(), &answer)) {
    return absl::UnavailableError(absl::StrCat(name_, " died"));
  }
  return Unwrap(name_, answer);
}

absl::StatusOr<Json> ChildProcess::Call(const Json& command, std::chrono::milliseconds timeout) {
  KVKEEP_RETURN_IF_ERROR(Send(command));
  return Receive(timeout);
}

}  // namespace kvkeep::bench
