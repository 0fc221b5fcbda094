// kvkeep-compare as a function: arguments to exit code, for main and for tests.
//
// Exit codes: 0 done, 1 failed, or wrong bytes came from anybody, or what was read beside fio did
// not come from NVMe; 2 wrong usage. A figure below its target changes nothing.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace kvkeep::compare {

// Tables go to `out`, progress and errors to `err`.
int RunCompare(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace kvkeep::compare
