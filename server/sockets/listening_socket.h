// ListeningSocket: a Unix socket that listens, and the file by which clients reach it.
//
// The file may go while the socket listens: a cleaner or an operator removes it, and another daemon
// may make its own at the same path. So the path is this socket's only while it leads to the very
// file that was made for it, and no other file is ever removed.
//
// A ListeningSocket is for the thread that accepts. Its SocketFile is thread-safe.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "server/sockets/unix_socket.h"
#include "tiers/base/file_identity.h"
#include "tiers/base/mutex.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class SocketFile {
 public:
  explicit SocketFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // Returns whether the path leads to the socket.
  bool InPlace() const;

 private:
  friend class ListeningSocket;
  // Notes the file that is at the path now as the socket's. Returns false if there is none.
  bool Take();

  const std::string path_;
  mutable Mutex mu_;
  FileIdentity identity_ ABSL_GUARDED_BY(mu_);
};

class ListeningSocket {
 public:
  // Errors as ListenOnUnixSocket.
  static absl::StatusOr<ListeningSocket> Open(UnixSocketOptions options, int type);
  // Removes the file, if it is in place.
  ~ListeningSocket();
  ListeningSocket(ListeningSocket&&) = default;
  ListeningSocket& operator=(ListeningSocket&&) = delete;

  // The same number for as long as this lives.
  int fd() const { return fd_.get(); }
  const UnixSocketOptions& options() const { return options_; }
  const std::shared_ptr<SocketFile>& file() const { return file_; }

  // Listens at the path anew, by the same descriptor, which epoll forgets. Connections that wait to
  // be accepted are cut off. On an error all is as before; errors as ListenOnUnixSocket.
  absl::Status Renew();

 private:
  ListeningSocket(UnixSocketOptions options, int type, UniqueFd fd,
                  std::shared_ptr<SocketFile> file);

  UnixSocketOptions options_;
  int type_;
  UniqueFd fd_;
  std::shared_ptr<SocketFile> file_;  // null: moved from
};

}  // namespace kvkeep
