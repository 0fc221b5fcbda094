#include "tiers/policy/trace.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

using Json = nlohmann::json;

// Beyond this (292 years) it would not fit MonotonicTime, which counts nanoseconds.
constexpr uint64_t kMaxTimestampMs = uint64_t{INT64_MAX} / 1'000'000;

absl::StatusOr<uint64_t> Number(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return absl::InvalidArgumentError(absl::StrCat(field, ": missing"));
  if (!found->is_number_unsigned()) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": must be an integer, 0 or more"));
  }
  return found->get<uint64_t>();
}

absl::StatusOr<std::vector<uint64_t>> HashIds(const Json& object) {
  const auto found = object.find("hash_ids");
  if (found == object.end()) return absl::InvalidArgumentError("hash_ids: missing");
  if (!found->is_array()) return absl::InvalidArgumentError("hash_ids: must be an array");
  if (found->size() > kMaxTraceChain) {
    return absl::ResourceExhaustedError(
        absl::StrCat("hash_ids: ", found->size(), " ids, the limit is ", kMaxTraceChain));
  }
  std::vector<uint64_t> ids;
  ids.reserve(found->size());
  for (const Json& id : *found) {
    if (!id.is_number_unsigned()) {
      return absl::InvalidArgumentError(
          absl::StrCat("hash_ids[", ids.size(), "]: must be an integer, 0 or more"));
    }
    ids.push_back(id.get<uint64_t>());
  }
  return ids;
}

absl::StatusOr<TraceRequest> ParseRequest(const std::string& line) {
  const Json object = Json::parse(line, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("not a JSON object");
  TraceRequest request;
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t timestamp, Number(object, "timestamp"));
  if (timestamp > kMaxTimestampMs) {
    return absl::InvalidArgumentError(
        absl::StrCat("timestamp: ", timestamp, " ms, the limit is ", kMaxTimestampMs));
  }
  request.timestamp = std::chrono::milliseconds(timestamp);
  KVKEEP_ASSIGN_OR_RETURN(request.input_tokens, Number(object, "input_length"));
  KVKEEP_ASSIGN_OR_RETURN(request.output_tokens, Number(object, "output_length"));
  KVKEEP_ASSIGN_OR_RETURN(request.hash_ids, HashIds(object));
  return request;
}

}  // namespace

absl::StatusOr<std::vector<TraceRequest>> ParseTrace(std::istream& in, const std::string& name,
                                                     size_t max_requests) {
  std::vector<TraceRequest> requests;
  std::string line;
  for (size_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<TraceRequest> request = ParseRequest(line);
    absl::Status status = request.status();
    if (status.ok() && requests.size() >= max_requests) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("more than ", max_requests, " requests; replay a part of the trace"));
    }
    if (status.ok() && !requests.empty() && request->timestamp < requests.back().timestamp) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "timestamp: ", request->timestamp.count(), " is before the request above it, at ",
          requests.back().timestamp.count(), "; sort the trace by timestamp"));
    }
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(name, ":", number, ": ", status.message()));
    }
    requests.push_back(*std::move(request));
  }
  if (in.bad()) return absl::UnavailableError(absl::StrCat(name, ": read failed"));
  return requests;
}

void KeepFullChunks(std::vector<TraceRequest>& requests, uint64_t tokens_per_chunk) {
  KVKEEP_CHECK(tokens_per_chunk > 0);
  for (TraceRequest& request : requests) {
    const uint64_t full = request.input_tokens / tokens_per_chunk;
    if (request.hash_ids.size() <= full) continue;
    request.partial_chunks += request.hash_ids.size() - full;
    request.hash_ids.resize(full);
  }
}

absl::StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path) {
  std::ifstream in(path);
  if (!in) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  return ParseTrace(in, path);
}

}  // namespace kvkeep
