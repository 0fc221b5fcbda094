#include "tests/fakes/manager_socket.h"

#include <absl/strings/str_split.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstring>

#include "tiers/base/check.h"

namespace kvkeep {

ManagerSocket::ManagerSocket() : path_(dir_.path() + "/notify") {
  fd_ = UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  KVKEEP_CHECK(path_.size() < sizeof(address.sun_path));
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  KVKEEP_CHECK(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
}

std::optional<ManagerSocket::Message> ManagerSocket::Next(std::chrono::milliseconds patience) {
  pollfd polled{fd_.get(), POLLIN, 0};
  if (poll(&polled, 1, static_cast<int>(patience.count())) != 1) return std::nullopt;
  std::array<char, 4096> text;
  const ssize_t length = recv(fd_.get(), text.data(), text.size(), 0);
  KVKEEP_CHECK(length >= 0);
  Message message;
  const std::string lines(text.data(), static_cast<size_t>(length));
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits('=', 1));
    message.insert(field);
  }
  return message;
}

}  // namespace kvkeep
