// Owners: which tenant each namespace belongs to, and which tenants may read it.
//
// Owns a copy of the tenants as the store was started with them. It never changes after its
// construction, so any thread may ask, with the store's lock or without.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tiers/base/key.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

class Owners {
 public:
  // `tenants`: in the order of their numbers. REQUIRES: no two tags are equal (Store::Create checks
  // this).
  explicit Owners(const std::vector<TenantOptions>& tenants);

  size_t count() const { return tenants_.size(); }
  // Returns the number after the last tenant's. It owns chunks that no configured tenant can name.
  TenantId nobody() const { return TenantId(static_cast<uint32_t>(tenants_.size())); }
  const TenantOptions& at(TenantId tenant) const { return tenants_.at(tenant.value()); }

  // Returns the tenant whose tag the digest begins with; nobody(): there is none.
  TenantId OwnerOf(const NamespaceDigest& ns) const;
  // Returns whether sessions of `reader` may open the namespaces of `owner`: it is the same tenant,
  // or one of its readers.
  bool MayRead(TenantId reader, TenantId owner) const;
  // Returns the tenant by its name, or `own` for no name. PermissionDenied: `own` may not read it.
  absl::StatusOr<TenantId> Find(TenantId own, const std::string& name) const;

 private:
  const std::vector<TenantOptions> tenants_;
  absl::btree_map<uint32_t, TenantId> tags_;
};

}  // namespace kvkeep::store_internal
