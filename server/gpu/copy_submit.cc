#include "server/gpu/copy_submit.h"

#include <span>
#include <vector>

namespace kvkeep {
namespace {

CUdeviceptr HostAddress(const std::byte* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

absl::Status SubmitOne(const GpuDriver& driver, const CopyPlan::Piece& piece,
                       CopyDirection direction, std::byte* host, CUstream stream) {
  const size_t bytes = piece.bytes;
  return direction == CopyDirection::kToArena
             ? driver.MemcpyDtoHAsync(static_cast<void*>(host), piece.address, bytes, stream)
             : driver.MemcpyHtoDAsync(piece.address, static_cast<const void*>(host), bytes, stream);
}

absl::Status SubmitBatch(const GpuDriver& driver, std::span<const CopyPlan::Piece> pieces,
                         CopyDirection direction, const GpuArena& arena, CUstream stream) {
  std::vector<CUdeviceptr> device, host;
  std::vector<size_t> sizes;
  device.reserve(pieces.size());
  host.reserve(pieces.size());
  sizes.reserve(pieces.size());
  for (const CopyPlan::Piece& piece : pieces) {
    device.push_back(piece.address);
    host.push_back(HostAddress(arena.At(piece.arena_offset)));
    sizes.push_back(piece.bytes);
  }
  const bool to_arena = direction == CopyDirection::kToArena;
  return driver.MemcpyBatch({.destinations = to_arena ? host.data() : device.data(),
                             .sources = to_arena ? device.data() : host.data(),
                             .sizes = sizes.data(),
                             .count = pieces.size()},
                            stream);
}

}  // namespace

Submitted SubmitCopies(const GpuDriver& driver, const CopyPlan& plan, CopyDirection direction,
                       const GpuArena& arena, CUstream stream) {
  Submitted submitted;
  for (size_t i = 0; i < plan.batches(); ++i) {
    const std::span<const CopyPlan::Piece> pieces = plan.batch(i);
    if (pieces.size() > 1 && driver.batch_copy_abi() != BatchCopyAbi::kNone) {
      submitted.status = SubmitBatch(driver, pieces, direction, arena, stream);
      ++submitted.calls;
      if (!submitted.status.ok()) return submitted;
      submitted.pieces += pieces.size();
      continue;
    }
    for (const CopyPlan::Piece& piece : pieces) {
      submitted.status = SubmitOne(driver, piece, direction, arena.At(piece.arena_offset), stream);
      ++submitted.calls;
      if (!submitted.status.ok()) return submitted;
      ++submitted.pieces;
    }
  }
  return submitted;
}

}  // namespace kvkeep
