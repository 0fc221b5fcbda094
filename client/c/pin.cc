// Implements kvkeep_pin.h: the pinned arena.
#include "client/c/arguments.h"
#include "client/c/border.h"
#include "client/c/kvkeep_pin.h"
#include "client/gpu_path.h"
#include "tiers/base/status_macros.h"

struct kvkeep_pinned_arena {
  kvkeep::client::PinnedArena impl;
};

namespace kvkeep::client {
namespace {

absl::Status Pin(kvkeep_client* client, const kvkeep_pin_request* given,
                 kvkeep_pinned_arena** out) {
  if (out == nullptr) return IsNull("out");
  *out = nullptr;
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_pin_request request, RequestOf(client, given));
  if (request.device > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("device: ", request.device));
  }
  PinArenaOptions options = {.device = static_cast<int>(request.device)};
  if (request.driver != nullptr) options.library = request.driver;
  auto arena = std::make_unique<kvkeep_pinned_arena>();
  KVKEEP_ASSIGN_OR_RETURN(arena->impl, GpuPath(client->impl.get()).PinArena(options));
  *out = arena.release();
  return absl::OkStatus();
}

absl::Status AwaitPinned(const kvkeep_pinned_arena* arena, uint32_t timeout_ms) {
  return arena == nullptr ? IsNull("arena") : arena->impl.Await(Deadline(timeout_ms));
}

absl::Status ReadPinned(const kvkeep_pinned_arena* arena, kvkeep_pin_stats* given) {
  if (arena == nullptr) return IsNull("arena");
  KVKEEP_ASSIGN_OR_RETURN(const auto reply, Reply<kvkeep_pin_stats>::Of("stats", given));
  const PinnedArena::Stats now = arena->impl.stats();
  kvkeep_pin_stats answer = {.finished = now.finished ? 1u : 0u,
                             .pinned_bytes = now.pinned_bytes,
                             .refused_bytes = now.refused_bytes};
  Report(now.first_refusal, &answer.first_refusal);
  reply.Write(answer);
  return absl::OkStatus();
}

}  // namespace
}  // namespace kvkeep::client

using kvkeep::client::Guarded;
using kvkeep::client::Report;

int kvkeep_arena_pin(kvkeep_client* client, const kvkeep_pin_request* request,
                     kvkeep_pinned_arena** out, kvkeep_error* error) {
  return Guarded(error, [&] { return Report(kvkeep::client::Pin(client, request, out), error); });
}

int kvkeep_pinned_arena_wait(const kvkeep_pinned_arena* arena, uint32_t timeout_ms,
                             kvkeep_error* error) {
  return Guarded(error,
                 [&] { return Report(kvkeep::client::AwaitPinned(arena, timeout_ms), error); });
}

int kvkeep_pinned_arena_stats(const kvkeep_pinned_arena* arena, kvkeep_pin_stats* stats,
                              kvkeep_error* error) {
  return Guarded(error, [&] { return Report(kvkeep::client::ReadPinned(arena, stats), error); });
}

int kvkeep_pinned_arena_covers(const kvkeep_pinned_arena* arena, const void* data, uint64_t bytes) {
  return arena != nullptr && data != nullptr &&
         arena->impl.Covers({static_cast<const std::byte*>(data), bytes});
}

void kvkeep_pinned_arena_free(kvkeep_pinned_arena* arena) { delete arena; }
