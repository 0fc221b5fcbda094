// The tag of a tenant: the digests of all of its namespaces begin with it, and so tell their
// tenant. Pure functions.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>

#include "tiers/base/key.h"

namespace kvkeep {

// The default tenant's name is empty.
uint32_t TenantTagOf(absl::string_view tenant);
uint32_t TenantTagOf(const NamespaceDigest& ns);

}  // namespace kvkeep
