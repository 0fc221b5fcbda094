#include "tiers/remote/g4.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/tenant_tag.h"
#include "tiers/remote/fleet_keys.h"

namespace kvkeep {
namespace {

// Images under the fleet's earlier keys are read with the data keys of those.
std::unique_ptr<KeyRing> DeriveDataKeys(const G4Options& options, const G4Secrets& secrets) {
  std::vector<KeyRing::TenantKey> keys;
  std::vector<DataKey> earlier;
  for (const std::string& tenant : options.tenants) {
    const auto own = secrets.tenants.find(tenant);
    const Secret& from = own == secrets.tenants.end() ? secrets.fleet : own->second;
    keys.push_back({tenant, FleetKeys::DeriveDataKey(from, options.fleet_name, tenant)});
    if (own != secrets.tenants.end()) continue;
    for (const Secret& before : secrets.previous) {
      earlier.push_back(FleetKeys::DeriveDataKey(before, options.fleet_name, tenant));
    }
  }
  return KeyRing::Of(std::move(keys), std::move(earlier));
}

// InvalidArgument: two are the same. Then one could not be dropped without the other.
absl::StatusOr<KeySet> DeriveKeySet(const std::string& fleet_name, const G4Secrets& secrets) {
  std::map<Uuid, std::string> whose;
  absl::Status twice;
  const auto derive = [&](const Secret& secret, std::string named) {
    FleetKeys keys = FleetKeys::Derive(secret, fleet_name);
    const auto [other, is_new] = whose.try_emplace(keys.id, named);
    if (!is_new) {
      twice.Update(absl::InvalidArgumentError(
          absl::StrCat(named, " has the same key as ", other->second)));
    }
    return keys;
  };
  KeySet set{.fleet = derive(secrets.fleet, "fleet.key_file")};
  for (size_t i = 0; i < secrets.previous.size(); ++i) {
    set.previous.push_back(
        derive(secrets.previous[i], absl::StrCat("fleet.previous_key_files[", i, "]")));
  }
  for (const auto& [tenant, secret] : secrets.tenants) {
    set.tenants.emplace(TenantTagOf(tenant),
                        derive(secret, absl::StrCat("the g4_key_file of tenant '", tenant, "'")));
  }
  if (!twice.ok()) return twice;
  return set;
}

}  // namespace

G4::~G4() = default;

absl::StatusOr<std::unique_ptr<G4>> G4::Open(const G4Options& options, const G4Secrets& secrets,
                                             Clock* clock, RandomSource* random) {
  std::unique_ptr<G4> g4(new G4);
  KVKEEP_ASSIGN_OR_RETURN(KeySet keys, DeriveKeySet(options.fleet_name, secrets));
  g4->keys_ = DeriveDataKeys(options, secrets);
  KVKEEP_ASSIGN_OR_RETURN(g4->place_, OpenObjectPlace(options.place, clock, random));
  g4->watch_ = std::make_unique<HealthWatch>(clock);
  auto stoppable = std::make_unique<StoppableStore>(std::move(g4->place_.store));
  g4->store_ = stoppable.get();
  g4->source_ = std::make_unique<KeyedSource>(
      BucketSourceOptions{.epoch = options.epoch, .probes_per_second = options.probes_per_second},
      std::move(keys), std::move(stoppable), clock, random);
  return g4;
}

std::optional<ObjectStoreHealth> G4::Tick() {
  if (place_.credentials != nullptr) place_.credentials->Tick();
  return watch_->Tick(source_->fleets());
}

std::optional<absl::Status> G4::NewsOfKeys() {
  // Without any, the store's health says why.
  if (place_.credentials == nullptr || place_.credentials->Current() == nullptr) {
    return std::nullopt;
  }
  absl::Status status = place_.credentials->status();
  if (keys_told_ == !status.ok()) return std::nullopt;
  keys_told_ = !status.ok();
  return status;
}

G4Snapshot G4::snapshot() const {
  return {.where = place_.where,
          .health = health(),
          .source = counters(),
          .previous_keys = source_->previous_counters(),
          .checks = watch_->counters(),
          .requests = place_.s3 == nullptr ? std::nullopt : std::optional(place_.s3->counters()),
          .keys = place_.credentials == nullptr ? std::nullopt
                                                : std::optional(place_.credentials->counters()),
          .directory = place_.shared == nullptr ? std::nullopt
                                                : std::optional(place_.shared->counters())};
}

}  // namespace kvkeep
