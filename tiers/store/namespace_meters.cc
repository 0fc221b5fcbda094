#include "tiers/store/namespace_meters.h"

#include <algorithm>

namespace kvkeep::store_internal {
namespace {

constexpr size_t kMostOfName = 64;

std::string Shown(const std::string& model) {
  std::string shown = model.substr(0, kMostOfName);
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return shown;
}

double TokensOf(const NamespaceSpec& spec, uint64_t chunks) {
  return static_cast<double>(chunks) * spec.tokens_per_chunk / spec.parts;
}

}  // namespace

NamespaceMeters::NamespaceMeters(size_t tenants)
    : most_of_tenant_(std::max<size_t>(1, kMost / tenants)), of_tenant_(tenants) {
  meters_.reserve(kMost + 1);
  meters_.push_back({.name = std::make_shared<NamespaceName>(
                         NamespaceName{.tenant = "other", .model = "other", .digest = "other"})});
}

void NamespaceMeters::Open(const NamespaceDigest& ns, TenantId tenant, const std::string& owner,
                           const NamespaceSpec& spec) {
  if (known_.contains(ns) || meters_.size() > kMost) return;
  size_t& of_tenant = of_tenant_[tenant.value()];
  if (of_tenant >= most_of_tenant_) return;
  ++of_tenant;
  known_.emplace(ns, static_cast<uint32_t>(meters_.size()));
  meters_.push_back({.name = std::make_shared<NamespaceName>(NamespaceName{
                         .tenant = owner, .model = Shown(spec.model), .digest = ns.ToHex()})});
}

void NamespaceMeters::Served(const NamespaceDigest& ns, const NamespaceSpec& spec,
                             uint64_t chunks) {
  const auto found = known_.find(ns);
  meters_[found == known_.end() ? 0 : found->second].tokens += TokensOf(spec, chunks);
}

std::vector<NamespaceSnapshot> NamespaceMeters::snapshot() const {
  std::vector<NamespaceSnapshot> all;
  all.reserve(meters_.size());
  for (size_t i = 1; i <= meters_.size(); ++i) {
    const Meter& meter = meters_[i % meters_.size()];
    all.push_back({.name = meter.name, .tokens_served = meter.tokens});
  }
  return all;
}

}  // namespace kvkeep::store_internal
