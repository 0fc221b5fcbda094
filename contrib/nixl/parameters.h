// Parameters: what a user gives to NIXL's create_backend("KVKEEP", ...), checked.
//
// Values, without threads or handles. README.md lists the parameters for users.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace kvkeep_nixl {

struct Parameters {
  std::string endpoint;
  std::string model;  // of the namespace, parameter "namespace"
  uint32_t part = 0;
  uint32_t parts = 1;
  uint32_t deadline_ms = 0;
  bool replace = true;  // a WRITE under a name that is taken
};

using ParameterMap = std::unordered_map<std::string, std::string>;

// Returns the parameters with their defaults, some of which come from the environment. A parameter
// that must be given is "".
ParameterMap DefaultParameters();

// Returns "" and sets `out`; or says what is wrong, beginning with the name of the parameter.
std::string ReadParameters(const ParameterMap& given, Parameters* out);

}  // namespace kvkeep_nixl
