// Copies of the fake driver between host and device memory, one by one and in batches.
//
// Rules, and where they are from (README.md):
// - A copy's host memory lies within one registration, or in none; else INVALID_VALUE. [doc] A
//   copy into memory registered READ_ONLY, or beyond the end of an allocation: INVALID_VALUE.
//   [assumed; a real one may break the context]
// - A copy with unregistered host memory returns when it is done. [doc: may; here always]
// - A batch's copies have no order: here backwards. On the null stream: INVALID_VALUE. Its
//   attributes have ascending indexes, the first 0, and a valid access order. [doc]
// - A batch of tens of thousands crashes or hangs the driver. [seen: 51,828 on 580.159.04]
#include "tests/fakes/cuda/copy.h"

#include <memory>
#include <utility>

#include "tests/fakes/cuda/state.h"
#include "tests/fakes/cuda/stream.h"

namespace kvkeep::fakecuda {
namespace {

enum class Place { kRegistered, kRegisteredReadOnly, kPageable, kDevice, kNowhere };

struct Located {
  Place place = Place::kNowhere;
  std::shared_ptr<Range> range;
};

Located Locate(State* state, uint64_t address, uint64_t bytes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  if (const std::shared_ptr<Range> first = FindRange(state, address, 1); first != nullptr) {
    const bool whole = FindRange(state, address, bytes) == first;
    const bool usable = first->kind != Range::Kind::kReserved || first->accessible;
    return {.place = whole && usable ? Place::kDevice : Place::kNowhere, .range = first};
  }
  const auto after = state->registered.lower_bound(address + bytes);
  if (after == state->registered.begin()) return {.place = Place::kPageable};
  const uint64_t base = std::prev(after)->first;
  const uint64_t registered = std::prev(after)->second.bytes;
  if (base + registered <= address) return {.place = Place::kPageable};
  // Memory registered only in part, or by two registrations, is refused.
  const bool whole = base <= address && address + bytes <= base + registered;
  if (!whole) return {.place = Place::kNowhere};
  const bool read_only = std::prev(after)->second.read_only;
  return {.place = read_only ? Place::kRegisteredReadOnly : Place::kRegistered};
}

struct Transfer {
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t bytes = 0;
};

// Adds one copy to `operation`; returns false if the driver would refuse it.
bool Add(State* state, const Transfer& transfer, Operation* operation, bool* pageable)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  const Located to = Locate(state, transfer.to, transfer.bytes);
  const Located from = Locate(state, transfer.from, transfer.bytes);
  if (to.place == Place::kNowhere || from.place == Place::kNowhere) return false;
  if (to.place == Place::kRegisteredReadOnly) return false;
  for (const Located* end : {&to, &from}) {
    if (end->range != nullptr) operation->ranges.push_back(end->range);
    *pageable |= end->place == Place::kPageable;
  }
  operation->parts.push_back({.to = reinterpret_cast<std::byte*>(transfer.to),
                              .from = reinterpret_cast<const std::byte*>(transfer.from),
                              .bytes = transfer.bytes});
  return true;
}

CUresult CopyOne(State* state, const Transfer& transfer, bool to_device, CUstream stream)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  const uint64_t device_end = to_device ? transfer.to : transfer.from;
  if (transfer.bytes == 0) return CUDA_SUCCESS;
  if (FindRange(state, device_end, transfer.bytes) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  bool pageable = false;
  if (!Add(state, transfer, &operation, &pageable)) return CUDA_ERROR_INVALID_VALUE;
  return Enqueue(state, stream, std::move(operation), pageable);
}

CUresult CopyBatch(const BatchArguments& batch, size_t* refused) {
  State& state = TheState();
  const Entry entry(&state, "cuMemcpyBatchAsync", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (batch.count == 0 || batch.stream == nullptr || batch.attribute_count == 0 ||
      batch.attribute_count > batch.count || batch.first_copies[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (batch.count > entry.settings().batch_limit) {
    Violation("cuMemcpyBatchAsync of more copies than drivers survive");
  }
  for (size_t i = 0; i < batch.attribute_count; ++i) {
    const CUmemcpySrcAccessOrder order = batch.attributes[i].srcAccessOrder;
    if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
        batch.first_copies[i] >= batch.count ||
        (i > 0 && batch.first_copies[i] <= batch.first_copies[i - 1])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  Operation operation;
  bool pageable = false;
  // Backwards: "copies within a batch are not guaranteed to execute in any specific order".
  for (size_t i = batch.count; i-- > 0;) {
    const Transfer transfer = {
        .to = batch.destinations[i], .from = batch.sources[i], .bytes = batch.sizes[i]};
    if (transfer.bytes == 0 || !Add(&state, transfer, &operation, &pageable)) {
      *refused = i;
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return Enqueue(&state, batch.stream, std::move(operation), pageable);
}

}  // namespace

CUresult MemcpyBatchAsync12(CUdeviceptr* destinations, CUdeviceptr* sources, size_t* sizes,
                            size_t count, CUmemcpyAttributes* attributes, size_t* first_copies,
                            size_t attribute_count, size_t* refused, CUstream stream) {
  return CopyBatch(
      {destinations, sources, sizes, count, attributes, first_copies, attribute_count, stream},
      refused);
}

extern "C" {

CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr* destinations, CUdeviceptr* sources,
                                       size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
                                       size_t* first_copies, size_t attribute_count,
                                       CUstream stream) {
  size_t refused = 0;
  return CopyBatch(
      {destinations, sources, sizes, count, attributes, first_copies, attribute_count, stream},
      &refused);
}

CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                                      CUstream stream) {
  State& state = TheState();
  const Entry entry(&state, "cuMemcpyHtoDAsync", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const Transfer transfer = {.to = to, .from = reinterpret_cast<uint64_t>(from), .bytes = bytes};
  return CopyOne(&state, transfer, true, stream);
}

CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  State& state = TheState();
  const Entry entry(&state, "cuMemcpyDtoHAsync", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const Transfer transfer = {.to = reinterpret_cast<uint64_t>(to), .from = from, .bytes = bytes};
  return CopyOne(&state, transfer, false, stream);
}

}  // extern "C"

}  // namespace kvkeep::fakecuda
