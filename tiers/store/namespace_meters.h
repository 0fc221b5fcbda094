// NamespaceMeters: the tokens that were served out of each namespace. This is prefill that nobody
// had to compute. A client says how many tokens a chunk of the namespace has. If the namespace has
// several parts, a chunk counts as its part of these tokens.
//
// It is bounded: the first kMost namespaces that are opened have meters of their own for good,
// those of one tenant at most its part of them. All others share one meter, so the sum is right.
// All names can be shown: a model's name is cut, and is ASCII without control characters.
//
// It is a plain part of the store's state. The store's lock protects it.
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

  // Adds a namespace. Call it before the namespace is counted; for a known one it does nothing.
  // `owner`: the tenant's name, as people see it.
  void Open(const NamespaceDigest& ns, TenantId tenant, const std::string& owner,
            const NamespaceSpec& spec);
  // Counts chunks of the namespace that were handed to a reader.
  void Served(const NamespaceDigest& ns, const NamespaceSpec& spec, uint64_t chunks);

  // Counts the part that was handed to readers of other tenants.
  ForeignReads& foreign() { return foreign_; }
  // Returns the meters; the shared one is last.
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
