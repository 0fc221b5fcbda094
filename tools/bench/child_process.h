// ChildProcess: a forked copy of this process that answers commands, one JSON value each.
//
// The benchmark's main process never touches gRPC or the client library, so it may fork whenever
// it wants; what talks to a daemon lives in children. A child ends with its object, and with the
// main process however that ends. A failed command is a Status on both sides. One thread.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <memory>
#include <string>

#include "tiers/base/unique_fd.h"
#include "tools/bench/measured.h"

namespace kvkeep::bench {

// For an answer that takes no time to speak of.
inline constexpr std::chrono::milliseconds kChildPatience{60'000};

class ChildProcess {
 public:
  using Handler = absl::AnyInvocable<absl::StatusOr<Json>(const Json& command)>;
  // `make` runs in the child; what it returns answers each command.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Fork(std::string name,
                                                            absl::AnyInvocable<Handler() &&> make);
  ~ChildProcess();  // SIGKILL, and waits
  ChildProcess(const ChildProcess&) = delete;

  // Send now, take the answer later: so several children work at once.
  absl::Status Send(const Json& command);
  // Unavailable: the child died. DeadlineExceeded.
  absl::StatusOr<Json> Receive(std::chrono::milliseconds timeout);
  absl::StatusOr<Json> Call(const Json& command, std::chrono::milliseconds timeout);

 private:
  ChildProcess(std::string name, UniqueFd socket, int pid)
      : name_(std::move(name)), socket_(std::move(socket)), pid_(pid) {}

  const std::string name_;  // for messages
  UniqueFd socket_;
  const int pid_;
};

}  // namespace kvkeep::bench
