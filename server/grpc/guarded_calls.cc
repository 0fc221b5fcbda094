// recvmsg(2), close(2) and epoll_ctl(2) of kvkeepd, and of the libraries that it links: they are
// found before the C library's. For guarded sockets (guarded_sockets.h) what comes with a message,
// and the socket, are closed by DescriptorCloser; all else is the system call.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "server/sockets/guarded_sockets.h"
#include "server/sockets/receive_bytes.h"

extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message,
                                                                  int flags) {
  const kvkeep::DescriptorCloser::Owner owner = kvkeep::OwnerOfGuarded(fd);
  if (owner == 0 || owner == kvkeep::kNothingPassed) {
    return syscall(SYS_recvmsg, fd, message, flags);
  }
  // Unix sockets have no error queue. Asked for one, the kernel gives the next bytes instead, here
  // none of them, and the descriptors that came with them: gRPC does ask, and would keep those.
  if ((flags & MSG_ERRQUEUE) != 0) {
    errno = EAGAIN;
    return -1;
  }
  return kvkeep::ReceiveBytes(fd, message, flags, owner);
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
  kvkeep::DescriptorCloser::OfProcess().Close(kvkeep::UniqueFd(fd),
                                              kvkeep::ConnectionsOf(guard->owner));
  return 0;
}

namespace kvkeep {

// Here, so that whoever guards a socket has these calls.
void GuardSocket(int fd, DescriptorCloser::Owner owner) { AddGuard(fd, owner); }

}  // namespace kvkeep
