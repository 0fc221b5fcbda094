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

std::unique_ptr<PeerDoor> FleetNode::MakeDoor(size_t number, size_t fleet) {
  const FleetKeys keys = FleetKeys::Derive(FleetKey(fleet), kFleetName);
  return std::make_unique<PeerDoor>(std::to_string(number), keys.id, keys.mac);
}

FleetNode::FleetNode(const FleetOptions& options, size_t number, size_t fleet,
                     MemoryObjects* bucket, PeerDoor* door, std::vector<PeerDoor*> peers)
    : options_(options),
      fleet_(fleet),
      bucket_(*bucket),
      door_(*door),
      others_(std::move(peers)),
      world_options_(options.world),
      faults_(options.faults),
      reachable_(options.bucket != FleetOptions::Bucket::kDead),
      random_(options.seed * 31 + number),
      peer_faults_(options.peer_faults) {
  world_options_.seed = random_.NextU64();
  if (options.bucket != FleetOptions::Bucket::kNone) {
    world_options_.make_source = [this](ManualExecutor* executor, ManualClock* clock) {
      return MakeSource(executor, clock);
    };
    if (!options.only_peers) {
      std::vector<KeyRing::TenantKey> keys(1);
      keys[0].key = FleetKeys::DeriveDataKey(FleetKey(fleet), kFleetName, "default");
      world_options_.source_keys = KeyRing::Of(std::move(keys));
    }
  }
  world_ = std::make_unique<World>(world_options_);
  Start();
}

FleetNode::~FleetNode() {
  if (world_->running()) Kill();
}

std::unique_ptr<RemoteSource> FleetNode::MakeSource(ManualExecutor* executor, ManualClock* clock) {
  if (!options_.peers) return MakeBucketSource(executor, clock);
  if (!options_.only_peers) behind_peers_ = MakeBucketSource(executor, clock);
  FleetSource::Peers peers;
  for (PeerDoor* const other : others_) {
    peers_.push_back(std::make_shared<StorePeer>(other, &door_, executor, clock, random_.NextU64(),
                                                 peer_faults_));
    peers.push_back(peers_.back());
  }
  const FleetKeys keys = FleetKeys::Derive(FleetKey(fleet_), kFleetName);
  auto source = std::make_unique<FleetSource>(
      options_.fleet_source, keys.id, keys.mac,
      FleetSource::Parts{behind_peers_.get(), executor, clock, &random_});
  source->SetPeers(std::move(peers));
  fleet_source_ = source.get();
  return source;
}

std::unique_ptr<BucketSource> FleetNode::MakeBucketSource(ManualExecutor* executor,
                                                          ManualClock* clock) {
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
  door_.Open(&world_->store());
  SetReachable(reachable_);
}

void FleetNode::Kill() {
  if (objects_ != nullptr) objects_->Abandon();
  for (const auto& peer : peers_) peer->Abandon();
  door_.Close();
  world_->Kill();
  peers_.clear();
  behind_peers_.reset();
  objects_ = nullptr;
  source_ = nullptr;
  fleet_source_ = nullptr;
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
  for (const auto& peer : peers_) peer->Tick();
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

void FleetNode::TakeSummaries(const TenantTags& tenants) {
  for (const auto& peer : peers_) peer->TakeSummary(tenants);
}

bool FleetNode::IsNamed(const ChunkId& id) const {
  const uint64_t hash = NameHash(FleetKeys::Derive(FleetKey(fleet_), kFleetName).id)(id);
  return std::any_of(peers_.begin(), peers_.end(), [hash](const std::shared_ptr<StorePeer>& peer) {
    return peer->summary() != nullptr && peer->summary()->MayHave(hash);
  });
}

void FleetNode::SetPeerFaults(const PeerFaults& faults) {
  peer_faults_ = faults;
  for (const auto& peer : peers_) peer->set_faults(faults);
}

uint64_t FleetNode::peer_faults_injected() const {
  uint64_t injected = 0;
  for (const auto& peer : peers_) injected += peer->faults_injected();
  return injected;
}

void FleetNode::Reseed(uint64_t seed) {
  random_ = SeededRandom(seed);
  world_->Reseed(random_.NextU64());
  if (objects_ != nullptr) objects_->Reseed(random_.NextU64());
  for (const auto& peer : peers_) peer->Reseed(random_.NextU64());
}

std::string FleetNode::NameOf(const ChunkId& id) const {
  return NameOfObject(FleetKeys::Derive(FleetKey(fleet_), kFleetName).name,
                      {.configured = options_.source.epoch}, id);
}

}  // namespace kvkeep
