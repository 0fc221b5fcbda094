// Lines between a test and its exporter, a packet each, with a descriptor if there is one.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstring>
#include <string>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

// `descriptor`: -1 for none. The caller keeps it.
inline bool SendLine(int socket, std::string line, int descriptor) {
  iovec bytes = {.iov_base = line.data(), .iov_len = line.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
}

// Returns empty if the other end is closed.
inline std::string ReceiveLine(int socket, UniqueFd* descriptor) {
  std::array<char, 512> line;
  iovec bytes = {.iov_base = line.data(), .iov_len = line.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) return "";
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int came = -1;
    std::memcpy(&came, CMSG_DATA(header), sizeof(came));
    *descriptor = UniqueFd(came);
  }
  return std::string(line.data(), static_cast<size_t>(got));
}

}  // namespace kvkeep
