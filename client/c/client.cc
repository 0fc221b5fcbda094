// Implements kvkeep.h: versions and names, clients, namespaces, queues.
#include "client/client.h"

#include "client/c/arguments.h"
#include "client/c/border.h"

namespace kvkeep::client {
namespace {

int Connect(const kvkeep_client_options* given, kvkeep_client** out, kvkeep_error* error) {
  if (out == nullptr) return Report(IsNull("out"), error);
  *out = nullptr;
  auto options = OptionsOf(given);
  if (!options.ok()) return Report(options.status(), error);
  auto client = std::make_unique<kvkeep_client>();
  auto connected = Client::Connect(*std::move(options));
  if (!connected.ok()) return Report(connected.status(), error);
  client->impl = *std::move(connected);
  *out = client.release();
  return Report(absl::OkStatus(), error);
}

int OpenNamespace(kvkeep_client* client, const kvkeep_namespace_spec* given, uint32_t deadline_ms,
                  kvkeep_namespace** out, kvkeep_error* error) {
  if (out == nullptr) return Report(IsNull("out"), error);
  *out = nullptr;
  if (client == nullptr) return Report(IsNull("client"), error);
  const auto spec = SpecOf(given);
  if (!spec.ok()) return Report(spec.status(), error);
  auto ns = std::make_unique<kvkeep_namespace>();
  auto opened = client->impl->OpenNamespace(*spec, Deadline(deadline_ms));
  if (!opened.ok()) return Report(opened.status(), error);
  ns->impl = *std::move(opened);
  *out = ns.release();
  return Report(absl::OkStatus(), error);
}

int CreateQueue(uint32_t capacity, kvkeep_queue** out, kvkeep_error* error) {
  if (out == nullptr) return Report(IsNull("out"), error);
  *out = nullptr;
  auto queue = std::make_unique<kvkeep_queue>();
  auto created = CompletionQueue::Create(capacity);
  if (!created.ok()) return Report(created.status(), error);
  queue->impl = *std::move(created);
  *out = queue.release();
  return Report(absl::OkStatus(), error);
}

int DestroyQueue(kvkeep_queue* queue, kvkeep_error* error) {
  const uint32_t in_flight = queue == nullptr ? 0 : queue->impl->in_flight();
  if (in_flight > 0) {
    return Report(absl::FailedPreconditionError(
                      absl::StrCat("queue: ", in_flight, " calls that report to it are in flight")),
                  error);
  }
  delete queue;
  return Report(absl::OkStatus(), error);
}

int ReadStats(const kvkeep_client* client, kvkeep_client_stats* stats, kvkeep_error* error) {
  if (client == nullptr) return Report(IsNull("client"), error);
  const auto reply = Reply<kvkeep_client_stats>::Of("stats", stats);
  if (!reply.ok()) return Report(reply.status(), error);
  const Client::Stats now = client->impl->GetStats();
  reply->Write({.sessions_opened = now.sessions_opened,
                .calls = now.calls,
                .failed_fast = now.failed_fast,
                .corrupt_chunks = now.corrupt_chunks,
                .bytes_received = now.bytes_received,
                .bytes_sent = now.bytes_sent});
  return Report(absl::OkStatus(), error);
}

int ReadPath(const kvkeep_client* client, kvkeep_path_info* info, kvkeep_error* error) {
  if (client == nullptr) return Report(IsNull("client"), error);
  const auto reply = Reply<kvkeep_path_info>::Of("info", info);
  if (!reply.ok()) return Report(reply.status(), error);
  const PathInfo now = client->impl->path();
  const kvkeep_path path = now.path == Path::kLocal ? KVKEEP_PATH_LOCAL : KVKEEP_PATH_GRPC;
  kvkeep_path_info answer = {.path = static_cast<uint32_t>(path)};
  CopyText(now.why, answer.why, sizeof(answer.why));
  reply->Write(answer);
  return Report(absl::OkStatus(), error);
}

}  // namespace
}  // namespace kvkeep::client

using kvkeep::client::Guarded;

uint32_t kvkeep_abi_version(void) { return KVKEEP_ABI_VERSION; }
const char* kvkeep_version(void) { return KVKEEP_VERSION; }

const char* kvkeep_code_name(int code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return code >= 0 && code <= KVKEEP_UNAUTHENTICATED ? kNames[code] : "not a code of kvkeep";
}

int kvkeep_connect(const kvkeep_client_options* options, kvkeep_client** out, kvkeep_error* error) {
  return Guarded(error, [&] { return kvkeep::client::Connect(options, out, error); });
}

void kvkeep_client_destroy(kvkeep_client* client) { delete client; }

int kvkeep_connected(const kvkeep_client* client) {
  return client != nullptr && client->impl->connected();
}

int kvkeep_wait_connected(const kvkeep_client* client, uint32_t timeout_ms) {
  return client != nullptr && client->impl->WaitConnected(kvkeep::client::Deadline(timeout_ms));
}

int kvkeep_stats(const kvkeep_client* client, kvkeep_client_stats* stats, kvkeep_error* error) {
  return Guarded(error, [&] { return kvkeep::client::ReadStats(client, stats, error); });
}

int kvkeep_client_path(const kvkeep_client* client, kvkeep_path_info* info, kvkeep_error* error) {
  return Guarded(error, [&] { return kvkeep::client::ReadPath(client, info, error); });
}

int kvkeep_namespace_open(kvkeep_client* client, const kvkeep_namespace_spec* spec,
                          uint32_t deadline_ms, kvkeep_namespace** out, kvkeep_error* error) {
  return Guarded(
      error, [&] { return kvkeep::client::OpenNamespace(client, spec, deadline_ms, out, error); });
}

void kvkeep_namespace_close(kvkeep_namespace* ns) { delete ns; }

void kvkeep_namespace_digest(const kvkeep_namespace* ns, uint8_t digest[16]) {
  if (digest == nullptr) return;
  const kvkeep::NamespaceDigest known =
      ns == nullptr ? kvkeep::NamespaceDigest{} : ns->impl.digest();
  std::memcpy(digest, known.bytes.data(), known.bytes.size());
}

int kvkeep_queue_create(uint32_t capacity, kvkeep_queue** out, kvkeep_error* error) {
  return Guarded(error, [&] { return kvkeep::client::CreateQueue(capacity, out, error); });
}

int kvkeep_queue_destroy(kvkeep_queue* queue, kvkeep_error* error) {
  return Guarded(error, [&] { return kvkeep::client::DestroyQueue(queue, error); });
}

int kvkeep_queue_fd(const kvkeep_queue* queue) { return queue == nullptr ? -1 : queue->impl->fd(); }

uint32_t kvkeep_queue_poll(kvkeep_queue* queue, kvkeep_completion* out, uint32_t max) {
  return queue == nullptr || out == nullptr ? 0 : queue->impl->Poll(out, max);
}

uint32_t kvkeep_queue_wait(kvkeep_queue* queue, kvkeep_completion* out, uint32_t max,
                           uint32_t timeout_ms) {
  if (queue == nullptr || out == nullptr) return 0;
  return queue->impl->Wait(out, max, std::chrono::milliseconds(timeout_ms));
}
