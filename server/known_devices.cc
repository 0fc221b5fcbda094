#include "server/known_devices.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

absl::Status Failed(const std::string& path, const char* what, int error) {
  return absl::UnavailableError(absl::StrCat(path, ": cannot ", what, ": ", std::strerror(error),
                                             "; make the state directory writable"));
}

absl::Status Flush(const std::string& path, int flags) {
  const UniqueFd fd(open(path.c_str(), flags | O_CLOEXEC));
  return fd.valid() && fsync(fd.get()) == 0 ? absl::OkStatus() : Failed(path, "flush", errno);
}

}  // namespace

absl::StatusOr<KnownDevices> KnownDevices::Load(const std::string& path) {
  KnownDevices known(path);
  if (access(path.c_str(), F_OK) != 0 && errno == ENOENT) return known;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) known.dirs_.insert(line);
  }
  if (!file.eof()) return Failed(path, "read", EIO);
  return known;
}

absl::Status KnownDevices::Add(const std::string& dir) {
  if (!dirs_.insert(dir).second) return absl::OkStatus();
  const std::string next = path_ + ".new";
  {
    std::ofstream file(next, std::ios::trunc);
    for (const std::string& known : dirs_) file << known << '\n';
    file.close();
    if (!file.good()) return Failed(next, "write", errno);
  }
  if (absl::Status status = Flush(next, O_WRONLY); !status.ok()) return status;
  if (rename(next.c_str(), path_.c_str()) != 0) return Failed(path_, "replace", errno);
  return Flush(std::filesystem::path(path_).parent_path(), O_RDONLY | O_DIRECTORY);
}

}  // namespace kvkeep
