// An open directory that the machines of a fleet share: its mark, the modes of its files, and the
// files that are being written there.
//
// The mark is a file `.kvkeep` that holds one line, for a daemon its fleet's name. Where it is
// absent nothing is read or written: the directory may be the mount point of a file system that is
// not mounted, and writes would fill another disk. No daemon makes one, so a person says once where
// a fleet's objects lie (`kvkeep g4 init`).
//
// Files and folders made below the directory take its modes, whatever the umask: its group may do
// what the directory lets it, and others nothing unless they may write there. Set-group-ID is
// passed on, the sticky bit is not, as any daemon deletes files of the others.
//
// Files that are being written lie below `.new/`, as WRITER.RUN.RANDOM. A writer removes those of
// its earlier runs when it starts, and a sweep those that nobody has touched for a day.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "tiers/base/unique_fd.h"
#include "tiers/objects/object_outcome.h"

namespace kvkeep {

struct SharedDirectory {
  static constexpr const char* kMarkFile = ".kvkeep";
  static constexpr const char* kNewFolder = ".new";
  static constexpr size_t kMaxMarkBytes = 256;

  UniqueFd root;
  mode_t folder_mode = 0, file_mode = 0;
  std::string mark;  // as it was found
  // kOk: the directory is open. Otherwise these two say why it could not be opened.
  ObjectOutcome outcome = ObjectOutcome::kOk;
  ObjectError error;
};

ObjectOutcome OutcomeOfErrno(int error);
// "EACCES", and what it means for `what`.
ObjectError ErrorOfErrno(int error, absl::string_view what);
// Returns what people have to do about an error of this directory; empty: not known.
std::string AdviceForDirectory(absl::string_view code, absl::string_view path);

// Blocks as long as the file system does. `mark`: what must be there; empty: any.
SharedDirectory OpenSharedDirectory(const std::string& path, absl::string_view mark);

// Makes a directory the fleet's. OK, too, if it is already. AlreadyExists: it has another mark.
absl::Status MarkSharedDirectory(const std::string& path, absl::string_view mark);

// Makes a folder there, with the directory's mode. Returns 0 or an errno: EEXIST if it is there.
int MakeFolder(const SharedDirectory& directory, const std::string& name);

// Tells people why access was denied: "made by uid 65001 with mode 0700, and this is uid 65002", of
// `name` or of the nearest folder around it that can be looked at.
std::string OwnerOf(const SharedDirectory& directory, std::string name);

// ---- files that are being written ---------------------------------------------------------------

struct Leftovers {
  uint64_t files = 0, bytes = 0;
};

std::string NameOfNewFile(absl::string_view writer, uint64_t run, uint64_t random);
// Removes the files of `writer`, but for its present run's; an empty writer has none. Returns what
// it removed. Files that cannot be removed stay: the daemon serves all the same.
Leftovers RemoveOwnLeftovers(const SharedDirectory& directory, absl::string_view writer,
                             uint64_t run);
// Removes the leftovers of all writers whose last change is older than that. The age counts from
// the time of a file that is made now, by the file system's clock. `dry_run` only counts them.
absl::StatusOr<Leftovers> RemoveOldLeftovers(const SharedDirectory& directory,
                                             std::chrono::seconds older_than, bool dry_run);

}  // namespace kvkeep
