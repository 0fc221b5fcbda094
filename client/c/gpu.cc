// Implements kvkeep_gpu.h: registered GPU memory, puts and gets of its runs.
#include "client/c/arguments.h"
#include "client/c/border.h"
#include "client/c/kvkeep_gpu.h"
#include "client/c/outcomes.h"
#include "client/gpu_path.h"
#include "tiers/base/status_macros.h"

struct kvkeep_gpu_region {
  kvkeep::client::GpuRegion impl;
};
struct kvkeep_gpu_use {
  std::shared_ptr<kvkeep::client::GpuUse> impl;
};

namespace kvkeep::client {
namespace {

// ---------------------------------------------------------------- registered memory

absl::Status Register(kvkeep_client* client, const kvkeep_gpu_range* given,
                      kvkeep_gpu_region** out) {
  if (out == nullptr) return IsNull("out");
  *out = nullptr;
  if (client == nullptr) return IsNull("client");
  constexpr size_t kFirstPublished = offsetof(kvkeep_gpu_range, flags);
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_gpu_range read, CopyIn("range", given, kFirstPublished));
  KVKEEP_RETURN_IF_ERROR(CheckFlags(read.flags, KVKEEP_GPU_REUSED));
  if (read.address == 0) return absl::InvalidArgumentError("address: 0");
  if (read.bytes == 0) return absl::InvalidArgumentError("bytes: 0");
  GpuRange range = {.address = read.address,
                    .bytes = read.bytes,
                    .reused = (read.flags & KVKEEP_GPU_REUSED) != 0};
  if (read.driver != nullptr) range.library = read.driver;
  auto region = std::make_unique<kvkeep_gpu_region>();
  GpuPath path(client->impl.get());
  KVKEEP_ASSIGN_OR_RETURN(region->impl, path.Register(range, Deadline(read.deadline_ms)));
  *out = region.release();
  return absl::OkStatus();
}

absl::Status Unregister(kvkeep_gpu_region* region, uint32_t timeout_ms) {
  if (region == nullptr) return IsNull("region");
  return region->impl.Unregister(Deadline(timeout_ms));
}

absl::Status Usable(const kvkeep_gpu_region* region) {
  return region == nullptr ? IsNull("region") : region->impl.usable();
}

absl::Status ReadStats(const kvkeep_client* client, kvkeep_gpu_stats* given) {
  if (client == nullptr) return IsNull("client");
  KVKEEP_ASSIGN_OR_RETURN(const auto reply, Reply<kvkeep_gpu_stats>::Of("stats", given));
  const GpuStats now = GpuPath(client->impl.get()).stats();
  reply.Write({.registered = now.registered,
               .registered_again = now.registered_again,
               .refused = now.refused,
               .unanswered = now.unanswered,
               .bytes_put = now.bytes_put,
               .bytes_got = now.bytes_got});
  return absl::OkStatus();
}

// ---------------------------------------------------------------- put and get

template <typename Request>
std::shared_ptr<GpuUse> UseOf(const Request& request) {
  return request.use == nullptr ? nullptr : request.use->impl;
}

absl::Status StartPut(kvkeep_client* client, const kvkeep_gpu_put_request* given, Finish finish) {
  constexpr size_t kFirstPublished = offsetof(kvkeep_gpu_put_request, use);
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_gpu_put_request request,
                          RequestOf(client, given, kFirstPublished));
  KVKEEP_RETURN_IF_ERROR(CheckChunkList(request));
  KVKEEP_RETURN_IF_ERROR(
      CheckFlags(request.flags, KVKEEP_PUT_DURABLE | KVKEEP_PUT_TRANSIENT | KVKEEP_PUT_NO_G3));
  KVKEEP_ASSIGN_OR_RETURN(std::vector<GpuPutChunk> chunks,
                          ChunksOf<GpuPutChunk>(request, GpuPutChunkOf));
  std::fill_n(request.outcomes, request.chunk_count, uint32_t{KVKEEP_PUT_UNFINISHED});
  GpuPath(client->impl.get())
      .Put(request.ns->impl, std::move(chunks),
           {.put = PutOptionsOf(request.flags, request.deadline_ms), .use = UseOf(request)},
           [request, finish = std::move(finish)](absl::StatusOr<PutResult> put) mutable {
             std::string note;
             if (put.ok()) note = WriteOutcomes(*put, {request.outcomes, request.chunk_count});
             std::move(finish)(put.ok() ? put->error : put.status(), note);
           });
  return absl::OkStatus();
}

absl::Status MakeUse(kvkeep_gpu_use** out) {
  if (out == nullptr) return IsNull("out");
  *out = new kvkeep_gpu_use{std::make_shared<GpuUse>()};
  return absl::OkStatus();
}

absl::Status StartGet(kvkeep_client* client, const kvkeep_gpu_get_request* given, Finish finish) {
  constexpr size_t kFirstPublished = offsetof(kvkeep_gpu_get_request, use);
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_gpu_get_request request,
                          RequestOf(client, given, kFirstPublished));
  KVKEEP_RETURN_IF_ERROR(CheckChunkList(request));
  KVKEEP_RETURN_IF_ERROR(CheckFlags(request.flags, KVKEEP_GET_TRANSIENT));
  KVKEEP_RETURN_IF_ERROR(CheckMetadataRooms(request.metadata, request.chunk_count));
  KVKEEP_ASSIGN_OR_RETURN(std::vector<GpuGetChunk> chunks,
                          ChunksOf<GpuGetChunk>(request, GpuGetChunkOf));
  const GpuGetOptions options = {
      .lease = request.lease == nullptr ? nullptr : &request.lease->impl,
      .transient = (request.flags & KVKEEP_GET_TRANSIENT) != 0,
      .deadline = Deadline(request.deadline_ms),
      .use = UseOf(request),
  };
  std::fill_n(request.outcomes, request.chunk_count, kvkeep_get_outcome{});
  GpuPath(client->impl.get())
      .Get(request.ns->impl, std::move(chunks), options,
           [request, finish = std::move(finish)](absl::StatusOr<GetResult> got) mutable {
             if (got.ok()) {
               WriteOutcomes(*got, {request.outcomes, request.chunk_count}, request.metadata);
             }
             std::move(finish)(got.ok() ? got->error : got.status(), "");
           });
  return absl::OkStatus();
}

}  // namespace
}  // namespace kvkeep::client

using kvkeep::client::Async;
using kvkeep::client::Blocking;
using kvkeep::client::Finish;
using kvkeep::client::Guarded;
using kvkeep::client::Report;

int kvkeep_gpu_register(kvkeep_client* client, const kvkeep_gpu_range* range,
                        kvkeep_gpu_region** out, kvkeep_error* error) {
  return Guarded(error,
                 [&] { return Report(kvkeep::client::Register(client, range, out), error); });
}

uint64_t kvkeep_gpu_region_id(const kvkeep_gpu_region* region) {
  return region == nullptr ? 0 : region->impl.id().value();
}

int kvkeep_gpu_region_in_use(const kvkeep_gpu_region* region) {
  return region != nullptr && region->impl.in_use();
}

int kvkeep_gpu_region_usable(const kvkeep_gpu_region* region, kvkeep_error* error) {
  return Guarded(error, [&] { return Report(kvkeep::client::Usable(region), error); });
}

int kvkeep_gpu_unregister(kvkeep_gpu_region* region, uint32_t timeout_ms, kvkeep_error* error) {
  return Guarded(error,
                 [&] { return Report(kvkeep::client::Unregister(region, timeout_ms), error); });
}

void kvkeep_gpu_region_free(kvkeep_gpu_region* region) { delete region; }

int kvkeep_gpu_put(kvkeep_client* client, const kvkeep_gpu_put_request* request,
                   kvkeep_error* error) {
  return Blocking(error, [&](Finish finish) {
    return kvkeep::client::StartPut(client, request, std::move(finish));
  });
}

int kvkeep_gpu_put_async(kvkeep_client* client, const kvkeep_gpu_put_request* request,
                         kvkeep_queue* queue, void* user_data, kvkeep_error* error) {
  return Async({queue, user_data, KVKEEP_OP_GPU_PUT}, error, [&](Finish finish) {
    return kvkeep::client::StartPut(client, request, std::move(finish));
  });
}

int kvkeep_gpu_get(kvkeep_client* client, const kvkeep_gpu_get_request* request,
                   kvkeep_error* error) {
  return Blocking(error, [&](Finish finish) {
    return kvkeep::client::StartGet(client, request, std::move(finish));
  });
}

int kvkeep_gpu_get_async(kvkeep_client* client, const kvkeep_gpu_get_request* request,
                         kvkeep_queue* queue, void* user_data, kvkeep_error* error) {
  return Async({queue, user_data, KVKEEP_OP_GPU_GET}, error, [&](Finish finish) {
    return kvkeep::client::StartGet(client, request, std::move(finish));
  });
}

int kvkeep_gpu_use_create(kvkeep_gpu_use** out, kvkeep_error* error) {
  return Guarded(error, [&] { return Report(kvkeep::client::MakeUse(out), error); });
}

int kvkeep_gpu_use_in_use(const kvkeep_gpu_use* use) {
  return use != nullptr && use->impl->in_use();
}

int kvkeep_gpu_use_is_awaited(const kvkeep_gpu_use* use) {
  return use != nullptr && use->impl->is_awaited();
}

void kvkeep_gpu_use_free(kvkeep_gpu_use* use) { delete use; }

int kvkeep_gpu_get_stats(const kvkeep_client* client, kvkeep_gpu_stats* stats,
                         kvkeep_error* error) {
  return Guarded(error, [&] { return Report(kvkeep::client::ReadStats(client, stats), error); });
}
