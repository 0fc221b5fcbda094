#include "tiers/base/own_directory.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace kvkeep {

absl::Status CheckOwnDirectory(int directory, absl::string_view path) {
  struct stat info;
  if (fstat(directory, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": stat"));
  if (info.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": belongs to user ", info.st_uid,
                                                      ", this is user ", geteuid(),
                                                      "; chown it, or name another directory"));
  }
  if ((info.st_mode & 022) != 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: others may write to it (mode %04o); see what is in it, then chmod 700 "
                        "it, or name another directory",
                        path, info.st_mode & 07777));
  }
  return absl::OkStatus();
}

absl::Status KeepOthersOut(int directory, absl::string_view path) {
  struct stat info;
  if (fstat(directory, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": stat"));
  if ((info.st_mode & 077) == 0 || fchmod(directory, 0700) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(
      errno, absl::StrCat(path, ": others may look into it, and it cannot be given mode 0700"));
}

}  // namespace kvkeep
