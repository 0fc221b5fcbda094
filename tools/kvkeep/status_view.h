// Formats a daemon's status: JSON with stable keys, tables for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kvkeep/v1/kvkeep.pb.h"
#include "tools/kvkeep/print.h"

namespace kvkeep::tools {

Json StatusJson(const v1::StatusResponse& status);
std::string StatusText(const v1::StatusResponse& status);

// Parts of the JSON and of the tables.
Json SessionsJson(const v1::StatusResponse& status);
Json TenantsJson(const v1::StatusResponse& status);
std::string TenantsTable(const v1::StatusResponse& status);
std::string DevicesTable(const v1::StatusResponse& status);
std::string SessionsTable(const std::vector<v1::SessionStatus>& sessions);
std::vector<v1::SessionStatus> SessionsOf(const v1::StatusResponse& status);
// "well", "away", "misconfigured", or "takes no writes".
std::string G4StateText(const v1::G4Status& g4);
// Returns 0 if an older daemon does not have the counter.
uint64_t CounterOf(const v1::StatusResponse& status, const char* name);

}  // namespace kvkeep::tools
