#include "server/local/keys_call.h"

#include <absl/strings/str_cat.h>

#include "proto/local/message.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

using local::Kind;

constexpr uint8_t kLastLeaseMode = static_cast<uint8_t>(LeaseMode::kAllPresent);

absl::Status CheckLeaseMode(Kind kind, uint8_t mode) {
  const bool may = kind == Kind::kLookup || kind == Kind::kGet;
  const bool must = kind == Kind::kGet;
  if (mode > kLastLeaseMode || (!may && mode != 0) || (must && mode == 0)) {
    return absl::InvalidArgumentError(absl::StrCat("lease_mode is ", mode, ", allowed here are ",
                                                   must ? 1 : 0, " to ", may ? kLastLeaseMode : 0));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status KeysCall::Parse(Kind kind, std::span<const std::byte> body) {
  static_assert(sizeof(PartId) == sizeof(uint32_t));
  static_assert(sizeof(ChunkKey) == ChunkKey::kSize && alignof(ChunkKey) == 1);
  local::BodyReader reader(body);
  ask_ = {};
  if (!reader.Read(&request_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("KeysRequest: ", body.size(), " bytes are too few"));
  }
  std::span<const std::byte> keys;
  if (!reader.ReadAll(request_.releases, &releases_) || !reader.ReadAll(request_.parts, &parts_) ||
      !reader.ReadBytes(uint64_t{request_.keys} * sizeof(ChunkKey), &keys) ||
      (request_.asks_remote == 1 && !reader.Read(&ask_)) || !reader.done()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "KeysRequest: ", request_.releases, " releases, ", request_.parts, " parts and ",
        request_.keys, " keys are not the ", body.size() - sizeof(request_), " bytes that came"));
  }
  keys_ = {reinterpret_cast<const ChunkKey*>(keys.data()), request_.keys};
  if (request_.transient > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("transient is ", request_.transient, ", allowed are 0 and 1"));
  }
  KVKEEP_RETURN_IF_ERROR(CheckRemote(kind));
  if (kind == Kind::kRelease && (!keys_.empty() || !parts_.empty())) {
    return absl::InvalidArgumentError("keys: a release has none");
  }
  return CheckLeaseMode(kind, request_.lease_mode);
}

absl::Status KeysCall::CheckRemote(Kind kind) const {
  const bool may = kind == Kind::kLookup || kind == Kind::kGet;
  if (request_.asks_remote > (may ? 1 : 0)) {
    return absl::InvalidArgumentError(absl::StrCat("asks_remote is ", request_.asks_remote,
                                                   ", allowed here are 0 to ", may ? 1 : 0));
  }
  if (request_.asks_remote == 0) return absl::OkStatus();
  if (ask_.wait_us == 0) return absl::InvalidArgumentError("wait_us is 0, wanted is more");
  return lookup().beyond.Validate();
}

void KeysCall::NameAllParts(uint32_t parts) {
  // One part more than allowed is enough for the store to refuse the call.
  for (uint32_t part = 0; part < parts && part <= kMaxPartsPerCall; ++part) {
    parts_.emplace_back(part);
  }
}

LookupRequest KeysCall::lookup() const {
  const auto mode = static_cast<LeaseMode>(request_.lease_mode);
  return {.chunks = chunks(),
          .lease_mode = mode,
          .client_request_id = request_.client_request_id,
          .transient = request_.transient == 1,
          .want_places = mode != LeaseMode::kNone,
          .beyond = {.wait = std::chrono::microseconds(ask_.wait_us),
                     .recompute_per_key = std::chrono::microseconds(ask_.recompute_us_per_key)}};
}

}  // namespace kvkeep
