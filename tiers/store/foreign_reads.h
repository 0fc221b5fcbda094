// ForeignReads: which sessions were given chunks of another tenant since the last Take.
//
// It is bounded: it has an entry for each session and namespace, kMost at most. Further reads count
// in one entry without a reader. It is a plain part of the store's state. The store's lock protects
// it.
#pragma once

#include <absl/container/btree_map.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tiers/base/key.h"
#include "tiers/store/snapshot.h"

namespace kvkeep::store_internal {

class ForeignReads {
 public:
  static constexpr size_t kMost = 256;

  void Add(const std::shared_ptr<const SessionInfo>& reader, const NamespaceDigest& ns,
           TenantId owner, uint64_t chunks, uint64_t bytes) {
    const bool room = reads_.size() < kMost || reads_.contains({reader.get(), ns});
    ForeignRead& read = room ? reads_[{reader.get(), ns}] : others_;
    if (read.chunks == 0) read = {room ? reader : nullptr, ns, owner};
    read.chunks += chunks;
    read.bytes += bytes;
  }
  // Returns the entries and forgets them.
  std::vector<ForeignRead> Take() {
    std::vector<ForeignRead> taken;
    if (reads_.empty()) return taken;
    taken.reserve(reads_.size() + 1);
    for (auto& [key, read] : reads_) taken.push_back(std::move(read));
    if (others_.chunks > 0) taken.push_back(std::exchange(others_, ForeignRead()));
    reads_.clear();
    return taken;
  }

 private:
  // The entry holds the session's facts, so that no other has their address.
  absl::btree_map<std::pair<const SessionInfo*, NamespaceDigest>, ForeignRead> reads_;
  ForeignRead others_;
};

}  // namespace kvkeep::store_internal
