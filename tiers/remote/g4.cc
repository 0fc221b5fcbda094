#include "tiers/remote/g4.h"

#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/remote/fleet_keys.h"

namespace kvkeep {
namespace {

std::unique_ptr<KeyRing> DeriveKeys(const G4Options& options, const Secret& fleet_key) {
  std::vector<KeyRing::TenantKey> keys;
  for (const std::string& tenant : options.tenants) {
    keys.push_back({tenant, FleetKeys::DeriveDataKey(fleet_key, options.fleet_name, tenant)});
  }
  return KeyRing::Of(std::move(keys));
}

}  // namespace

G4::~G4() = default;

absl::StatusOr<std::unique_ptr<G4>> G4::Open(const G4Options& options, const Secret& fleet_key,
                                             Clock* clock, RandomSource* random) {
  std::unique_ptr<G4> g4(new G4);
  if (options.encryption) g4->keys_ = DeriveKeys(options, fleet_key);
  KVKEEP_ASSIGN_OR_RETURN(g4->place_, OpenObjectPlace(options.place, clock, random));
  g4->watch_ = std::make_unique<HealthWatch>(clock);
  auto stoppable = std::make_unique<StoppableStore>(std::move(g4->place_.store));
  g4->store_ = stoppable.get();
  g4->source_ = std::make_unique<BucketSource>(
      BucketSourceOptions{.epoch = options.epoch, .probes_per_second = options.probes_per_second},
      FleetKeys::Derive(fleet_key, options.fleet_name), std::move(stoppable), clock, random);
  return g4;
}

std::optional<ObjectStoreHealth> G4::Tick() {
  if (place_.credentials != nullptr) place_.credentials->Tick();
  return watch_->Tick(*source_);
}

G4Snapshot G4::snapshot() const {
  return {.where = place_.where,
          .health = health(),
          .source = counters(),
          .checks = watch_->counters(),
          .requests = place_.s3 == nullptr ? std::nullopt : std::optional(place_.s3->counters())};
}

}  // namespace kvkeep
