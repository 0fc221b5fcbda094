#include "server/sockets/receive_bytes.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace kvkeep {
namespace {

// Room for SCM_MAX_FD descriptors, and for other control messages.
constexpr size_t kControlBytes = CMSG_SPACE(253 * sizeof(int)) + 256;

void CloseAllIn(msghdr* message, DescriptorCloser::Owner owner) {
  for (cmsghdr* head = CMSG_FIRSTHDR(message); head != nullptr; head = CMSG_NXTHDR(message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
      DescriptorCloser::OfProcess().Close(UniqueFd(fd), owner);
    }
  }
}

}  // namespace

ssize_t ReceiveBytes(int socket, msghdr* message, int flags, DescriptorCloser::Owner owner) {
  if (DescriptorCloser::OfProcess().Full(owner)) {
    errno = ECONNRESET;
    return -1;
  }
  alignas(cmsghdr) std::array<char, kControlBytes> control;
  msghdr own = *message;
  own.msg_control = control.data();
  own.msg_controllen = control.size();
  // The system call itself: recvmsg may be ours, which calls this (guarded_calls.cc).
  const ssize_t received = syscall(SYS_recvmsg, socket, &own, flags | MSG_CMSG_CLOEXEC);
  if (received < 0) return received;
  CloseAllIn(&own, owner);
  message->msg_namelen = own.msg_namelen;
  message->msg_controllen = 0;
  message->msg_flags = own.msg_flags;
  return received;
}

ssize_t ReceiveBytes(int socket, std::span<char> buffer, int flags, DescriptorCloser::Owner owner) {
  iovec run{.iov_base = buffer.data(), .iov_len = buffer.size()};
  msghdr message{};
  message.msg_iov = &run;
  message.msg_iovlen = 1;
  return ReceiveBytes(socket, &message, flags, owner);
}

}  // namespace kvkeep
