// The doctor's finding on kvkeepd.service: settings of its unit and drop-ins, and whether its
// memory limit is enough for a config. Reads files; does not call systemd.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {

// Returns the effective value of KEY= for kvkeepd.service: from the first unit of that name, then
// from every drop-in, by file name. `root` is a prefix of the paths. Nothing if none sets it.
std::optional<std::string> ServiceSetting(const std::string& root, absl::string_view key);

// Returns the most memory of a daemon with this config, in bytes: G2 with its marks, staging
// memory, gRPC's messages, the chunks' tables, and the rest. deploy/README.md has the rule
// ("Size").
uint64_t MemoryOfDaemon(const Config& config);

// Checks that the service's memory limit is enough, and that a service without a limit is not
// exempt from being killed when memory is short.
Finding ExamineServiceMemory(const Config& config, const Machine& machine);

}  // namespace kvkeep::tools
