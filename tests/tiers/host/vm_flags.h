// VmFlags: the kernel's flags of one of this process's mappings.
#pragma once

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace kvkeep {

// Returns the line of the mapping that starts at `address`; empty: there is none.
inline std::string VmFlags(const void* address) {
  const std::string start = absl::StrCat(absl::Hex(reinterpret_cast<uint64_t>(address)), "-");
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (absl::StartsWith(line, start)) inside = true;
    if (inside && absl::StartsWith(line, "VmFlags:")) return line + " ";
  }
  return "";
}

}  // namespace kvkeep
