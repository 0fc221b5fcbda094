#include "server/bulk/byte_stream.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "server/sockets/receive_bytes.h"

namespace kvkeep {
namespace {

class SocketStream final : public ByteStream {
 public:
  SocketStream(ExpendableFd socket, DescriptorCloser::Owner passed)
      : socket_(std::move(socket)), passed_(passed) {}

  Moved Read(absl::Span<const iovec> runs) override {
    msghdr message = MessageOf(runs);
    return Ended(ReceiveBytes(socket_.get(), &message, 0, passed_), Outcome::kClosed);
  }
  Moved Write(absl::Span<const iovec> runs) override {
    const msghdr message = MessageOf(runs);
    return Ended(sendmsg(socket_.get(), &message, MSG_NOSIGNAL), Outcome::kBroken);
  }
  void EndWriting() override { (void)shutdown(socket_.get(), SHUT_WR); }
  int fd() const override { return socket_.get(); }

 private:
  static msghdr MessageOf(absl::Span<const iovec> runs) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(runs.data());  // its type has no const form
    message.msg_iovlen = runs.size();
    return message;
  }
  static Moved Ended(ssize_t moved, Outcome if_none) {
    if (moved > 0) return {Outcome::kMoved, static_cast<size_t>(moved)};
    if (moved == 0) return {if_none, 0};
    const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    return {later ? Outcome::kWait : Outcome::kBroken, 0};
  }

  const ExpendableFd socket_;
  const DescriptorCloser::Owner passed_;
};

}  // namespace

const ShownCertificate& ByteStream::shown() const {
  static const ShownCertificate* const kNone = new ShownCertificate();
  return *kNone;
}

std::unique_ptr<ByteStream> MakeSocketStream(ExpendableFd socket, DescriptorCloser::Owner passed) {
  return std::make_unique<SocketStream>(std::move(socket), passed);
}

}  // namespace kvkeep
