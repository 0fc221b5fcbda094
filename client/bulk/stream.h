// BulkStream: a connection to the daemon's bulk door, as bytes: a Unix socket or TCP, with TLS
// where the client's security says so. Internal.
//
// Calls block until their deadline. One thread at a time, but Break may come from any.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "client/internal/openssl_owned.h"
#include "client/values/security.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::client {

class BulkStream {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Connects, and makes the TLS handshake. UNAVAILABLE: nobody listens there, or the other end is
  // not the daemon; INVALID_ARGUMENT: a file of `security` cannot be used. `authorization` becomes
  // what a Hello has to say.
  static absl::StatusOr<std::unique_ptr<BulkStream>> Connect(const std::string& endpoint,
                                                             const SecurityOptions& security,
                                                             Time deadline);
  ~BulkStream();
  BulkStream(const BulkStream&) = delete;
  BulkStream& operator=(const BulkStream&) = delete;

  const std::string& authorization() const { return authorization_; }
  // Returns whether nothing has come and the other end is there, so that a call may begin.
  bool idle() const { return !readable(); }

  // Reads exactly these bytes. UNAVAILABLE: the connection ended; DEADLINE_EXCEEDED.
  absl::Status Read(std::span<std::byte> to, Time deadline);
  // Reads at least one byte and at most these.
  absl::StatusOr<size_t> ReadSome(std::span<std::byte> to, Time deadline);
  // Returns whether a read would return at once.
  bool readable() const;
  // Writes some bytes, at least one. Zero: none could be written, but some can be read.
  absl::StatusOr<size_t> WriteSome(std::span<const std::byte> bytes, Time deadline);

  // Ends calls under way and to come with UNAVAILABLE.
  void Break();

 private:
  explicit BulkStream(UniqueFd fd) : fd_(std::move(fd)) {}
  absl::Status StartTls(const SecurityMaterial& material, const std::string& host, Time deadline);
  absl::Status Await(short events, Time deadline) const;
  // Each returns the bytes moved; 0: not now, and `*events` is what to wait for.
  absl::StatusOr<size_t> ReadNow(std::span<std::byte> to, short* events);
  absl::StatusOr<size_t> WriteNow(std::span<const std::byte> bytes, short* events);
  absl::StatusOr<size_t> TlsMoved(int done, size_t moved, short* events);

  const UniqueFd fd_;
  std::string authorization_;
  Owned<SSL_CTX> context_;
  Owned<SSL> ssl_;  // null: plain
  // Read ahead: heads and messages come with one call.
  std::array<std::byte, 1024> ahead_;
  size_t ahead_begin_ = 0, ahead_end_ = 0;
};

}  // namespace kvkeep::client
