// Implements kvkeep.h: the calls. One function starts each; its Finish is either a caller that
// waits or a queue.
#include "client/c/arguments.h"
#include "client/c/border.h"
#include "client/c/outcomes.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

// ---------------------------------------------------------------- lookup

void WritePresence(const LookupResult& found, uint64_t chunks, size_t keys, uint8_t* presence) {
  const size_t parts = chunks / keys;
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const size_t key = chunk / parts, part = chunk % parts;
    presence[chunk] = static_cast<uint8_t>((found.in_g2(key, part) ? KVKEEP_IN_G2 : 0) |
                                           (found.in_g3(key, part) ? KVKEEP_IN_G3 : 0) |
                                           (found.coming(key, part) ? KVKEEP_COMING : 0));
  }
}

void Answer(LookupResult found, const Reply<kvkeep_lookup_reply>& reply) {
  kvkeep_lookup_reply answer = {.leading_keys = found.leading_keys,
                                .leased_keys = found.leased_keys,
                                .promotion_us = found.promotion_us,
                                .leased_bytes = found.lease.bytes(),
                                .remote_keys = found.remote_keys,
                                .remote_us = found.remote_us,
                                .remote_asked = found.remote_asked ? 1u : 0};
  if (found.lease.keys() > 0) answer.lease = new kvkeep_lease{std::move(found.lease)};
  reply.Write(answer);
}

absl::Status StartLookup(kvkeep_client* client, const kvkeep_lookup_request* given,
                         kvkeep_lookup_reply* given_reply, Finish finish) {
  KVKEEP_ASSIGN_OR_RETURN(
      const kvkeep_lookup_request request,
      RequestOf(client, given, offsetof(kvkeep_lookup_request, remote_wait_us)));
  KVKEEP_ASSIGN_OR_RETURN(const auto reply,
                          Reply<kvkeep_lookup_reply>::Of(
                              "reply", given_reply, offsetof(kvkeep_lookup_reply, remote_keys)));
  KVKEEP_ASSIGN_OR_RETURN(const ChunkSelection selection, SelectionOf(request.keys));
  if (request.lease_mode > KVKEEP_LEASE_ALL_PRESENT) {
    return absl::InvalidArgumentError(
        absl::StrCat("lease_mode: ", request.lease_mode, " is not a kvkeep_lease_mode"));
  }
  if (request.presence != nullptr && request.presence_bytes < selection.chunks) {
    return absl::InvalidArgumentError(absl::StrCat("presence_bytes: ", request.presence_bytes, ", ",
                                                   selection.chunks, " are needed"));
  }
  reply.Clear();
  if (request.presence != nullptr) std::memset(request.presence, 0, selection.chunks);
  const LookupOptions options = {.parts = selection.parts,
                                 .lease = static_cast<LeaseMode>(request.lease_mode),
                                 .transient = request.transient != 0,
                                 .remote_wait = std::chrono::microseconds(request.remote_wait_us),
                                 .recompute_per_key =
                                     std::chrono::microseconds(request.recompute_us_per_key),
                                 .deadline = Deadline(request.deadline_ms)};
  client->impl->Lookup(
      *selection.ns, selection.keys, options,
      [reply, presence = request.presence, chunks = selection.chunks, keys = selection.keys.size(),
       finish = std::move(finish)](absl::StatusOr<LookupResult> found) mutable {
        if (found.ok()) {
          if (presence != nullptr) WritePresence(*found, chunks, keys, presence);
          Answer(*std::move(found), reply);
        }
        std::move(finish)(found.status(), "");
      });
  return absl::OkStatus();
}

absl::Status StartRelease(kvkeep_client* client, kvkeep_lease* lease, Finish finish) {
  if (client == nullptr) return IsNull("client");
  if (lease == nullptr) return IsNull("lease");
  Lease taken = std::move(lease->impl);
  delete lease;
  client->impl->Release(std::move(taken),
                        [finish = std::move(finish)](const absl::Status& status) mutable {
                          std::move(finish)(status, "");
                        });
  return absl::OkStatus();
}

// ---------------------------------------------------------------- get

static_assert(KVKEEP_LEASE_LEADING_RUN == static_cast<int>(LeaseMode::kLeadingRun) &&
              KVKEEP_LEASE_ALL_PRESENT == static_cast<int>(LeaseMode::kAllPresent));

absl::Status CheckGet(const kvkeep_get_request& request, const ChunkSelection& selection) {
  KVKEEP_RETURN_IF_ERROR(CheckFlags(request.flags, KVKEEP_GET_TRANSIENT | KVKEEP_GET_NO_VERIFY |
                                                       KVKEEP_GET_NO_REMOTE));
  if (request.destinations == nullptr) return IsNull("destinations");
  if (request.outcomes == nullptr) return IsNull("outcomes");
  if (request.chunk_count != selection.chunks) {
    return absl::InvalidArgumentError(absl::StrCat("chunk_count: ", request.chunk_count,
                                                   ", keys x parts are ", selection.chunks));
  }
  return CheckMetadataRooms(request.metadata, request.chunk_count);
}

std::chrono::microseconds RemoteWaitOf(const kvkeep_get_request& request) {
  if ((request.flags & KVKEEP_GET_NO_REMOTE) != 0) return std::chrono::microseconds(0);
  if (request.remote_wait_us == 0) return GetOptions{}.remote_wait;
  return std::chrono::microseconds(request.remote_wait_us);
}

absl::Status StartGet(kvkeep_client* client, const kvkeep_get_request* given, Finish finish) {
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_get_request request,
                          RequestOf(client, given, offsetof(kvkeep_get_request, run_counts)));
  KVKEEP_ASSIGN_OR_RETURN(const ChunkSelection selection, SelectionOf(request.keys));
  KVKEEP_RETURN_IF_ERROR(CheckGet(request, selection));
  KVKEEP_ASSIGN_OR_RETURN(std::vector<std::span<std::byte>> destinations, DestinationsOf(request));
  // The call refers to it until its end; a vector's elements stay where they are when it is moved.
  GetOptions options = {.parts = selection.parts,
                        .lease = request.lease == nullptr ? nullptr : &request.lease->impl,
                        .first_key = request.first_key,
                        .first_piece = request.first_piece,
                        .pieces = request.pieces,
                        .metadata = request.metadata != nullptr,
                        .transient = (request.flags & KVKEEP_GET_TRANSIENT) != 0,
                        .verify = (request.flags & KVKEEP_GET_NO_VERIFY) == 0,
                        .remote_wait = RemoteWaitOf(request),
                        .deadline = Deadline(request.deadline_ms),
                        .destinations = destinations};
  if (request.run_counts != nullptr) {
    options.destination_runs = {request.run_counts, request.chunk_count};
  }
  std::fill_n(request.outcomes, request.chunk_count, kvkeep_get_outcome{});
  client->impl->Get(
      *selection.ns, selection.keys, std::move(options),
      [request, destinations = std::move(destinations),
       finish = std::move(finish)](absl::StatusOr<GetResult> got) mutable {
        if (got.ok()) {
          WriteOutcomes(*got, {request.outcomes, request.chunk_count}, request.metadata);
        }
        std::move(finish)(got.ok() ? got->error : got.status(), "");
      });
  return absl::OkStatus();
}

// ---------------------------------------------------------------- put

absl::StatusOr<std::vector<PutChunk>> PutChunksOf(const kvkeep_put_request& request) {
  KVKEEP_RETURN_IF_ERROR(CheckChunkList(request));
  KVKEEP_RETURN_IF_ERROR(CheckFlags(request.flags, KVKEEP_PUT_DURABLE | KVKEEP_PUT_TRANSIENT |
                                                       KVKEEP_PUT_NO_G3 | KVKEEP_PUT_CHECKSUM));
  return ChunksOf<PutChunk>(request, PutChunkOf);
}

absl::Status StartPut(kvkeep_client* client, const kvkeep_put_request* given, Finish finish) {
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_put_request request, RequestOf(client, given));
  KVKEEP_ASSIGN_OR_RETURN(std::vector<PutChunk> chunks, PutChunksOf(request));
  const PutOptions options = PutOptionsOf(request.flags, request.deadline_ms);
  std::fill_n(request.outcomes, request.chunk_count, uint32_t{KVKEEP_PUT_UNFINISHED});
  client->impl->Put(request.ns->impl, std::move(chunks), options,
                    [request, finish = std::move(finish)](absl::StatusOr<PutResult> put) mutable {
                      std::string note;
                      if (put.ok()) {
                        note = WriteOutcomes(*put, {request.outcomes, request.chunk_count});
                      }
                      std::move(finish)(put.ok() ? put->error : put.status(), note);
                    });
  return absl::OkStatus();
}

// ---------------------------------------------------------------- touch, prefetch, delete

using KeysCall = void (Client::*)(const Namespace&, Keys, Parts, Deadline,
                                  Client::Callback<uint64_t>);

absl::Status StartCount(KeysCall call, kvkeep_client* client, const kvkeep_keys_request* given,
                        kvkeep_count_reply* given_reply, Finish finish) {
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_keys_request request, RequestOf(client, given));
  KVKEEP_ASSIGN_OR_RETURN(const auto reply, Reply<kvkeep_count_reply>::Of("reply", given_reply));
  KVKEEP_ASSIGN_OR_RETURN(const ChunkSelection selection, SelectionOf(request.keys));
  reply.Clear();
  (*client->impl.*call)(
      *selection.ns, selection.keys, selection.parts, Deadline(request.deadline_ms),
      [reply, finish = std::move(finish)](absl::StatusOr<uint64_t> count) mutable {
        if (count.ok()) reply.Write({.chunks = *count});
        std::move(finish)(count.status(), "");
      });
  return absl::OkStatus();
}

absl::Status StartPrefetch(kvkeep_client* client, const kvkeep_keys_request* given,
                           kvkeep_prefetch_reply* given_reply, Finish finish) {
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_keys_request request, RequestOf(client, given));
  KVKEEP_ASSIGN_OR_RETURN(const auto reply, Reply<kvkeep_prefetch_reply>::Of("reply", given_reply));
  KVKEEP_ASSIGN_OR_RETURN(const ChunkSelection selection, SelectionOf(request.keys));
  reply.Clear();
  client->impl->Prefetch(
      *selection.ns, selection.keys, selection.parts, Deadline(request.deadline_ms),
      [reply, finish = std::move(finish)](absl::StatusOr<PrefetchResult> result) mutable {
        if (result.ok()) {
          reply.Write(
              {.started_chunks = result->started_chunks, .ready_chunks = result->ready_chunks});
        }
        std::move(finish)(result.status(), "");
      });
  return absl::OkStatus();
}

// ---------------------------------------------------------------- the daemon

kvkeep_server_info InC(const ServerInfo& info) {
  kvkeep_server_info answer = {
      .incarnation = info.incarnation,
      .max_keys_per_call = info.limits.max_keys_per_call,
      .max_parts_per_call = info.limits.max_parts_per_call,
      .max_payload_bytes = info.limits.max_payload_bytes,
      .max_metadata_bytes = info.limits.max_metadata_bytes,
      .max_leases_per_session = info.limits.max_leases_per_session,
      .max_leased_bytes = info.limits.max_leased_bytes,
      .max_sessions = info.limits.max_sessions,
  };
  std::string features;
  for (const std::string& feature : info.features) {
    absl::StrAppend(&features, features.empty() ? "" : " ", feature);
  }
  CopyText(info.version, answer.version, sizeof(answer.version));
  CopyText(info.state, answer.state, sizeof(answer.state));
  CopyText(features, answer.features, sizeof(answer.features));
  return answer;
}

absl::Status StartServerInfo(kvkeep_client* client, uint32_t deadline_ms,
                             kvkeep_server_info* given_info, Finish finish) {
  if (client == nullptr) return IsNull("client");
  KVKEEP_ASSIGN_OR_RETURN(const auto reply, Reply<kvkeep_server_info>::Of("info", given_info));
  reply.Clear();
  client->impl->GetServerInfo(Deadline(deadline_ms), [reply, finish = std::move(finish)](
                                                         absl::StatusOr<ServerInfo> info) mutable {
    if (info.ok()) reply.Write(InC(*info));
    std::move(finish)(info.status(), "");
  });
  return absl::OkStatus();
}

}  // namespace
}  // namespace kvkeep::client

using kvkeep::client::Async;
using kvkeep::client::Blocking;
using kvkeep::client::Client;
using kvkeep::client::Finish;

int kvkeep_lookup(kvkeep_client* client, const kvkeep_lookup_request* request,
                  kvkeep_lookup_reply* reply, kvkeep_error* error) {
  return Blocking(error, [&](Finish finish) {
    return kvkeep::client::StartLookup(client, request, reply, std::move(finish));
  });
}

int kvkeep_lookup_async(kvkeep_client* client, const kvkeep_lookup_request* request,
                        kvkeep_lookup_reply* reply, kvkeep_queue* queue, void* user_data,
                        kvkeep_error* error) {
  return Async({queue, user_data, KVKEEP_OP_LOOKUP}, error, [&](Finish finish) {
    return kvkeep::client::StartLookup(client, request, reply, std::move(finish));
  });
}

int kvkeep_lease_alive(const kvkeep_lease* lease) {
  return lease != nullptr && lease->impl.alive();
}

void kvkeep_lease_shrink(kvkeep_lease* lease, uint32_t keep_keys) {
  if (lease != nullptr) lease->impl.Shrink(keep_keys);
}

void kvkeep_lease_release(kvkeep_lease* lease) { delete lease; }

int kvkeep_release(kvkeep_client* client, kvkeep_lease* lease, kvkeep_error* error) {
  return Blocking(error, [&](Finish finish) {
    return kvkeep::client::StartRelease(client, lease, std::move(finish));
  });
}

int kvkeep_release_async(kvkeep_client* client, kvkeep_lease* lease, kvkeep_queue* queue,
                         void* user_data, kvkeep_error* error) {
  return Async({queue, user_data, KVKEEP_OP_RELEASE}, error, [&](Finish finish) {
    return kvkeep::client::StartRelease(client, lease, std::move(finish));
  });
}

int kvkeep_get(kvkeep_client* client, const kvkeep_get_request* request, kvkeep_error* error) {
  return Blocking(error, [&](Finish finish) {
    return kvkeep::client::StartGet(client, request, std::move(finish));
  });
}

int kvkeep_get_async(kvkeep_client* client, const kvkeep_get_request* request, kvkeep_queue* queue,
                     void* user_data, kvkeep_error* error) {
  return Async({queue, user_data, KVKEEP_OP_GET}, error, [&](Finish finish) {
    return kvkeep::client::StartGet(client, request, std::move(finish));
  });
}

int kvkeep_put(kvkeep_client* client, const kvkeep_put_request* request, kvkeep_error* error) {
  return Blocking(error, [&](Finish finish) {
    return kvkeep::client::StartPut(client, request, std::move(finish));
  });
}

int kvkeep_put_async(kvkeep_client* client, const kvkeep_put_request* request, kvkeep_queue* queue,
                     void* user_data, kvkeep_error* error) {
  return Async({queue, user_data, KVKEEP_OP_PUT}, error, [&](Finish finish) {
    return kvkeep::client::StartPut(client, request, std::move(finish));
  });
}

int kvkeep_touch(kvkeep_client* client, const kvkeep_keys_request* request,
                 kvkeep_count_reply* reply, kvkeep_error* error) {
  return Blocking(error, [&](Finish finish) {
    return kvkeep::client::StartCount(&Client::Touch, client, request, reply, std::move(finish));
  });
}

int kvkeep_touch_async(kvkeep_client* client, const kvkeep_keys_request* request,
                       kvkeep_count_reply* reply, kvkeep_queue* queue, void* user_data,
                       kvkeep_error* error) {
  return Async({queue, user_data, KVKEEP_OP_TOUCH}, error, [&](Finish finish) {
    return kvkeep::client::StartCount(&Client::Touch, client, request, reply, std::move(finish));
  });
}

int kvkeep_prefetch(kvkeep_client* client, const kvkeep_keys_request* request,
                    kvkeep_prefetch_reply* reply, kvkeep_error* error) {
  return Blocking(error, [&](Finish finish) {
    return kvkeep::client::StartPrefetch(client, request, reply, std::move(finish));
  });
}

int kvkeep_prefetch_async(kvkeep_client* client, const kvkeep_keys_request* request,
                          kvkeep_prefetch_reply* reply, kvkeep_queue* queue, void* user_data,
                          kvkeep_error* error) {
  return Async({queue, user_data, KVKEEP_OP_PREFETCH}, error, [&](Finish finish) {
    return kvkeep::client::StartPrefetch(client, request, reply, std::move(finish));
  });
}

int kvkeep_delete(kvkeep_client* client, const kvkeep_keys_request* request,
                  kvkeep_count_reply* reply, kvkeep_error* error) {
  return Blocking(error, [&](Finish finish) {
    return kvkeep::client::StartCount(&Client::Delete, client, request, reply, std::move(finish));
  });
}

int kvkeep_delete_async(kvkeep_client* client, const kvkeep_keys_request* request,
                        kvkeep_count_reply* reply, kvkeep_queue* queue, void* user_data,
                        kvkeep_error* error) {
  return Async({queue, user_data, KVKEEP_OP_DELETE}, error, [&](Finish finish) {
    return kvkeep::client::StartCount(&Client::Delete, client, request, reply, std::move(finish));
  });
}

int kvkeep_get_server_info(kvkeep_client* client, uint32_t deadline_ms, kvkeep_server_info* info,
                           kvkeep_error* error) {
  return Blocking(error, [&](Finish finish) {
    return kvkeep::client::StartServerInfo(client, deadline_ms, info, std::move(finish));
  });
}

int kvkeep_get_server_info_async(kvkeep_client* client, uint32_t deadline_ms,
                                 kvkeep_server_info* info, kvkeep_queue* queue, void* user_data,
                                 kvkeep_error* error) {
  return Async({queue, user_data, KVKEEP_OP_SERVER_INFO}, error, [&](Finish finish) {
    return kvkeep::client::StartServerInfo(client, deadline_ms, info, std::move(finish));
  });
}
