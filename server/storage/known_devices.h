// KnownDevices: the directories in which this store has had a device. If one of them is suddenly
// absent or empty, its device counts as lost; no new device is made there.
//
// Kept in a text file in the state directory, one path a line. An operator who replaces a drive
// removes its line. Used by one thread; the state directory's lock keeps other daemons out.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <set>
#include <string>

namespace kvkeep {

inline constexpr size_t kMaxKnownDevicesBytes = 1 << 20;  // of the file

// The file's text and back. Empty lines do not count.
std::set<std::string> ParseKnownDevices(absl::string_view text);
std::string PrintKnownDevices(const std::set<std::string>& dirs);

class KnownDevices {
 public:
  // No file: none is known. A symbolic link is refused.
  static absl::StatusOr<KnownDevices> Load(const std::string& path);

  bool Contains(const std::string& dir) const { return dirs_.contains(dir); }
  const std::set<std::string>& dirs() const { return dirs_; }
  // The file (mode 0600) is replaced as a whole, durably, before this returns.
  absl::Status Add(const std::string& dir);

 private:
  explicit KnownDevices(const std::string& path) : path_(path) {}

  std::string path_;
  std::set<std::string> dirs_;
};

}  // namespace kvkeep
