// NamespaceMeters: what has been served out of each namespace, in tokens: prefill that nobody had
// to compute. A client says with the namespace how many tokens a chunk is; a chunk of one of
// several parts is that part of them.
//
// Bounded: the first kMost namespaces that are opened, of one tenant at most its part of them, have
// a meter of their own for good; all others share one, so the sum is right. What is named here can
// be shown: a model's name is cut, and is ASCII without control characters.
//
// A plain part of the store's state: the store's lock protects it.
#pragma once

#include <absl/container/btree_map.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tiers/base/key.h"
#include "tiers/store/foreign_reads.h"
#include "tiers/store/snapshot.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

class NamespaceMeters {
 public:
  static constexpr size_t kMost = 64;

  explicit NamespaceMeters(size_t tenants);

  // Before it is counted of; again: nothing happens. `owner` by its name for people.
  void Open(const NamespaceDigest& ns, TenantId tenant, const std::string& owner,
            const NamespaceSpec& spec);
  // Chunks of it were handed to a reader.
  void Served(const NamespaceDigest& ns, const NamespaceSpec& spec, uint64_t chunks);

  // The part that was handed to readers of other tenants.
  ForeignReads& foreign() { return foreign_; }
  // The shared one last.
  std::vector<NamespaceSnapshot> snapshot() const;

 private:
  struct Meter {
    std::shared_ptr<const NamespaceName> name;
    double tokens = 0;
  };

  const size_t most_of_tenant_;
  std::vector<size_t> of_tenant_;                     // meters, by TenantId
  std::vector<Meter> meters_;                         // the shared one first
  ForeignReads foreign_;
  absl::btree_map<NamespaceDigest, uint32_t> known_;  // place in meters_
};

}  // namespace kvkeep::store_internal
