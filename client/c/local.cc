// Implements kvkeep.h: the local path's additions, chunks in place, staging and registered memory.
#include "client/c/arguments.h"
#include "client/c/border.h"
#include "client/values/shared_memory.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"

// The views and the memory they point to are laid out once, and constant from then on.
struct kvkeep_acquired {
  kvkeep::client::Acquired impl;
  std::vector<kvkeep_const_buffer> runs;  // of all views, one after the other
  std::vector<kvkeep_chunk_view> views;
};
struct kvkeep_staging {
  kvkeep::client::StagingBuffer impl;
};
struct kvkeep_memory {
  kvkeep::client::RegisteredMemory impl;
};

namespace kvkeep::client {
namespace {

// ---------------------------------------------------------------- acquire

std::unique_ptr<kvkeep_acquired> LayOut(Acquired acquired) {
  auto handle = std::make_unique<kvkeep_acquired>();
  handle->impl = std::move(acquired);
  size_t runs = 0;
  for (const ChunkView& chunk : handle->impl.chunks) {
    runs += chunk.runs.size() + chunk.metadata.size();
  }
  handle->runs.reserve(runs);  // so that they stay in place
  const auto lay = [&](const auto& spans) {
    const size_t first = handle->runs.size();
    for (const auto& span : spans) handle->runs.push_back({span.data(), span.size()});
    return handle->runs.data() + first;
  };
  for (const ChunkView& chunk : handle->impl.chunks) {
    handle->views.push_back({.chunk = chunk.chunk,
                             .run_count = static_cast<uint32_t>(chunk.runs.size()),
                             .payload_bytes = chunk.payload_bytes,
                             .runs = lay(chunk.runs),
                             .metadata = lay(chunk.metadata),
                             .metadata_run_count = static_cast<uint32_t>(chunk.metadata.size())});
  }
  return handle;
}

void Answer(Acquired acquired, const Reply<kvkeep_acquire_reply>& reply) {
  kvkeep_acquire_reply answer = {
      .leading_keys = acquired.leading_keys,
      .leased_keys = acquired.leased_keys,
      .chunk_count = static_cast<uint32_t>(acquired.chunks.size()),
  };
  if (!acquired.chunks.empty()) answer.acquired = LayOut(std::move(acquired)).release();
  reply.Write(answer);
}

absl::Status StartAcquire(kvkeep_client* client, const kvkeep_acquire_request* given,
                          kvkeep_acquire_reply* given_reply, Finish finish) {
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_acquire_request request, RequestOf(client, given));
  KVKEEP_ASSIGN_OR_RETURN(const auto reply, Reply<kvkeep_acquire_reply>::Of("reply", given_reply));
  KVKEEP_ASSIGN_OR_RETURN(const ChunkSelection selection, SelectionOf(request.keys));
  KVKEEP_RETURN_IF_ERROR(
      CheckFlags(request.flags, KVKEEP_ACQUIRE_ALL_PRESENT | KVKEEP_ACQUIRE_TRANSIENT));
  reply.Clear();
  const AcquireOptions options = {
      .parts = selection.parts,
      .all_present = (request.flags & KVKEEP_ACQUIRE_ALL_PRESENT) != 0,
      .transient = (request.flags & KVKEEP_ACQUIRE_TRANSIENT) != 0,
      .deadline = Deadline(request.deadline_ms),
  };
  client->impl->Acquire(
      *selection.ns, selection.keys, options,
      [reply, finish = std::move(finish)](absl::StatusOr<Acquired> acquired) mutable {
        if (acquired.ok()) Answer(*std::move(acquired), reply);
        std::move(finish)(acquired.status(), "");
      });
  return absl::OkStatus();
}

absl::Status CheckIndex(const kvkeep_acquired* acquired, uint32_t index) {
  if (acquired == nullptr) return IsNull("acquired");
  if (index < acquired->views.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("index: ", index, " of ", acquired->views.size(), " chunks"));
}

absl::Status WaitPieces(const kvkeep_acquired* acquired, uint32_t index, uint32_t pieces,
                        uint32_t timeout_ms) {
  KVKEEP_RETURN_IF_ERROR(CheckIndex(acquired, index));
  const uint64_t all = PieceCount(acquired->views[index].payload_bytes);
  return acquired->impl.WaitPieces(index, std::min<uint64_t>(pieces, all), Deadline(timeout_ms));
}

// ---------------------------------------------------------------- copies

// Fills the caller's buffers from the first on.
class Scatter {
 public:
  explicit Scatter(std::span<const kvkeep_buffer> to) : to_(to) {}
  void Append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      while (to_.front().bytes == at_) {
        to_ = to_.subspan(1);
        at_ = 0;
      }
      const size_t fits = std::min<uint64_t>(bytes.size(), to_.front().bytes - at_);
      std::memcpy(static_cast<char*>(to_.front().data) + at_, bytes.data(), fits);
      at_ += fits;
      bytes = bytes.subspan(fits);
    }
  }

 private:
  std::span<const kvkeep_buffer> to_;
  uint64_t at_ = 0;  // in the first buffer
};

// Appends bytes [begin, end) of a chunk's payload.
void AppendRange(const kvkeep_chunk_view& view, uint64_t begin, uint64_t end, Scatter* out) {
  uint64_t run_begin = 0;
  for (const kvkeep_const_buffer& run : std::span(view.runs, view.run_count)) {
    const uint64_t run_end = run_begin + run.bytes;
    const uint64_t from = std::max(begin, run_begin), to = std::min(end, run_end);
    if (from < to) {
      out->Append({static_cast<const std::byte*>(run.data) + (from - run_begin), to - from});
    }
    run_begin = run_end;
  }
}

absl::StatusOr<uint64_t> BytesWanted(const kvkeep_copy_request& request, uint64_t payload_bytes) {
  if (request.to == nullptr && request.to_count != 0) return IsNull("to");
  const uint64_t most = payload_bytes - std::min(request.offset, payload_bytes);
  uint64_t wanted = 0;
  for (uint32_t i = 0; i < request.to_count; ++i) {
    const kvkeep_buffer& to = request.to[i];
    if (to.data == nullptr && to.bytes != 0) return IsNull(absl::StrCat("to[", i, "].data"));
    if (to.bytes > most - wanted) {
      return absl::OutOfRangeError(absl::StrCat(
          "to: more than the ", most, " bytes of the payload from ", request.offset, " on"));
    }
    wanted += to.bytes;
  }
  return wanted;
}

absl::Status Copy(const kvkeep_acquired* acquired, const kvkeep_copy_request* given) {
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_copy_request request, CopyIn("request", given));
  KVKEEP_RETURN_IF_ERROR(CheckIndex(acquired, request.index));
  const kvkeep_chunk_view& view = acquired->views[request.index];
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t wanted, BytesWanted(request, view.payload_bytes));
  const auto give_up = std::chrono::steady_clock::now() + Deadline(request.timeout_ms);
  Scatter out(std::span(request.to, request.to_count));
  const uint64_t end = request.offset + wanted;
  for (uint64_t at = request.offset; at < end;) {
    const uint64_t piece = at / kPieceBytes;
    const auto left = std::chrono::ceil<Deadline>(give_up - std::chrono::steady_clock::now());
    KVKEEP_RETURN_IF_ERROR(
        acquired->impl.WaitPieces(request.index, piece + 1, std::max(left, Deadline(0))));
    const uint64_t to = std::min(end, (piece + 1) * kPieceBytes);
    AppendRange(view, at, to, &out);
    at = to;
  }
  if (acquired->impl.valid()) return absl::OkStatus();
  return absl::FailedPreconditionError("the lease was revoked, or the daemon is gone");
}

// ---------------------------------------------------------------- memory for puts

absl::Status AllocateStaging(kvkeep_client* client, uint64_t bytes, kvkeep_buffer* memory,
                             kvkeep_staging** out) {
  if (out == nullptr) return IsNull("out");
  *out = nullptr;
  if (client == nullptr) return IsNull("client");
  if (memory == nullptr) return IsNull("memory");
  auto staging = std::make_unique<kvkeep_staging>();
  KVKEEP_ASSIGN_OR_RETURN(staging->impl, client->impl->AllocateStaging(bytes));
  *memory = {staging->impl.memory().data(), staging->impl.memory().size()};
  *out = staging.release();
  return absl::OkStatus();
}

absl::Status RegisterMemory(kvkeep_client* client, int fd, std::span<const std::byte> mapping,
                            const RegisterOptions& options, kvkeep_memory** out) {
  if (out == nullptr) return IsNull("out");
  *out = nullptr;
  if (client == nullptr) return IsNull("client");
  if (fd < 0) return absl::InvalidArgumentError(absl::StrCat("fd: ", fd));
  if (mapping.data() == nullptr) return IsNull("mapping");
  if (mapping.empty()) return absl::InvalidArgumentError("bytes: 0");
  auto memory = std::make_unique<kvkeep_memory>();
  KVKEEP_ASSIGN_OR_RETURN(memory->impl, client->impl->RegisterMemory(fd, mapping, options));
  *out = memory.release();
  return absl::OkStatus();
}

}  // namespace
}  // namespace kvkeep::client

using kvkeep::client::Async;
using kvkeep::client::Blocking;
using kvkeep::client::Finish;
using kvkeep::client::Guarded;
using kvkeep::client::Report;

int kvkeep_acquire(kvkeep_client* client, const kvkeep_acquire_request* request,
                   kvkeep_acquire_reply* reply, kvkeep_error* error) {
  return Blocking(error, [&](Finish finish) {
    return kvkeep::client::StartAcquire(client, request, reply, std::move(finish));
  });
}

int kvkeep_acquire_async(kvkeep_client* client, const kvkeep_acquire_request* request,
                         kvkeep_acquire_reply* reply, kvkeep_queue* queue, void* user_data,
                         kvkeep_error* error) {
  return Async({queue, user_data, KVKEEP_OP_ACQUIRE}, error, [&](Finish finish) {
    return kvkeep::client::StartAcquire(client, request, reply, std::move(finish));
  });
}

void kvkeep_acquired_release(kvkeep_acquired* acquired) { delete acquired; }

const kvkeep_chunk_view* kvkeep_acquired_chunks(const kvkeep_acquired* acquired) {
  return acquired == nullptr ? nullptr : acquired->views.data();
}

uint32_t kvkeep_acquired_ready(const kvkeep_acquired* acquired, uint32_t index) {
  if (!kvkeep::client::CheckIndex(acquired, index).ok()) return 0;
  return static_cast<uint32_t>(acquired->impl.pieces_ready(index));
}

int kvkeep_acquired_wait(const kvkeep_acquired* acquired, uint32_t index, uint32_t pieces,
                         uint32_t timeout_ms, kvkeep_error* error) {
  return Guarded(error, [&] {
    return Report(kvkeep::client::WaitPieces(acquired, index, pieces, timeout_ms), error);
  });
}

int kvkeep_acquired_valid(const kvkeep_acquired* acquired) {
  return acquired != nullptr && acquired->impl.valid();
}

int kvkeep_acquired_verify(const kvkeep_acquired* acquired, uint32_t index) {
  if (!kvkeep::client::CheckIndex(acquired, index).ok()) return 0;
  const uint64_t pieces = kvkeep::PieceCount(acquired->views[index].payload_bytes);
  return acquired->impl.pieces_ready(index) >= pieces && acquired->impl.Verify(index);
}

int kvkeep_acquired_copy(const kvkeep_acquired* acquired, const kvkeep_copy_request* request,
                         kvkeep_error* error) {
  return Guarded(error, [&] { return Report(kvkeep::client::Copy(acquired, request), error); });
}

int kvkeep_staging_allocate(kvkeep_client* client, uint64_t bytes, kvkeep_buffer* memory,
                            kvkeep_staging** out, kvkeep_error* error) {
  return Guarded(error, [&] {
    return Report(kvkeep::client::AllocateStaging(client, bytes, memory, out), error);
  });
}

int kvkeep_staging_in_use(const kvkeep_staging* staging) {
  return staging != nullptr && staging->impl.in_use();
}

void kvkeep_staging_free(kvkeep_staging* staging) { delete staging; }

int kvkeep_memory_register(kvkeep_client* client, int fd, const void* mapping, uint64_t bytes,
                           kvkeep_memory** out, kvkeep_error* error) {
  return Guarded(error, [&] {
    return Report(kvkeep::client::RegisterMemory(
                      client, fd, {static_cast<const std::byte*>(mapping), bytes}, {}, out),
                  error);
  });
}

int kvkeep_memory_register_reused(kvkeep_client* client, int fd, const void* mapping,
                                  uint64_t bytes, kvkeep_memory** out, kvkeep_error* error) {
  return Guarded(error, [&] {
    return Report(
        kvkeep::client::RegisterMemory(client, fd, {static_cast<const std::byte*>(mapping), bytes},
                                       {.reused = true}, out),
        error);
  });
}

int kvkeep_memory_in_use(const kvkeep_memory* memory) {
  return memory != nullptr && memory->impl.in_use();
}

void kvkeep_memory_unregister(kvkeep_memory* memory) { delete memory; }
