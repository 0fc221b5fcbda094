#include "tiers/objects/directory_check.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <utility>

#include "tiers/objects/shared_directory.h"

namespace kvkeep {
namespace {

using Verdict = BucketFinding::Verdict;

constexpr size_t kMostLookedAt = 5'000;  // files and folders
constexpr size_t kMostUsers = 16;        // their files and folders are tried

// Files and folders that lie there already: one for each user and mode.
struct Samples {
  using ByOwner = std::map<std::pair<uid_t, mode_t>, std::string>;
  ByOwner folders, files;
};

// Skips a folder that cannot be listed, but keeps it as a sample.
Samples LookAround(const SharedDirectory& directory, const std::string& path) {
  namespace fs = std::filesystem;
  Samples samples;
  std::error_code error;
  fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied, error);
  size_t looked_at = 0;
  for (const fs::recursive_directory_iterator end;
       !error && at != end && looked_at < kMostLookedAt; at.increment(error), ++looked_at) {
    const std::string name = at->path().lexically_relative(path).string();
    struct stat is {};
    if (fstatat(directory.root.get(), name.c_str(), &is, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const bool hidden = at->path().filename().string().front() == '.';
    if (hidden) at.disable_recursion_pending();
    const bool folder = S_ISDIR(is.st_mode);
    if ((!folder && !S_ISREG(is.st_mode)) || (hidden && name != SharedDirectory::kNewFolder)) {
      continue;
    }
    Samples::ByOwner& into = folder ? samples.folders : samples.files;
    if (into.size() < kMostUsers) into.try_emplace({is.st_uid, is.st_mode & 07777}, name);
  }
  return samples;
}

// Makes a file in this folder and removes it. Returns what failed; empty: nothing.
std::string WriteIn(const SharedDirectory& directory, const std::string& folder) {
  const std::string name = absl::StrFormat("%s/.check-%d", folder, getpid());
  const UniqueFd file(openat(directory.root.get(), name.c_str(),
                             O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                             directory.file_mode));
  if (!file.valid()) {
    const int error = errno;
    return absl::StrCat(ErrorOfErrno(error, "making a file").message, ": ",
                        OwnerOf(directory, folder));
  }
  const bool wrote = write(file.get(), "x", 1) == 1 && fsync(file.get()) == 0;
  const int error = errno;
  const bool gone = unlinkat(directory.root.get(), name.c_str(), 0) == 0;
  if (!wrote) return ErrorOfErrno(error, "writing a file").message;
  return gone ? "" : ErrorOfErrno(errno, "removing a file").message;
}

std::string ReadFrom(const SharedDirectory& directory, const std::string& name) {
  const UniqueFd file(
      openat(directory.root.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  char byte = 0;
  if (!file.valid() && errno == ENOENT) return "";  // gone meanwhile
  if (file.valid() && pread(file.get(), &byte, 1, 0) >= 0) return "";
  const int error = errno;
  return absl::StrCat(ErrorOfErrno(error, "reading a file").message, ": ",
                      OwnerOf(directory, name));
}

BucketFinding Tried(std::string what, const std::string& wrong, absl::string_view good,
                    const std::string& path) {
  if (wrong.empty()) return {std::move(what), std::string(good)};
  return {std::move(what), wrong, Verdict::kBad, AdviceForDirectory("EACCES", path)};
}

}  // namespace

std::vector<BucketFinding> CheckDirectory(const std::string& path, absl::string_view mark) {
  const SharedDirectory directory = OpenSharedDirectory(path, mark);
  if (directory.outcome != ObjectOutcome::kOk) {
    return {{"the directory and its mark", directory.error.message, Verdict::kBad,
             AdviceForDirectory(directory.error.code, path)}};
  }
  std::vector<BucketFinding> findings{
      {"the directory and its mark", absl::StrCat("of the fleet '", directory.mark, "'")}};
  if ((directory.file_mode & S_IWOTH) != 0) {
    findings.push_back({"its mode", "others may write there", Verdict::kNote,
                        "any user of a machine that has it may delete images, and write what is "
                        "found bad; mode 2770 with a group keeps them out"});
  }
  const int made = MakeFolder(directory, SharedDirectory::kNewFolder);
  std::string wrong;
  if (made != 0 && made != EEXIST) wrong = ErrorOfErrno(made, "making a folder").message;
  if (wrong.empty()) wrong = WriteIn(directory, SharedDirectory::kNewFolder);
  findings.push_back(Tried("writing there", wrong, "a file was made and removed", path));

  const Samples samples = LookAround(directory, path);
  wrong.clear();
  for (const auto& [owner, name] : samples.folders) {
    if (wrong.empty() && name != SharedDirectory::kNewFolder) wrong = WriteIn(directory, name);
  }
  findings.push_back(Tried("writing beside what is there", wrong,
                           absl::StrCat("tried in ", samples.folders.size(), " folders"), path));
  wrong.clear();
  for (const auto& [owner, name] : samples.files) {
    if (wrong.empty()) wrong = ReadFrom(directory, name);
  }
  findings.push_back(Tried("reading what is there", wrong,
                           absl::StrCat("tried with ", samples.files.size(), " files"), path));
  return findings;
}

}  // namespace kvkeep
