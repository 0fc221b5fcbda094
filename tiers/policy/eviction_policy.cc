#include "tiers/policy/eviction_policy.h"

#include "tiers/policy/arc_policy.h"
#include "tiers/policy/lfu_policy.h"
#include "tiers/policy/lru_policy.h"
#include "tiers/policy/reuse_policy.h"

namespace kvkeep {
namespace {

using Maker = std::unique_ptr<EvictionPolicy> (*)(const PolicyOptions& options);

template <typename Policy>
std::unique_ptr<EvictionPolicy> Make(const PolicyOptions& options) {
  return std::make_unique<Policy>(options);
}

std::unique_ptr<EvictionPolicy> MakeForSeconds(const PolicyOptions& options) {
  return std::make_unique<ReusePolicy>(options, Objective::kSeconds);
}

struct KnownPolicy {
  const char* name;
  Maker make;
};
constexpr KnownPolicy kKnownPolicies[] = {
    {"lru", &Make<LruPolicy>},     {"arc", &Make<ArcPolicy>},    {"lfu", &Make<LfuPolicy>},
    {"reuse", &Make<ReusePolicy>}, {"seconds", &MakeForSeconds},
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(absl::string_view name,
                                                   const PolicyOptions& options) {
  for (const KnownPolicy& known : kKnownPolicies) {
    if (name == known.name) return known.make(options);
  }
  return nullptr;
}

std::vector<std::string> EvictionPolicyNames() {
  std::vector<std::string> names;
  for (const KnownPolicy& known : kKnownPolicies) names.emplace_back(known.name);
  return names;
}

}  // namespace kvkeep
