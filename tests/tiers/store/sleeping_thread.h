// Sleeps(): returns whether a thread of this process sleeps, as one does that waits for a lock.
#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

namespace kvkeep {

inline bool Sleeps(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(stat, text);
  const size_t name_ends = text.rfind(')');
  return name_ends != std::string::npos && text.size() > name_ends + 2 &&
         text[name_ends + 2] == 'S';
}

}  // namespace kvkeep
