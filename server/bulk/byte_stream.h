// ByteStream: the bytes of one connection, read and written without waiting: a socket, or TLS over
// one (tls_stream.h).
//
// One thread at a time. The owner has an event loop watch fd() for the events that Read and Write
// need next.
#pragma once

#include <absl/types/span.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/sockets/descriptor_closer.h"

namespace kvkeep {

// The certificate that the other end showed; empty: none.
struct ShownCertificate {
  std::string certificate, between;               // PEM; those between it and its CA
  std::vector<std::string> dns_names, uri_names;  // of the certificate, 64 of each at most
};

class ByteStream {
 public:
  enum class Outcome : uint8_t {
    kMoved,   // some bytes, at least one
    kWait,    // none now: wait for the events
    kClosed,  // the other end sends no more
    kBroken,  // the connection is of no use
  };
  struct Moved {
    Outcome outcome = Outcome::kBroken;
    size_t bytes = 0;
  };

  virtual ~ByteStream() = default;
  // Read into, and write from, these runs, in order, as many bytes as go now.
  virtual Moved Read(absl::Span<const iovec> runs) = 0;
  virtual Moved Write(absl::Span<const iovec> runs) = 0;
  // Ends our direction: the other end reads what was written, then the end.
  virtual void EndWriting() = 0;

  virtual int fd() const = 0;
  // The events that the last Read or Write which said kWait waits for.
  virtual uint32_t read_needs() const { return EPOLLIN; }
  virtual uint32_t write_needs() const { return EPOLLOUT; }
  // Once a byte was read.
  virtual const ShownCertificate& shown() const;
};

// A socket. `passed`: the owner of descriptors that come by it, which are closed.
std::unique_ptr<ByteStream> MakeSocketStream(ExpendableFd socket, DescriptorCloser::Owner passed);

}  // namespace kvkeep
