#include "server/life/arena_owners.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <span>
#include <string>

#include "tiers/base/checksum.h"

namespace kvkeep {
namespace {

template <typename T>
std::string Sorted(std::vector<T> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return absl::StrJoin(numbers, ",");
}

std::string ReadersOf(const TenantOptions& tenant, const std::vector<TenantOptions>& tenants) {
  std::vector<std::string> names;  // not numbers, which shift when a tenant is removed
  for (const TenantId reader : tenant.readers) {
    const std::string& name = tenants[reader.value()].name;
    names.push_back(absl::StrCat(name.size(), ":", name));
  }
  return Sorted(std::move(names));
}

std::string ConnectingTo(const UnixSocketOptions& local) {
  const UnixSocketOptions usual;
  if (local.path.empty()) return "none";
  std::string flat;
  if (local.mode != usual.mode) absl::StrAppend(&flat, "mode:", local.mode, ";");
  if (!local.group.empty()) {
    absl::StrAppend(&flat, "group:", local.group.size(), ":", local.group, ";");
  }
  if (!local.policy.uids.empty()) absl::StrAppend(&flat, "uids:", Sorted(local.policy.uids), ";");
  if (!local.policy.gids.empty()) absl::StrAppend(&flat, "gids:", Sorted(local.policy.gids), ";");
  return flat;
}

}  // namespace

uint64_t NameArenaOwners(const std::vector<TenantOptions>& tenants,
                         const std::vector<TenantListener>& listeners) {
  std::string flat;
  for (const TenantOptions& tenant : tenants) {
    absl::StrAppend(&flat, tenant.name.size(), ":", tenant.name, ":", tenant.g2_segments, ";");
  }
  for (size_t i = 0; i < tenants.size(); ++i) {
    const std::string readers = ReadersOf(tenants[i], tenants);
    if (!readers.empty()) absl::StrAppend(&flat, "readers ", i, " ", readers, ";");
  }
  for (size_t i = 0; i < listeners.size(); ++i) {
    const std::string connecting = ConnectingTo(listeners[i].local);
    if (!connecting.empty()) absl::StrAppend(&flat, "local ", i, " ", connecting, ";");
  }
  return flat.empty() ? 0 : Xxh3(std::as_bytes(std::span(flat)));
}

}  // namespace kvkeep
