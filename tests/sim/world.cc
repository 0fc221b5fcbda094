#include "tests/sim/world.h"

#include <cstring>
#include <map>
#include <utility>

#include "tiers/alloc/extent_allocator.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

Injected OfDevice(const FaultyDevice::Stats& stats) {
  Injected made;
  made.read_errors = stats.read_errors;
  made.corrupt_reads = stats.corrupt_reads;
  made.short_reads = stats.short_reads;
  made.misdirected_reads = stats.misdirected_reads;
  made.write_errors = stats.write_errors;
  made.corrupt_writes = stats.corrupt_writes;
  made.torn_writes = stats.torn_writes;
  made.misdirected_writes = stats.misdirected_writes;
  made.delayed = stats.delayed;
  made.stuck = stats.stuck;
  made.refused_gone = stats.gone;
  made.failed_syncs = stats.failed_syncs;
  made.dropping_syncs = stats.dropping_syncs;
  made.lying_syncs = stats.lying_syncs;
  made.killed_whole = stats.killed_whole;
  made.killed_partly = stats.killed_partly;
  made.killed_unwritten = stats.killed_unwritten;
  return made;
}

std::map<ChunkId, IndexRecord> RecordsIn(const MemoryIndex& index) {
  std::map<ChunkId, IndexRecord> records;
  for (IndexRecord& record : index.All()) records.emplace(record.id, std::move(record));
  return records;
}

template <typename Judge>
bool AnyBlock(const ExtentList& extents, Judge judge) {
  for (const Extent& extent : extents) {
    for (uint64_t block = extent.first.value(); block < extent.end(); ++block) {
      if (judge(block)) return true;
    }
  }
  return false;
}

}  // namespace

World::World(const WorldOptions& options) : options_(options), random_(options.seed) {
  boot_id_ = random_.Next<Uuid>();
  random_.Fill(mac_key_);
  std::vector<std::string> tenants = {""};
  for (const TenantOptions& tenant : options_.store.tenants) {
    if (!tenant.name.empty()) tenants.push_back(tenant.name);
  }
  tenants.insert(tenants.end(), options_.later_tenants.begin(), options_.later_tenants.end());
  if (options_.encryption != WorldOptions::Encryption::kOff) {
    keys_ = KeyRing::InMemory(tenants, &random_);
  }
  SeededRandom beyond(~options.seed);  // so that this world's draws stay the same
  if (options_.remote) remote_keys_ = KeyRing::InMemory(tenants, &beyond);
  for (const uint64_t blocks : options_.device_blocks) {
    Machine machine;
    machine.executor = std::make_unique<ManualExecutor>();
    machine.disk = std::make_shared<MemoryDisk>(blocks * kBlockBytes, /*volatile_cache=*/true);
    machine.index = std::make_unique<MemoryIndex>(random_.NextU64());
    machines_.push_back(std::move(machine));
  }
}

World::~World() {
  if (running()) Kill();
  for (Machine& machine : machines_) Land(machine);
}

void World::Start() {
  KVKEEP_CHECK(!running());
  const bool plain = options_.encryption == WorldOptions::Encryption::kLater && starts_++ == 0;
  StoreDeps deps{.clock = &clock_,
                 .random = &random_,
                 .copy_executor = &executor_,
                 .mac_key = mac_key_,
                 .keys = plain ? nullptr : keys_.get(),
                 .boot_id = boot_id_,
                 .wake = [this] { ++wakes_; },
                 .between_slices = between_slices_,
                 .hold_work = options_.hold_work,
                 .large_chunks = options_.large_chunks,
                 .recency_chunks = options_.recency_chunks};
  for (size_t d = 0; d < machines_.size(); ++d) {
    deps.devices.push_back(machines_[d].attached ? Open(d) : StoreDeps::DeviceDeps());
  }
  if (arena_ == nullptr) {
    arena_ = std::make_unique<MemoryArena>(BlockCount(options_.g2_blocks),
                                           BlockCount(options_.g2_segment_blocks),
                                           options_.arena_outlives);
    for (size_t i = 0; i < options_.g2_there.size(); ++i) arena_->SetThere(i, options_.g2_there[i]);
    for (size_t i = 0; options_.g2_in_parts && i < arena_->segment_count(); ++i) {
      const uint64_t blocks = arena_->SegmentMemory(i).size() / kBlockBytes;
      arena_->SetThere(i, random_.Below(blocks + 1));
    }
  }
  deps.arena = arena_.get();
  if (options_.remote) {
    remote_ = std::make_unique<MemoryRemoteSource>(&bucket_, &executor_, random_.NextU64(),
                                                   options_.remote_faults);
    remote_->TellTime(&clock_, &bucket_times_);
    remote_->only_peers = !options_.remote_keeps;
    deps.remote = remote_.get();
    if (options_.remote_keeps) deps.remote_keys = remote_keys_.get();
  }
  if (options_.make_source) {
    source_ = options_.make_source(&executor_, &clock_);
    deps.remote = source_.get();
    deps.remote_keys = options_.source_keys.get();
  }
  if (deps.remote != nullptr) {
    removal_log_ = std::make_unique<MemoryRemovalLog>(&removals_left_, &executor_);
    deps.removal_log = removal_log_.get();
  }
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Create(options_.store, deps);
  KVKEEP_CHECK(store.ok());
  store_ = *std::move(store);
}

StoreDeps::DeviceDeps World::Open(size_t device) {
  Machine& machine = machines_[device];
  Land(machine);
  machine.memory = std::make_unique<MemoryDevice>(machine.disk, machine.executor.get());
  machine.faulty = std::make_unique<FaultyDevice>(machine.memory.get(), &executor_,
                                                  random_.NextU64(), options_.device_faults);
  machine.faulty->OnDroppingSync(
      [disk = machine.disk](uint64_t seed) { disk->Forget(seed, /*silently=*/false); });
  machine.nvme = std::make_unique<MemoryNvmeDevice>(machine.faulty.get(), machine.index.get(),
                                                    static_cast<uint8_t>(device + 1));
  if (options_.drives_lie > 0) machine.disk->SetLies(options_.drives_lie, random_.NextU64());
  machine.index->SetFaults(options_.index_faults);
  return {.device = machine.nvme.get(),
          .index_executor = &index_executor_,
          .sync_executor = &executor_};
}

bool World::Join(size_t device, std::function<void(absl::Status)> done) {
  Machine& machine = machines_[device];
  KVKEEP_CHECK(running() && !machine.attached);
  if (machine.nvme != nullptr) return false;  // it is joining
  Lose(device, [](MemoryIndex& index) { index.Kill(); });  // opened anew
  store_->Attach(device, Open(device), [this, device, done = std::move(done)](absl::Status joined) {
    Machine& of = machines_[device];
    of.attached = joined.ok();
    if (!joined.ok()) Close(of);
    done(std::move(joined));
  });
  return true;
}

bool World::Leave(size_t device, std::function<void(absl::Status)> done) {
  Machine& machine = machines_[device];
  KVKEEP_CHECK(running() && machine.attached);
  if (std::exchange(machine.leaving, true)) return false;
  store_->Detach(device, [this, device, done = std::move(done)](absl::Status left) {
    Machine& of = machines_[device];
    of.leaving = false;
    of.attached = !left.ok();
    if (left.ok()) Close(of);
    done(std::move(left));
  });
  return true;
}

void World::Close(Machine& machine) {
  machine.nvme.reset();
  if (machine.faulty != nullptr) injected_.Add(OfDevice(machine.faulty->stats()));
  machine.faulty.reset();
  machine.leaving = false;
  if (machine.memory != nullptr) machine.dead = std::move(machine.memory);
}

void World::StopProcess() {
  for (Machine& machine : machines_) {
    if (machine.faulty != nullptr) machine.faulty->Kill();
  }
  executor_.Drop();
  index_executor_.Drop();
  store_.reset();
  source_.reset();
  executor_.Drop();
  index_executor_.Drop();
  for (Machine& machine : machines_) {
    Close(machine);
    if (!options_.late_writes) Land(machine);
  }
  if (!options_.arena_outlives) arena_.reset();
}

void World::Land(Machine& machine) {
  machine.executor->RunAll();
  machine.dead.reset();
}

void World::SetAttached(size_t device, bool attached) {
  injected_.left_out += machines_[device].attached && !attached;
  machines_[device].attached = attached;
}

void World::HoldIndex(bool hold) {
  injected_.index_stalls += hold;
  index_held_ = hold;
}

void World::Lose(size_t device, const std::function<void(MemoryIndex&)>& lose) {
  MemoryIndex& index = *machines_[device].index;
  const std::map<ChunkId, IndexRecord> before = RecordsIn(index);
  lose(index);
  std::map<uint64_t, ChunkId> taken;
  for (const auto& [id, record] : before) {
    for (const Extent& extent : record.extents) {
      for (uint64_t b = extent.first.value(); b < extent.end(); ++b) taken.emplace(b, id);
    }
  }
  for (const auto& [id, record] : RecordsIn(index)) {
    const auto known = before.find(id);
    if (known != before.end() && known->second.sequence == record.sequence) continue;
    injected_.reused += AnyBlock(record.extents, [&, of = id](uint64_t block) {
      const auto other = taken.find(block);
      return other != taken.end() && other->second != of;
    });
  }
}

void World::CheckIndexes() {
  for (size_t d = 0; d < machines_.size(); ++d) {
    ExtentAllocator space({.capacity = BlockCount(options_.device_blocks[d])});
    for (const IndexRecord& record : machines_[d].index->All()) {
      KVKEEP_CHECK(space.Claim(record.extents).ok());
    }
  }
}

void World::Kill() {
  StopProcess();
  for (size_t d = 0; d < machines_.size(); ++d) Lose(d, [](MemoryIndex& index) { index.Kill(); });
  CheckIndexes();
}

void World::PowerCut(bool believed) {
  StopProcess();
  arena_.reset();
  for (size_t d = 0; d < machines_.size(); ++d) {
    Land(machines_[d]);
    const uint64_t seed_of_disk = random_.NextU64();
    believed ? machines_[d].disk->Forget(seed_of_disk, /*silently=*/true)
             : machines_[d].disk->PowerCut(seed_of_disk);
    Lose(d, [seed = random_.NextU64()](MemoryIndex& index) { index.PowerCut(seed); });
  }
  CheckIndexes();
  boot_id_ = random_.Next<Uuid>();
}

void World::DriveLosesPower(size_t device) {
  ++injected_.drive_cuts;
  machines_[device].disk->Forget(random_.NextU64(), /*silently=*/running());
  if (!options_.index_tails) return;
  Lose(device, [seed = random_.NextU64(), open = running()](MemoryIndex& index) {
    index.DriveForgets(seed, open);
  });
  if (!running()) CheckIndexes();
}

bool World::Forgot(size_t device, const ExtentList& extents) const {
  const MemoryDisk& disk = *machines_[device].disk;
  return AnyBlock(extents, [&disk](uint64_t block) { return disk.Forgot(block); });
}

bool World::ForgotRecord(size_t device, const ChunkId& id) const {
  const MemoryIndex& index = *machines_[device].index;
  return index.has_hole() && !index.IsStable(id);
}

bool World::IsUnsynced(size_t device, const ExtentList& extents) const {
  const MemoryDisk& disk = *machines_[device].disk;
  return AnyBlock(extents, [&disk](uint64_t block) { return disk.IsUnsynced(block); });
}

void World::SetGone(size_t device, bool gone) {
  Machine& machine = machines_[device];
  injected_.vanished += gone;
  machine.faulty->SetGone(gone);
  MemoryIndex::Faults faults = options_.index_faults;
  if (gone) faults.commit_error = faults.sync_error = 1;
  machine.index->SetFaults(faults);
}

void World::Reseed(uint64_t seed) {
  random_ = SeededRandom(seed);
  for (Machine& machine : machines_) {
    machine.index->Reseed(random_.NextU64());
    if (machine.faulty != nullptr) machine.faulty->Reseed(random_.NextU64());
    if (options_.drives_lie > 0) machine.disk->SetLies(options_.drives_lie, random_.NextU64());
  }
}

Injected World::injected() const {
  Injected all = injected_;
  for (const Machine& machine : machines_) {
    const MemoryIndex::Stats index = machine.index->counted();
    Injected made;
    made.index_refused = index.refused;
    made.index_failed = index.errors;
    made.index_lying_syncs = index.lies;
    made.index_forgetful_syncs = index.forgetful;
    made.lost_tails = index.lost_tails;
    made.lost_writes = index.lost_writes;
    made.phantoms = index.phantoms;
    made.forgetful_syncs = machine.disk->lies();
    all.Add(made);
    if (machine.faulty != nullptr) all.Add(OfDevice(machine.faulty->stats()));
  }
  return all;
}

int World::DamageDisk() {
  if (machines_.empty()) return 3;
  const std::span<std::byte> disk = machines_[0].disk->bytes();
  const uint64_t blocks = disk.size() / kBlockBytes;
  if (old_disk_.empty() || random_.Chance(0.1)) old_disk_.assign(disk.begin(), disk.end());
  const int kind = static_cast<int>(random_.Below(3));
  ++(kind == 0   ? injected_.flipped_bits
     : kind == 1 ? injected_.misplaced_blocks
                 : injected_.older_blocks);
  if (kind == 0) {
    for (int i = 0; i < 8; ++i) {
      disk[random_.Below(disk.size())] ^= std::byte{1} << random_.Below(8);
    }
    return kind;
  }
  const uint64_t count = kind == 1 ? 1 : random_.Between(1, std::min<uint64_t>(blocks, 600));
  const uint64_t to = random_.Below(blocks - count + 1) * kBlockBytes;
  const std::span<const std::byte> source = kind == 1 ? disk : std::span(old_disk_);
  const uint64_t from = kind == 1 ? random_.Below(blocks) * kBlockBytes : to;
  std::memmove(disk.data() + to, source.data() + from, count * kBlockBytes);
  return kind;
}

uint64_t World::AddMemory(uint64_t most_blocks) {
  arena_->most_at_once = most_blocks;
  const std::vector<Extent> came = arena_->TakeMore();
  if (!came.empty()) store_->AddMemory(came);
  uint64_t blocks = 0;
  for (const Extent& extent : came) blocks += extent.count.value();
  return blocks;
}

void World::DamageArena() {
  KVKEEP_CHECK(!running() && arena_ != nullptr);
  ++injected_.damaged_arenas;
  const uint64_t blocks = random_.Between(1, arena_->capacity_blocks().value());
  for (uint64_t i = 0; i < blocks; i += 4) {
    const uint64_t block = random_.Below(arena_->capacity_blocks().value());
    if (!arena_->HasMemory(BlockNumber(block))) continue;
    const auto bytes = arena_->Memory({BlockNumber(block), BlockCount(1)});
    bytes[random_.Below(bytes.size())] ^= std::byte{1} << random_.Below(8);
  }
}

void World::RunDisk(Machine& machine, size_t pick) {
  injected_.landed_late += machine.dead != nullptr;
  machine.executor->RunOne(pick);
}

void World::RunAll() {
  for (size_t ran = 1; ran > 0;) {
    ran = executor_.RunAll();
    for (Machine& machine : machines_) {
      for (; !machine.executor->idle(); ++ran) RunDisk(machine, 0);
    }
    if (!index_held_) ran += index_executor_.RunAll();
  }
}

void World::RunToEnd() {
  HoldIndex(false);
  size_t unstuck = 0;
  do {
    RunAll();
    unstuck = 0;
    for (Machine& machine : machines_) {
      if (machine.faulty != nullptr) unstuck += machine.faulty->Unstick();
    }
  } while (unstuck > 0);
  RunAll();
}

bool World::RunOneAtRandom() {
  const size_t index_tasks = index_held_ ? 0 : index_executor_.size();
  size_t queued = executor_.size() + index_tasks;
  for (const Machine& machine : machines_) queued += machine.executor->size();
  if (queued == 0) return false;
  size_t pick = random_.Below(queued);
  if (pick < executor_.size()) {
    executor_.RunOne(pick);
    return true;
  }
  pick -= executor_.size();
  for (Machine& machine : machines_) {
    if (pick < machine.executor->size()) {
      RunDisk(machine, pick);
      return true;
    }
    pick -= machine.executor->size();
  }
  index_executor_.RunOne(pick);
  return true;
}

void World::Settle(std::chrono::milliseconds turn) {
  for (int i = 0; i < 1000; ++i) {
    RunAll();
    clock_.Advance(turn);
    store_->Tick();
    RunAll();
    const StoreSnapshot snapshot = store_->snapshot();
    if (snapshot.dirty_chunks == 0 && i * turn >= std::chrono::seconds(2)) return;
  }
  KVKEEP_CHECK(false);  // something never ends
}

}  // namespace kvkeep
