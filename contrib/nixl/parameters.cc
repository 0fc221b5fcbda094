// Parameters of the backend: defaults, limits, and the words for what is wrong.
#include "contrib/nixl/parameters.h"

#include <charconv>
#include <cstdlib>

namespace kvkeep_nixl {
namespace {

constexpr uint32_t kMaxParts = 4096;
constexpr uint32_t kMaxDeadlineMs = 600'000;
constexpr size_t kMaxSocketPath = 107;

std::string FromEnvironment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

bool ReadNumber(const std::string& text, uint32_t least, uint32_t most, uint32_t* out) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && stop == end && *out >= least && *out <= most;
}

std::string Wrong(const std::string& name, const std::string& value, const std::string& wanted) {
  return name + ": '" + value + "' is not " + wanted;
}

// Returns whether it names a daemon of this host. A remote one would be reached by gRPC, which the
// plugin does without (kvkeep_plugin.cc says why).
bool IsEndpoint(const std::string& text) {
  constexpr std::string_view kUnix = "unix://";
  if (!text.starts_with(kUnix)) return false;
  const std::string path = text.substr(kUnix.size());
  return path.starts_with('/') && path.size() <= kMaxSocketPath;
}

}  // namespace

ParameterMap DefaultParameters() {
  return {{"endpoint", FromEnvironment("KVKEEP_ENDPOINT", "unix:///run/kvkeep/kvkeep.sock")},
          {"namespace", FromEnvironment("KVKEEP_NIXL_NAMESPACE", "")},
          {"part", "0"},
          {"parts", "1"},
          {"deadline_ms", "5000"},
          {"replace", "true"}};
}

std::string ReadParameters(const ParameterMap& given, Parameters* out) {
  ParameterMap all = DefaultParameters();
  for (const auto& [name, value] : given) {
    if (value.find('\0') != std::string::npos) return name + ": has a zero byte";
    const auto known = all.find(name);
    if (known == all.end()) {
      return name +
             ": no such parameter; there are endpoint, namespace, part, parts, deadline_ms, "
             "replace";
    }
    known->second = value;
  }
  out->endpoint = all["endpoint"];
  out->model = all["namespace"];
  if (!IsEndpoint(out->endpoint)) {
    return Wrong("endpoint", out->endpoint, "unix:///PATH, with a path of at most 107 bytes");
  }
  if (out->model.empty()) {
    return "namespace: must be given, or $KVKEEP_NIXL_NAMESPACE: it names the model, dtype and "
           "layout whose bytes the objects are";
  }
  if (!ReadNumber(all["parts"], 1, kMaxParts, &out->parts)) {
    return Wrong("parts", all["parts"], "a number from 1 to " + std::to_string(kMaxParts));
  }
  if (!ReadNumber(all["part"], 0, out->parts - 1, &out->part)) {
    return Wrong("part", all["part"],
                 "a number from 0 to parts - 1, " + std::to_string(out->parts - 1));
  }
  if (!ReadNumber(all["deadline_ms"], 1, kMaxDeadlineMs, &out->deadline_ms)) {
    return Wrong("deadline_ms", all["deadline_ms"],
                 "a number from 1 to " + std::to_string(kMaxDeadlineMs));
  }
  out->replace = all["replace"] == "true";
  if (!out->replace && all["replace"] != "false") {
    return Wrong("replace", all["replace"], "true or false");
  }
  return "";
}

}  // namespace kvkeep_nixl
