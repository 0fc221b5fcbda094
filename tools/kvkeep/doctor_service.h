// The doctor's word on kvkeepd.service: what its unit and drop-ins say, and whether its memory
// limit is enough for a config. Reads files; asks no systemd.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {

// The value of KEY= that counts for kvkeepd.service: of the first unit of that name, then of every
// drop-in, by file name. `root` stands before the paths. Nothing: none of them says it.
std::optional<std::string> ServiceSetting(const std::string& root, absl::string_view key);

// The most memory of a daemon with this config, in bytes: G2 with its marks, staging memory, gRPC's
// messages, the chunks' tables, and the rest. deploy/README.md has it as a rule ("Size").
uint64_t MemoryOfDaemon(const Config& config);

// Checks that the service's memory limit is enough, and that without one the service is not spared
// at the cost of others when memory is short.
Finding ExamineServiceMemory(const Config& config, const Machine& machine);

}  // namespace kvkeep::tools
