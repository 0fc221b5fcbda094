#include "server/sockets/listening_socket.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

absl::Status WentAway(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, ": went away while it was made"));
}

}  // namespace

bool SocketFile::InPlace() const {
  const std::optional<FileIdentity> found = FileAt(path_);
  MutexLock lock(&mu_);
  return found == identity_;
}

bool SocketFile::Take() {
  const std::optional<FileIdentity> found = FileAt(path_);
  if (!found.has_value()) return false;
  MutexLock lock(&mu_);
  identity_ = *found;
  return true;
}

ListeningSocket::ListeningSocket(UnixSocketOptions options, int type, UniqueFd fd,
                                 std::shared_ptr<SocketFile> file)
    : options_(std::move(options)), type_(type), fd_(std::move(fd)), file_(std::move(file)) {}

absl::StatusOr<ListeningSocket> ListeningSocket::Open(UnixSocketOptions options, int type) {
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd fd, ListenOnUnixSocket(options, type));
  auto file = std::make_shared<SocketFile>(options.path);
  if (!file->Take()) return WentAway(options.path);
  return ListeningSocket(std::move(options), type, std::move(fd), std::move(file));
}

ListeningSocket::~ListeningSocket() {
  if (file_ != nullptr && file_->InPlace()) unlink(options_.path.c_str());
}

absl::Status ListeningSocket::Renew() {
  if (file_->InPlace()) return absl::OkStatus();  // otherwise it would find its own socket in use
  KVKEEP_ASSIGN_OR_RETURN(const UniqueFd fd, ListenOnUnixSocket(options_, type_));
  if (dup3(fd.get(), fd_.get(), O_CLOEXEC) < 0) {
    return absl::UnavailableError(
        absl::StrCat(options_.path, ": cannot take its descriptor: ", std::strerror(errno)));
  }
  return file_->Take() ? absl::OkStatus() : WentAway(options_.path);
}

}  // namespace kvkeep
