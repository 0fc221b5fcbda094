// The open descriptors of a process, from /proc: their number, and their names for people.
#pragma once

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <filesystem>
#include <map>
#include <string>

namespace kvkeep::e2e {

struct Descriptors {
  size_t count = 0;
  std::string names;  // lines such as "2 socket:"
};

// Counts open descriptors: sockets, memory, processes and the like. Leaves out files below
// `except`, as an index may have any number of them open.
inline Descriptors DescriptorsOf(uint64_t pid, const std::string& except) {
  std::map<std::string, int> names;
  Descriptors all;
  for (const auto& fd : std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"))) {
    std::error_code error;  // it may be closed meanwhile
    const std::string name = std::filesystem::read_symlink(fd.path(), error).string();
    if (error || absl::StartsWith(name, except)) continue;
    ++all.count;
    ++names[name.substr(0, name.find('['))];
  }
  for (const auto& [name, count] : names) absl::StrAppend(&all.names, count, " ", name, "\n");
  return all;
}

}  // namespace kvkeep::e2e
