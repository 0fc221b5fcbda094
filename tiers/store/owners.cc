#include "tiers/store/owners.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/tenant_tag.h"

namespace kvkeep::store_internal {

Owners::Owners(const std::vector<TenantOptions>& tenants) : tenants_(tenants) {
  for (TenantId tenant(0); tenant != nobody(); ++tenant) {
    KVKEEP_CHECK(tags_.emplace(TenantOptions::Tag(at(tenant).name), tenant).second);
  }
}

TenantId Owners::OwnerOf(const NamespaceDigest& ns) const {
  const auto owner = tags_.find(TenantTagOf(ns));
  return owner != tags_.end() ? owner->second : nobody();
}

bool Owners::MayRead(TenantId reader, TenantId owner) const {
  const std::vector<TenantId>& readers = at(owner).readers;
  return reader == owner || std::find(readers.begin(), readers.end(), reader) != readers.end();
}

absl::StatusOr<TenantId> Owners::Find(TenantId own, const std::string& name) const {
  if (name.empty()) return own;
  for (TenantId tenant(0); tenant != nobody(); ++tenant) {
    if (name == at(tenant).shown_name() && MayRead(own, tenant)) return tenant;
  }
  return absl::PermissionDeniedError(
      absl::StrCat("tenant: there is no '", name, "' that lets this session's tenant read"));
}

}  // namespace kvkeep::store_internal
