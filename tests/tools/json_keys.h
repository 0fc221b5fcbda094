// The keys of a verb's --json output, for tests of what scripts rely on.
#pragma once

#include <set>
#include <string>

#include "tests/tools/cli_run.h"
#include "tests/tools/keys_of_json.h"

namespace kvkeep::tools {

inline std::set<std::string> KeysOf(const CliResult& result) {
  INFO(result.err);
  REQUIRE((result.code == kOk || result.code == kFailed));
  return KeysOfJson(result.json());
}

}  // namespace kvkeep::tools
