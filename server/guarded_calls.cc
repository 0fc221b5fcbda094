// recvmsg(2), close(2) and epoll_ctl(2) of kvkeepd, and of the libraries that it links: they are
// found before the C library's. For guarded sockets (guarded_sockets.h) what comes with a message,
// and the socket, are closed by DescriptorCloser; all else is the system call.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "server/guarded_sockets.h"

namespace {

// SCM_MAX_FD, and room for what else may come.
constexpr size_t kControlBytes = CMSG_SPACE(253 * sizeof(int)) + 256;

void CloseAllIn(msghdr* message, kvkeep::DescriptorCloser::Owner owner) {
  for (cmsghdr* head = CMSG_FIRSTHDR(message); head != nullptr; head = CMSG_NXTHDR(message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
      kvkeep::DescriptorCloser::OfProcess().Close(kvkeep::UniqueFd(fd), owner);
    }
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message,
                                                                  int flags) {
  const kvkeep::DescriptorCloser::Owner owner = kvkeep::OwnerOfGuarded(fd);
  if (owner == 0 || owner == kvkeep::kNothingPassed) return syscall(SYS_recvmsg, fd, message, flags);
  // Unix sockets have no error queue. Asked for one, the kernel gives the next bytes instead, here
  // none of them, and the descriptors that came with them: gRPC does ask, and would keep those.
  if ((flags & MSG_ERRQUEUE) != 0) {
    errno = EAGAIN;
    return -1;
  }
  if (kvkeep::DescriptorCloser::OfProcess().Full(owner)) {
    errno = ECONNRESET;
    return -1;
  }
  alignas(cmsghdr) std::array<char, kControlBytes> control;
  msghdr own = *message;
  own.msg_control = control.data();
  own.msg_controllen = control.size();
  const ssize_t received = syscall(SYS_recvmsg, fd, &own, flags | MSG_CMSG_CLOEXEC);
  if (received < 0) return received;
  CloseAllIn(&own, owner);
  message->msg_namelen = own.msg_namelen;
  message->msg_controllen = 0;  // nobody here asks what came with the bytes
  message->msg_flags = own.msg_flags;
  return received;
}

extern "C" __attribute__((visibility("default"))) int epoll_ctl(
    int epoll, int operation, int fd, epoll_event* event) noexcept {
  if (operation == EPOLL_CTL_ADD && !kvkeep::EnterEpoll(fd, epoll)) {
    errno = EEXIST;
    return -1;
  }
  if (operation == EPOLL_CTL_DEL) kvkeep::LeaveEpoll(fd, epoll);
  return static_cast<int>(syscall(SYS_epoll_ctl, epoll, operation, fd, event));
}

extern "C" __attribute__((visibility("default"))) int close(int fd) {
  const std::optional<kvkeep::Guard> guard = kvkeep::TakeGuard(fd);
  if (!guard.has_value() || guard->owner == kvkeep::kNothingPassed) {
    return static_cast<int>(syscall(SYS_close, fd));
  }
  if (guard->epoll.has_value()) syscall(SYS_epoll_ctl, *guard->epoll, EPOLL_CTL_DEL, fd, nullptr);
  kvkeep::DescriptorCloser::OfProcess().Close(kvkeep::UniqueFd(fd), kvkeep::kGuardedSockets);
  return 0;
}

namespace kvkeep {

// Here, so that whoever guards a socket has these calls.
void GuardSocket(int fd, DescriptorCloser::Owner owner) { AddGuard(fd, owner); }

}  // namespace kvkeep
