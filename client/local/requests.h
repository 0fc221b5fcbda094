// Makes requests of the local protocol, and reads their replies. Internal; no state of its own.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/local/layout.h"
#include "client/local/session.h"
#include "client/values/types.h"
#include "tiers/base/key.h"

namespace kvkeep::client {

using LocalSessionPtr = std::shared_ptr<LocalSession>;

// Contents of a request about keys.
struct KeysQuery {
  NamespaceDigest ns;
  Keys keys;
  Parts parts;
  size_t part_count = 0;  // of `parts`, or of the namespace
  LeaseMode lease = LeaseMode::kNone;
  bool transient = false;
  local::RemoteAsk remote = {};  // used if it has a wait, and the daemon knows it
};

// Returns whether the request and its reply have the part about G4.
bool AsksRemote(const LocalSession& session, const KeysQuery& query);

// A checked reply to a lookup or get. The caller must give its lease back.
struct Found {
  uint64_t lease = 0;
  uint64_t leased_bytes = 0;
  uint32_t leading_keys = 0;
  uint32_t leased_keys = 0;
  uint32_t promotion_us = 0;
  size_t row_bytes = 0;
  std::string g2_bits;
  std::string g3_bits;
  local::RemoteReply remote;
  std::string remote_bits;  // empty: not asked for
  std::shared_ptr<const Layout> layout;  // of the leased chunks

  bool present(size_t key, size_t part) const {
    const size_t at = key * row_bytes + part / 8;
    return (static_cast<uint8_t>(g2_bits[at] | g3_bits[at]) >> (part % 8) & 1) != 0;
  }
};

// Returns a request of `kind` about keys, which takes queued releases along. Valid until this
// thread makes the next one, which reuses the memory.
local::MessageWriter& KeysMessage(LocalSession& session, local::Kind kind, uint64_t id,
                                  const KeysQuery& query);
// INTERNAL: the reply breaks the protocol.
absl::StatusOr<Found> ReadFound(LocalSession::Reply& reply, LocalSession& session, size_t keys,
                                size_t parts, bool leased, bool asks_remote);
// Gives back the lease in a reply that came too late. Returns whether there was one.
bool ReleaseLate(LocalSession& session, LocalSession::Reply& reply);

template <typename T>
absl::StatusOr<T> ReadStruct(LocalSession::Reply& reply) {
  T value;
  if (!reply.body.Read(&value) || !reply.body.done()) {
    return absl::InternalError("local: a reply of a wrong length");
  }
  return value;
}

// Returns the status for a call's `done` to return: only a broken protocol ends the session.
inline absl::Status ProtocolStatus(const absl::Status& status) {
  return absl::IsInternal(status) ? status : absl::OkStatus();
}

// Sends a request and waits for its reply, reading the socket on this thread if it can. Calls
// `told` when the daemon has answered, even after the deadline, or nothing was sent; see
// LocalSession::Call::copied.
template <typename T>
absl::StatusOr<T> Ask(const LocalSessionPtr& session, local::Kind kind, uint64_t id,
                      local::MessageWriter& request, LocalSession::Time deadline,
                      absl::FunctionRef<absl::StatusOr<T>(LocalSession::Reply&)> read,
                      absl::AnyInvocable<void(LocalSession::Reply) &&> late = nullptr,
                      std::span<const int> fds = {}, absl::AnyInvocable<void()> told = nullptr) {
  Completion<absl::StatusOr<T>> completion;
  LocalSession::Blocking blocking;
  {
    LocalSession::BlockingScope scope(&blocking);
    session->Send(id, request,
                  {.kind = kind,
                   .deadline = deadline,
                   .done =
                       [&completion, read](absl::StatusOr<LocalSession::Reply> reply) {
                         if (!reply.ok()) {
                           completion.Set(reply.status());
                           return absl::OkStatus();
                         }
                         absl::StatusOr<T> value = read(*reply);
                         // Before Set, after which the waiter and the captures may be gone.
                         const absl::Status broken =
                             value.ok() ? absl::OkStatus() : ProtocolStatus(value.status());
                         completion.Set(std::move(value));
                         return broken;
                       },
                   .late = std::move(late),
                   .copied = std::move(told)},
                  fds);
  }
  session->ReadUntil(&completion, deadline);
  return completion.Take();
}

}  // namespace kvkeep::client
