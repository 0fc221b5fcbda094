#include "tiers/remote/g4.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/tenant_tag.h"
#include "tiers/remote/fleet_keys.h"

namespace kvkeep {
namespace {

// Images under the fleet's earlier keys are read with data keys derived from these.
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

// InvalidArgument: two keys are the same, so that one could not be dropped without the other.
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

std::optional<S3StoreCounters> CountersOf(const std::vector<const S3Store*>& stores) {
  if (stores.empty()) return std::nullopt;
  S3StoreCounters all;
  for (const S3Store* const store : stores) all.Add(store->counters());
  return all;
}

constexpr char kNoEpoch[] = "EpochNotRead";

}  // namespace

G4::~G4() = default;

absl::StatusOr<std::unique_ptr<G4>> G4::Open(const G4Options& options, const G4Secrets& secrets,
                                             Clock* clock, RandomSource* random) {
  std::unique_ptr<G4> g4(new G4);
  KVKEEP_ASSIGN_OR_RETURN(KeySet keys, DeriveKeySet(options.fleet_name, secrets));
  g4->keys_ = DeriveDataKeys(options, secrets);
  KVKEEP_ASSIGN_OR_RETURN(g4->place_, OpenObjectPlace(options.place, clock, random));
  g4->watch_ = std::make_unique<HealthWatch>(clock);
  std::vector<Secret> epochs;
  epochs.push_back(Secret(keys.fleet.epoch.bytes()));
  for (const FleetKeys& before : keys.previous) epochs.push_back(Secret(before.epoch.bytes()));
  auto stoppable = std::make_unique<StoppableStore>(std::move(g4->place_.store));
  g4->store_ = stoppable.get();
  g4->epoch_ = std::make_unique<FleetEpoch>(std::move(epochs), stoppable.get(), clock);
  g4->source_ = std::make_unique<KeyedSource>(
      BucketSourceOptions{.epoch = options.epoch,
                          .begun = g4->epoch_.get(),
                          .probes_per_second = options.probes_per_second},
      std::move(keys), std::move(stoppable), clock, random);
  return g4;
}

std::optional<ObjectStoreHealth> G4::Tick() {
  if (place_.credentials != nullptr) place_.credentials->Tick();
  epoch_->Tick();
  const std::optional<ObjectStoreHealth> told = watch_->Tick(source_->fleets());
  const bool certain = epoch_->certain();
  const bool changed = certain != std::exchange(was_certain_, certain);
  ObjectStoreHealth now = health();
  if (told.has_value()) {
    // Told before: the store serves again, but the epoch is not certain.
    const bool known = told->state == ObjectStoreHealth::State::kWell && !certain && !changed;
    return known ? std::nullopt : std::optional(std::move(now));
  }
  // Trouble of the store itself was told already.
  const bool epochs = certain ? now.state == ObjectStoreHealth::State::kWell
                              : now.error.code == kNoEpoch;
  return changed && epochs ? std::optional(std::move(now)) : std::nullopt;
}

void G4::AwaitEpoch(std::chrono::milliseconds within) {
  epoch_->Tick();
  epoch_->AwaitFirst(within);
}

ObjectStoreHealth G4::health() const {
  ObjectStoreHealth health = watch_->health(source_->fleets());
  if (health.state != ObjectStoreHealth::State::kWell || epoch_->certain()) return health;
  const ObjectError why = epoch_->error();
  health.state = ObjectStoreHealth::State::kAway;
  health.error = {.code = kNoEpoch,
                  .message = absl::StrCat("the fleet's epoch was not read: ", why.code, " ",
                                          why.message),
                  .request_id = why.request_id};
  health.what_to_do =
      why.code == "NotAnEpoch"
          ? "kvkeep clear --g4, on one node, begins a new epoch"
          : "let the bucket's keys get and put objects below g4.prefix + \"1/epoch/\"";
  return health;
}

std::optional<absl::Status> G4::NewsOfKeys() {
  // Without credentials, the store's health says why.
  if (place_.credentials == nullptr || place_.credentials->Current() == nullptr) {
    return std::nullopt;
  }
  const absl::Status status = place_.credentials->status();
  if (status == keys_told_) return std::nullopt;
  keys_told_ = status;
  return status;
}

G4Snapshot G4::snapshot() const {
  return {.where = place_.where,
          .health = health(),
          .source = counters(),
          .previous_keys = source_->previous_counters(),
          .checks = watch_->counters(),
          .epoch = epoch_->number(),
          .epochs = epoch_->counters(),
          .requests = CountersOf(place_.s3),
          .keys = place_.credentials == nullptr ? std::nullopt
                                                : std::optional(place_.credentials->counters()),
          .directory = place_.shared == nullptr ? std::nullopt
                                                : std::optional(place_.shared->counters())};
}

}  // namespace kvkeep
