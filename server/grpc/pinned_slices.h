// Slices of a message over memory that a pin keeps in place: gRPC sends the bytes from where they
// lie. Each slice has a reference to the pin, which goes when gRPC has sent it.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tiers/base/check.h"

namespace kvkeep {

// Appends slices over the bytes from `begin` to `end`. `run_at(offset, most)` returns those that
// lie in one run of memory from `offset` on, at most `most`, and at least one.
template <typename Pin, typename RunAt>
void AppendPinnedSlices(const std::shared_ptr<Pin>& pin, uint64_t begin, uint64_t end,
                        RunAt&& run_at, std::vector<grpc::Slice>* slices) {
  for (uint64_t at = begin; at < end;) {
    const std::span<const std::byte> run = run_at(at, end - at);
    KVKEEP_CHECK(!run.empty());
    // gRPC only reads it; its constructor wants a pointer to non-const.
    slices->emplace_back(
        const_cast<std::byte*>(run.data()), run.size(),
        [](void* held) { delete static_cast<std::shared_ptr<Pin>*>(held); },
        new std::shared_ptr<Pin>(pin));
    at += run.size();
  }
}

}  // namespace kvkeep
