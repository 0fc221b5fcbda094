#include "tiers/objects/shared_directory.h"

#include <absl/functional/function_ref.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/strip.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr const char* kNotMarked = "NotMarked";
constexpr const char* kOthersMark = "MarkOfAnother";
constexpr uint64_t kMostNewFiles = 1'000'000;  // looked at: a bound, no expectation

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};

absl::Status ToStatusOfErrno(int error, absl::string_view what) {
  return absl::ErrnoToStatus(error, what);
}

// Chooses the modes of files and folders below by the directory's mode.
void ChooseModes(mode_t root, SharedDirectory& directory) {
  mode_t mode = root & (S_ISGID | S_IRWXG | S_IRWXO);
  if ((mode & S_IWOTH) == 0) mode &= ~static_cast<mode_t>(S_IRWXO);
  directory.folder_mode = S_IRWXU | mode;
  directory.file_mode = directory.folder_mode & (S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH |
                                                 S_IWOTH);
}

void ReadMark(absl::string_view wanted, SharedDirectory& directory) {
  const auto fail = [&](ObjectOutcome outcome, ObjectError error) {
    directory.outcome = outcome;
    directory.error = std::move(error);
  };
  const UniqueFd file(openat(directory.root.get(), SharedDirectory::kMarkFile,
                             O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid() && errno == ENOENT) {
    return fail(ObjectOutcome::kBroken,
                {kNotMarked, "it has no file .kvkeep: nothing is mounted there, or it was not made "
                             "a fleet's", ""});
  }
  std::array<char, SharedDirectory::kMaxMarkBytes + 1> text{};
  const ssize_t bytes = file.valid() ? read(file.get(), text.data(), text.size()) : -1;
  if (bytes < 0) {
    const int error = errno;
    return fail(OutcomeOfErrno(error), ErrorOfErrno(error, "reading its file .kvkeep"));
  }
  directory.mark = std::string(absl::StripSuffix(
      absl::string_view(text.data(), static_cast<size_t>(bytes)), "\n"));
  if (wanted.empty() || directory.mark == wanted) return;
  fail(ObjectOutcome::kMisconfigured,
       {kOthersMark, absl::StrCat("its file .kvkeep does not say '", wanted, "'"), ""});
}

// Calls `call` for each file below `.new/`, with its name and state.
absl::Status ForEachNewFile(const SharedDirectory& directory,
                            absl::FunctionRef<void(int, const char*, const struct stat&)> call) {
  const int fd = openat(directory.root.get(), SharedDirectory::kNewFolder,
                        O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ENOENT) return absl::OkStatus();
  if (fd < 0) return ToStatusOfErrno(errno, "opening the folder of new files");
  const std::unique_ptr<DIR, CloseDir> folder(fdopendir(fd));
  KVKEEP_CHECK(folder != nullptr);
  for (uint64_t i = 0; i < kMostNewFiles; ++i) {
    const dirent* const entry = readdir(folder.get());
    if (entry == nullptr) break;
    struct stat is {};
    const bool there = fstatat(fd, entry->d_name, &is, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && S_ISREG(is.st_mode)) call(fd, entry->d_name, is);
  }
  return absl::OkStatus();
}

}  // namespace

ObjectOutcome OutcomeOfErrno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return ObjectOutcome::kAbsent;
    case EEXIST: return ObjectOutcome::kExists;
    case ENOSPC:
    case EDQUOT: return ObjectOutcome::kFull;
    case EACCES:
    case EPERM:
    case EROFS: return ObjectOutcome::kMisconfigured;
    case ENAMETOOLONG:
    case EISDIR:
    case ELOOP: return ObjectOutcome::kRefused;
    default: return ObjectOutcome::kBroken;
  }
}

ObjectError ErrorOfErrno(int error, absl::string_view what) {
  return {strerrorname_np(error) == nullptr ? "" : strerrorname_np(error),
          absl::StrCat(what, ": ", strerrordesc_np(error)), ""};
}

std::string AdviceForDirectory(absl::string_view code, absl::string_view path) {
  if (code == kNotMarked) {
    return absl::StrCat("mount it; a new directory is made the fleet's once, by `kvkeep g4 init "
                        "--directory ", path, " --fleet NAME`");
  }
  if (code == kOthersMark) {
    return "mend g4.url or fleet.name: each fleet has a directory of its own";
  }
  if (code == "EACCES" || code == "EPERM") {
    return absl::StrCat("run all daemons as one uid, or as members of the group that ", path,
                        " has, with mode 2770 on it and group access to what is there; `kvkeep g4 "
                        "check --directory ", path, "` looks");
  }
  if (code == "EROFS") return "mount it so that it can be written";
  if (code == "ENOSPC" || code == "EDQUOT") return "make room where the directory lies";
  return absl::StrCat("mount ", path, ", or see what its server has");
}

SharedDirectory OpenSharedDirectory(const std::string& path, absl::string_view mark) {
  SharedDirectory directory;
  directory.root = UniqueFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat is {};
  if (!directory.root.valid() || fstat(directory.root.get(), &is) != 0) {
    const int error = errno;
    directory.error = ErrorOfErrno(error, "opening it");
    directory.outcome = OutcomeOfErrno(error);
    // The directory is away, which is not the same as an absent object.
    if (directory.outcome != ObjectOutcome::kMisconfigured) {
      directory.outcome = ObjectOutcome::kBroken;
    }
    return directory;
  }
  ChooseModes(is.st_mode, directory);
  ReadMark(mark, directory);
  return directory;
}

absl::Status MarkSharedDirectory(const std::string& path, absl::string_view mark) {
  if (mark.empty() || mark.size() >= SharedDirectory::kMaxMarkBytes ||
      absl::StrContains(mark, '\n')) {
    return absl::InvalidArgumentError(absl::StrCat("the mark must be one line of 1 to ",
                                                   SharedDirectory::kMaxMarkBytes - 1, " bytes"));
  }
  SharedDirectory directory = OpenSharedDirectory(path, mark);
  if (directory.outcome == ObjectOutcome::kOk) return absl::OkStatus();
  if (directory.error.code == kOthersMark) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is of the fleet '", directory.mark, "'"));
  }
  if (directory.error.code != kNotMarked) {
    return absl::UnavailableError(absl::StrCat(path, ": ", directory.error.message));
  }
  const UniqueFd file(openat(directory.root.get(), SharedDirectory::kMarkFile,
                             O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, directory.file_mode));
  const std::string line = absl::StrCat(mark, "\n");
  if (!file.valid()) return ToStatusOfErrno(errno, absl::StrCat(path, ": making its mark"));
  static_cast<void>(fchmod(file.get(), directory.file_mode));  // not every file system has modes
  const ssize_t wrote = write(file.get(), line.data(), line.size());
  if (wrote != static_cast<ssize_t>(line.size()) || fsync(file.get()) != 0) {
    const int error = errno;
    static_cast<void>(unlinkat(directory.root.get(), SharedDirectory::kMarkFile, 0));
    return ToStatusOfErrno(error, absl::StrCat(path, ": writing its mark"));
  }
  return absl::OkStatus();
}

int MakeFolder(const SharedDirectory& directory, const std::string& name) {
  if (mkdirat(directory.root.get(), name.c_str(), directory.folder_mode) != 0) return errno;
  // The umask had a say. A file system without modes may refuse, and needs none.
  const int moded = fchmodat(directory.root.get(), name.c_str(), directory.folder_mode, 0);
  return moded == 0 || errno != ENOENT ? 0 : ENOENT;
}

std::string OwnerOf(const SharedDirectory& directory, std::string name) {
  struct stat is {};
  while (fstatat(directory.root.get(), name.c_str(), &is, AT_SYMLINK_NOFOLLOW) != 0) {
    const size_t slash = name.rfind('/');
    if (name == ".") return "it cannot be looked at";
    name = slash == std::string::npos ? "." : name.substr(0, slash);
  }
  return absl::StrFormat("%s was made by uid %d with mode %04o, and this is uid %d", name,
                         is.st_uid, is.st_mode & 07777, geteuid());
}

std::string NameOfNewFile(absl::string_view writer, uint64_t run, uint64_t random) {
  return absl::StrFormat("%s/%s.%016x.%016x", SharedDirectory::kNewFolder, writer, run, random);
}

Leftovers RemoveOwnLeftovers(const SharedDirectory& directory, absl::string_view writer,
                             uint64_t run) {
  Leftovers removed;
  if (writer.empty()) return removed;
  const std::string own = absl::StrCat(writer, ".");
  const std::string present = absl::StrFormat("%s.%016x.", writer, run);
  static_cast<void>(ForEachNewFile(
      directory, [&](int folder, const char* name, const struct stat& is) {
        if (!absl::StartsWith(name, own) || absl::StartsWith(name, present)) return;
        if (unlinkat(folder, name, 0) != 0) return;
        ++removed.files;
        removed.bytes += static_cast<uint64_t>(is.st_size);
      }));
  return removed;
}

absl::StatusOr<Leftovers> RemoveOldLeftovers(const SharedDirectory& directory,
                                             std::chrono::seconds older_than, bool dry_run) {
  KVKEEP_CHECK(older_than.count() > 0);
  const std::string clock = absl::StrFormat("%s/clock.%d", SharedDirectory::kNewFolder, getpid());
  static_cast<void>(MakeFolder(directory, SharedDirectory::kNewFolder));
  const UniqueFd file(openat(directory.root.get(), clock.c_str(),
                             O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, directory.file_mode));
  struct stat now {};
  const bool told = file.valid() && write(file.get(), "x", 1) == 1 && fsync(file.get()) == 0 &&
                    fstat(file.get(), &now) == 0;
  const int error = errno;
  if (file.valid()) static_cast<void>(unlinkat(directory.root.get(), clock.c_str(), 0));
  if (!told) return ToStatusOfErrno(error, "making a file that tells the time");
  Leftovers removed;
  absl::Status failed;
  absl::Status status = ForEachNewFile(
      directory, [&](int folder, const char* name, const struct stat& is) {
        if (is.st_mtim.tv_sec >= now.st_mtim.tv_sec - older_than.count()) return;
        if (!dry_run && unlinkat(folder, name, 0) != 0 && errno != ENOENT) {
          failed.Update(ToStatusOfErrno(errno, absl::StrCat("removing .new/", name)));
          return;
        }
        ++removed.files;
        removed.bytes += static_cast<uint64_t>(is.st_size);
      });
  status.Update(failed);
  if (!status.ok()) return status;
  return removed;
}

}  // namespace kvkeep
