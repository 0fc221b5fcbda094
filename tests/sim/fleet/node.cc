#include "tests/sim/fleet/node.h"

#include <utility>

#include "tiers/base/check.h"
#include "tiers/remote/fleet_keys.h"
#include "tiers/remote/object_name.h"

namespace kvkeep {
namespace {

constexpr char kFleetName[] = "sim";

Secret FleetKey(size_t fleet) {
  Secret key;
  SeededRandom(fleet + 1).Fill(key.writable());
  return key;
}

}  // namespace

FleetNode::FleetNode(const FleetOptions& options, size_t number, size_t fleet,
                     MemoryObjects* bucket)
    : options_(options),
      fleet_(fleet),
      bucket_(*bucket),
      world_options_(options.world),
      faults_(options.faults),
      reachable_(options.bucket != FleetOptions::Bucket::kDead),
      random_(options.seed * 31 + number) {
  world_options_.seed = random_.NextU64();
  if (options.bucket != FleetOptions::Bucket::kNone) {
    world_options_.make_source = [this](ManualExecutor* executor, ManualClock* clock) {
      return MakeSource(executor, clock);
    };
    std::vector<KeyRing::TenantKey> keys(1);
    keys[0].key = FleetKeys::DeriveDataKey(FleetKey(fleet), kFleetName, "default");
    world_options_.source_keys = KeyRing::Of(std::move(keys));
  }
  world_ = std::make_unique<World>(world_options_);
  Start();
}

FleetNode::~FleetNode() {
  if (world_->running()) Kill();
}

std::unique_ptr<RemoteSource> FleetNode::MakeSource(ManualExecutor* executor, ManualClock* clock) {
  auto objects =
      std::make_unique<MemoryObjectStore>(&bucket_, executor, clock, random_.NextU64(), faults_);
  objects_ = objects.get();
  auto source = std::make_unique<BucketSource>(options_.source,
                                               FleetKeys::Derive(FleetKey(fleet_), kFleetName),
                                               std::move(objects), clock, &random_);
  source_ = source.get();
  return source;
}

void FleetNode::Start() {
  world_->Start();
  SetReachable(reachable_);
}

void FleetNode::Kill() {
  if (objects_ != nullptr) objects_->Abandon();
  world_->Kill();
  objects_ = nullptr;
  source_ = nullptr;
}

void FleetNode::Restart() {
  Kill();
  Start();
}

void FleetNode::Replace() {
  Kill();
  const MonotonicTime now = world_->clock().Now();
  world_options_.seed = random_.NextU64();
  world_ = std::make_unique<World>(world_options_);
  world_->clock().Advance(now);
  Start();
}

void FleetNode::Pass(std::chrono::milliseconds time) {
  world_->clock().Advance(time);
  if (objects_ != nullptr) objects_->Tick();
  world_->store().Tick();
}

void FleetNode::SetFaults(const ObjectFaults& faults) {
  faults_ = faults;
  if (objects_ != nullptr) objects_->set_faults(faults);
}

void FleetNode::SetReachable(bool reachable) {
  reachable_ = reachable;
  ObjectStoreHealth health;
  if (!reachable) health.state = ObjectStoreHealth::State::kAway;
  if (objects_ != nullptr) objects_->set_health(health);
}

void FleetNode::Reseed(uint64_t seed) {
  random_ = SeededRandom(seed);
  world_->Reseed(random_.NextU64());
  if (objects_ != nullptr) objects_->Reseed(random_.NextU64());
}

std::string FleetNode::NameOf(const ChunkId& id) const {
  return NameOfObject(FleetKeys::Derive(FleetKey(fleet_), kFleetName).name,
                      {.configured = options_.source.epoch}, id);
}

}  // namespace kvkeep
