// The end of a process, the fate of G2's memory, and what the next process must find.
#include <absl/strings/str_cat.h>

#include <cstdio>
#include <utility>

#include "tests/sim/simulator.h"
#include "tiers/base/check.h"
#include "tiers/index/doubtful.h"

namespace kvkeep {

std::set<uint64_t> Simulator::Stored(std::vector<uint64_t> LookupResult::*tier) {
  const Uninterrupted alone(&alone_);
  std::set<uint64_t> stored;
  for (uint64_t name = 0; name < spaces_.size() * kNames; ++name) {
    if (name % kNames >= names_end_ || IsAway(name)) continue;
    const auto client = std::find_if(clients_.begin(), clients_.end(), [&](const Client& one) {
      return one.tenant == space(name).tenant;
    });
    const std::vector<ChunkKey> keys = {Key(name)};
    const std::vector<PartId> parts = {space(name).part};
    const auto found =
        world_.store().Lookup(client->token, {.chunks = {space(name).ns, keys, parts}});
    if (((*found).*tier)[0] != 0) stored.insert(name);
  }
  return stored;
}

Records Simulator::RecordsOn(size_t device) {
  Records records;
  std::map<ChunkId, uint64_t> names;
  for (uint64_t name = 0; name < spaces_.size() * kNames; ++name) names[Id(name)] = name;
  for (const IndexRecord& record : world_.index(device).All()) {
    records[names.at(record.id)] = {device, record.sequence};
  }
  return records;
}

std::vector<Records> Simulator::AllRecords() {
  std::vector<Records> all;
  for (size_t device = 0; device < world_options_.device_blocks.size(); ++device) {
    all.push_back(RecordsOn(device));
  }
  return all;
}

// The store believes returned records that are not in doubt. The next process has to read all
// others whole before it calls them durable: a write that failed is above the mark, without
// exception. After a power cut the store believes no record.
void Simulator::NoteRevived(const std::vector<Records>& before, bool power) {
  doubted_.clear();
  for (size_t device = 0; device < before.size(); ++device) {
    if (power) {
      believed_[device].clear();
    } else {
      NoteRevivedOn(device, before[device]);
    }
  }
}

void Simulator::NoteRevivedOn(size_t device, const Records& before) {
  const StableMark mark = world_.index(device).ReadStableMark().value();
  const Doubtful noted = DecodeDoubtful(world_.index(device).GetMeta(kDoubtfulName).value());
  Records believed;
  for (const auto& [name, record] : RecordsOn(device)) {
    const auto known = before.find(name);
    const bool back = known == before.end() || known->second != record;
    const bool known_boot = mark.boot_id == world_.boot_id() || mark.clean;
    const bool sure =
        known_boot && record.sequence <= mark.sequence && !noted.contains(record.sequence);
    report_.revived += back;
    report_.believed += back && sure;
    if (back && !sure) doubted_.insert(name);
    if (sure && (back || IsBelieved(name, record))) believed[name] = record;
  }
  believed_[device] = std::move(believed);
}

void Simulator::NoteCleared() {
  cleared_.clear();
  in_doubt_.resize(world_options_.device_blocks.size());
  for (size_t device = 0; device < in_doubt_.size(); ++device) {
    if (!world_.attached(device)) continue;
    const StableMark mark = world_.index(device).ReadStableMark().value();
    const Doubtful noted = DecodeDoubtful(world_.index(device).GetMeta(kDoubtfulName).value());
    const bool known_boot = mark.boot_id == world_.boot_id() || mark.clean;
    const std::set<CommitSequence> before = std::exchange(in_doubt_[device], {});
    for (const auto& [name, record] : RecordsOn(device)) {
      const bool above = record.sequence > mark.sequence;
      if (!known_boot || above || noted.contains(record.sequence)) {
        in_doubt_[device].insert(record.sequence);
      } else if (before.contains(record.sequence)) {
        cleared_.emplace_back(name, record);
      }
    }
  }
}

// It was read whole, and that was saved, so it is promised again. As any other promise it is looked
// for later and has to be whole.
void Simulator::CheckCleared() {
  const std::set<uint64_t> in_g2 = Stored(&LookupResult::g2_parts);
  const std::set<uint64_t> in_g3 = Stored(&LookupResult::g3_parts);
  for (const auto& [name, record] : cleared_) {
    // A chunk that was put anew since is another chunk, and either of two records may be taken. A
    // chunk that the start evicted, as over a quota, may leave a record in doubt.
    const bool alone = in_g3.contains(name) && !in_g2.contains(name);
    if (!alone || RecordsOf(name) != std::vector{record}) continue;
    std::optional<absl::Status> told;
    world_.store().WhenDurable(Id(name), [&told](absl::Status status) { told = status; });
    if (told != absl::OkStatus()) std::printf("cleared, but not durable: %lu\n", name);
    KVKEEP_CHECK(told == absl::OkStatus());
    ++report_.cleared;
    AwaitDurable(name);
  }
}

bool Simulator::IsBelieved(uint64_t name, const Promise& record) const {
  const Records& believed = believed_[record.device];
  const auto found = believed.find(name);
  return found != believed.end() && found->second == record;
}

std::vector<Promise> Simulator::RecordsOf(uint64_t name) {
  std::vector<Promise> records;
  for (size_t device = 0; device < world_options_.device_blocks.size(); ++device) {
    if (!world_.attached(device)) continue;
    const std::optional<IndexRecord> record = world_.index(device).Find(Id(name));
    if (record.has_value()) records.push_back({device, record->sequence});
  }
  return records;
}

void Simulator::CheckEvents() {
  std::set<NamespaceDigest> present;  // other tenants' chunks cannot be looked up
  for (const Space& one : spaces_) {
    if (one.tenant != kAway) present.insert(one.ns);
  }
  // A lookup may have a chunk offered to G3 again, where it takes another's place.
  constexpr int kTries = 4;
  if (!events_.has_value()) events_.emplace(world_.store().WatchAll());
  for (int i = 0; i < kTries; ++i) {
    KVKEEP_CHECK(events_->Read().ok());
    const std::set<std::pair<ChunkId, Tier>> before = events_->there();
    std::set<std::pair<ChunkId, Tier>> found;
    for (const uint64_t name : Stored(&LookupResult::g2_parts)) found.emplace(Id(name), Tier::kG2);
    for (const uint64_t name : Stored(&LookupResult::g3_parts)) found.emplace(Id(name), Tier::kG3);
    KVKEEP_CHECK(events_->Read().ok());
    if (events_->there() != before) continue;
    std::set<std::pair<ChunkId, Tier>> told = before;
    std::erase_if(told, [&](const auto& one) { return !present.contains(one.first.ns); });
    KVKEEP_CHECK(found == told);
    ++report_.events_checked;
    return;
  }
}

// A process is about to end: its promises are looked for, its work goes into the report.
void Simulator::CountProcess() {
  const Uninterrupted alone(&alone_);  // counters and findings are of one moment
  CheckPromises();
  pushed_out_.clear();  // the next one counts anew
  const StoreCounters counters = world_.store().snapshot().counters;
  report_.promotions += counters.promotions;
  report_.evictions += counters.g2_evictions + counters.g3_evictions;
  report_.windows += counters.g2_windows_emptied + counters.g3_windows_emptied;
  report_.recovered_in_g2 += counters.recovered_g2_chunks;
  report_.encrypted += counters.write_backs_encrypted;
  report_.unauthentic += counters.unauthentic_chunks;
  report_.events += counters.events_told;
  report_.event_restarts += counters.event_restarts;
  const RemoteCounters remote = world_.store().snapshot().remote.value_or(RemoteCounters{});
  report_.recalled += remote.recalled_chunks;
  report_.failed_recalls += remote.failed_recalls;
  report_.written_beyond += remote.written_chunks;
  report_.bad_beyond += remote.bad_images;
  KVKEEP_CHECK(counters.keyless_chunks == 0);  // no key goes away
  for (const TenantSnapshot& tenant : world_.store().snapshot().tenants) {
    report_.in_quota += tenant.counters.g3_quota_evictions;
  }
}

void Simulator::DrawQuotas() {
  quotas_.assign(tenants(), 0);
  if (!scenario_.quotas) return;
  uint64_t blocks = 0;
  for (const uint64_t device : world_options_.device_blocks) blocks += device;
  for (size_t tenant = 0; tenant < quotas_.size(); ++tenant) {
    quotas_[tenant] = random_.Chance(0.7) ? random_.Between(10, blocks) : 0;
    world_.SetQuota(tenant, quotas_[tenant] * kBlockBytes);
  }
}

// No tenant holds more than its quota, or lost anything for another one within it, since the
// current capacities were set: while a smaller one was less than all quotas, it had to give.
void Simulator::CheckQuotas() {
  const StoreSnapshot now = world_.store().snapshot();
  pushed_out_.resize(quotas_.size());
  for (size_t tenant = 0; tenant < quotas_.size(); ++tenant) {
    const TenantSnapshot& seen = now.tenants[tenant];
    const uint64_t quota = quotas_[tenant] * kBlockBytes;
    if (quota == 0) continue;
    // The chunks of a joining device may exceed the quota until the next Tick.
    KVKEEP_CHECK(joined_since_ || seen.g3_used_bytes <= quota);
    // Otherwise the quotas together exceed the capacity.
    if (seen.g3_share_bytes == quota && !joined_since_) {
      KVKEEP_CHECK(seen.counters.g3_pushed_out == pushed_out_[tenant]);
    }
  }
}

// Nor do the records of the attached devices, when all work has ended.
void Simulator::CheckRecordsInQuota() {
  std::map<NamespaceDigest, size_t> tenants;
  for (const Space& one : spaces_) {
    if (one.tenant != kAway) tenants[one.ns] = one.tenant.value();
  }
  std::vector<uint64_t> blocks(quotas_.size());
  for (size_t device = 0; device < world_options_.device_blocks.size(); ++device) {
    if (!world_.attached(device)) continue;
    for (const IndexRecord& record : world_.index(device).All()) {
      const auto tenant = tenants.find(record.id.ns);
      if (tenant == tenants.end()) continue;  // it is away
      blocks[tenant->second] += record.shape.blocks().value();
    }
  }
  for (size_t tenant = 0; tenant < quotas_.size(); ++tenant) {
    KVKEEP_CHECK(quotas_[tenant] == 0 || blocks[tenant] <= quotas_[tenant]);
  }
}

// Decides the fate of G2's memory between two processes. Returns false if not all of it is kept.
bool Simulator::KeepArena(bool power) {
  if (power || !world_options_.arena_outlives) return false;
  if (random_.Chance(0.2)) {
    world_.LoseArena();
    return false;
  }
  if (!scenario_.memory_rots || random_.Chance(0.5)) return true;
  world_.DamageArena();
  return false;
}

// Some devices leave between two processes, others are back. A promise of a device that left counts
// again when it is back, unless the name was put or deleted meanwhile.
void Simulator::AttachDevices(std::set<uint64_t>* must_be_there) {
  for (size_t device = 0; device < world_options_.device_blocks.size(); ++device) {
    const bool leaves =
        scenario_.devices_leave || scenario_.devices_vanish || scenario_.devices_join;
    const bool before = world_.attached(device);
    const bool attached = !leaves || random_.Chance(0.7);
    if (attached == before) continue;
    Log(absl::StrCat("device ", device, attached ? " attached" : " left out"));
    ++report_.attachments;
    world_.SetAttached(device, attached);
    for (const auto& [name, record] : RecordsOn(device)) {
      const auto promise = durable_.find(name);
      if (!attached) {
        must_be_there->erase(name);
      } else if (promise != durable_.end() && promise->second == record) {
        must_be_there->insert(name);
      } else {
        unsure_.insert(name);  // it may have missed anything
      }
    }
  }
}

size_t Simulator::tenants() const {
  const size_t all = std::max<size_t>(1, world_options_.store.tenants.size());
  return second_.here() ? all : 1;
}

// The second tenant is another one from now on, or gone. Its chunks in G3 have no owner then, go
// first when space is needed, and are found again, as far as their records remain, by a tenant with
// its name.
bool Simulator::ChangeTenants(std::set<uint64_t>* must_be_there, bool all_kept) {
  const bool changed = scenario_.tenants_change && random_.Chance(0.5) && second_.Draw(random_);
  std::erase_if(*must_be_there, [this](uint64_t name) { return IsAway(name); });
  if (!changed) return false;
  ++report_.tenant_changes;
  Log(absl::StrCat("second tenant: ", second_.here() ? "there" : "gone", second_.is_guest()));
  std::vector<TenantOptions> now = world_options_.store.tenants;
  if (second_.is_guest()) now[1].name = world_options_.later_tenants[0];
  if (!second_.here()) {
    now[0].g2_segments += now[1].g2_segments;
    now.pop_back();
  }
  world_.SetTenants(now);
  DrawQuotas();
  const bool room = world_options_.store.max_chunks > 2 * kNames * spaces_.size();
  if (!second_.here() || !all_kept || !room || report_.attachments > 0) return true;
  for (size_t device = 0; device < world_options_.device_blocks.size(); ++device) {
    if (!world_.attached(device)) continue;  // it left in the last process and was not joined again
    for (const auto& [name, record] : RecordsOn(device)) {
      const bool back =
          name / kNames >= second_.own_spaces() && !IsAway(name) && !unsure_.contains(name);
      if (back && must_be_there->insert(name).second && faultless_) ++report_.returned;
    }
  }
  return true;
}

// Its unsynced sectors go; acknowledged durable chunks may not be among them.
void Simulator::DriveLosesPower(size_t device) {
  Log(absl::StrCat("drive ", device, " loses power"));
  for (const auto& [name, promise] : durable_) {
    const std::optional<IndexRecord> record = world_.index(promise.device).Find(Id(name));
    const bool current = record.has_value() && record->sequence == promise.sequence;
    if (!honest_ || promise.device != device || !current) continue;
    KVKEEP_CHECK(!world_.IsUnsynced(device, record->extents));
  }
  world_.DriveLosesPower(device);
}

bool Simulator::DrivesLosePower() {
  bool any = false;
  for (size_t device = 0; device < world_options_.device_blocks.size(); ++device) {
    if (!scenario_.drives_lose_power || random_.Chance(0.5)) continue;
    DriveLosesPower(device);
    any = true;
  }
  return any;
}

// With a device that left in this process, whose record took the place of all others.
bool Simulator::HasLeft(uint64_t name) {
  return std::any_of(left_.begin(), left_.end(), [&](size_t device) {
    return world_.index(device).Find(Id(name)).has_value();
  });
}

// A chunk that was put durable and acknowledged leaves the indexes only when it is evicted, deleted
// or found damaged. If none of this happened in this process it is there, also if it was put anew
// since. It gives way to a chunk of another shape, once that one was evicted from G2 in turn: then
// the new one is not there, or was put a third time.
void Simulator::CheckPromises() {
  const StoreCounters now = world_.store().snapshot().counters;
  const uint64_t gone = now.g3_evictions + now.stale_records + now.corrupt_chunks +
                        now.unauthentic_chunks + now.recovery_dropped_chunks +
                        now.recovery_dropped_g2_chunks;
  if (!honest_ || gone > 0) return;
  for (const auto& [name, promise] : durable_) {
    const auto found = promised_.find(name);
    if (found == promised_.end() || !world_.attached(promise.device)) continue;
    ++report_.promises_checked;
    if (!RecordsOf(name).empty() || names_[name].changes > found->second + 1) continue;
    if (HasLeft(name)) continue;
    if (now.unbacked_evictions > 0 && !Stored(&LookupResult::g2_parts).contains(name)) continue;
    std::printf("durable, but its record is gone: %lu\n", name);
    KVKEEP_CHECK(false);
  }
}

// Notes, when a process begins, what CheckPromises must find at its end.
void Simulator::NotePromises() {
  promised_.clear();
  const std::set<uint64_t> in_g2 = Stored(&LookupResult::g2_parts);  // perhaps put anew already
  for (const auto& [name, promise] : durable_) {
    if (PromiseHolds(name) && !in_g2.contains(name)) promised_[name] = names_[name].changes;
  }
}

// Chunks in G3 after the crash, unless a device leaves: after a power cut only acknowledged durable
// ones that were neither evicted nor deleted since.
std::set<uint64_t> Simulator::MustOutlive(bool power, const std::set<uint64_t>& in_g2) {
  std::set<uint64_t> must_be_there = Stored(&LookupResult::g3_parts);
  // Evicted since, perhaps written again: such a record promises nothing.
  std::erase_if(durable_, [this](const auto& one) {
    return world_.attached(one.second.device) && !PromiseHolds(one.first);
  });
  if (!power) return must_be_there;
  std::erase_if(must_be_there, [this](uint64_t name) {
    const auto promise = durable_.find(name);
    return promise == durable_.end() || !world_.attached(promise->second.device);
  });
  for (const auto& [name, promise] : durable_) {  // also while it is put anew
    if (in_g2.contains(name) && PromiseHolds(name)) must_be_there.insert(name);
  }
  return must_be_there;
}

// Ends as the daemon does: everything is written back as far as possible, then synced. Returns
// whether every open index says that it is clean.
bool Simulator::StopInOrder() {
  const Uninterrupted alone(&alone_);
  constexpr int kMostTurns = 40;
  world_.store().BeginDrain();
  for (int i = 0; i < kMostTurns; ++i) {
    world_.RunToEnd();
    if (world_.store().snapshot().dirty_chunks == 0) break;
    world_.clock().Advance(std::chrono::milliseconds(100));
    world_.store().Tick();
  }
  bool synced = false;
  world_.store().SyncAll([&synced](absl::Status status) { synced = status.ok(); });
  world_.RunToEnd();
  for (size_t device = 0; synced && device < world_options_.device_blocks.size(); ++device) {
    if (!world_.attached(device)) continue;
    synced = world_.index(device).ReadStableMark()->clean;
  }
  return synced;
}

void Simulator::DoCrash(bool power) {
  // A power cut leaves a clean stop's state as it was, except the boot and G2.
  const bool in_order = power && random_.Chance(0.3) && StopInOrder();
  const bool loses = power && !in_order;
  CountProcess();
  left_.clear();
  const bool one_left = std::exchange(began_to_leave_, false);
  Log(in_order ? "stop and power cut" : power ? "power cut" : "kill");
  report_.stops_in_order += in_order;
  ++(power ? report_.power_cuts : report_.kills);
  const std::set<uint64_t> in_g2 = Stored(&LookupResult::g2_parts);
  std::set<uint64_t> must_be_there = MustOutlive(loses, in_g2);
  const Uninterrupted alone(&alone_);
  ++process_;
  joined_since_ = false;
  crashed_ = true;
  callbacks_due_ = 0;
  recalled_.clear();
  clients_.clear();
  stalled_.clear();
  events_.reset();
  world_.HoldIndex(false);
  const auto before = AllRecords();
  power ? world_.PowerCut(in_order) : world_.Kill();
  const bool drive_cut = !power && DrivesLosePower();
  NoteRevived(before, loses);
  // A crash undoes a delete that had not reached an index; in G2 it undoes none.
  const bool has_index = !world_options_.device_blocks.empty() || world_options_.remote;
  for (auto& [name, state] : names_) state.deleted_up_to = has_index ? 0 : state.deleted_up_to;
  if (loses) {
    std::erase_if(durable_, [&](const auto& one) {
      return world_.attached(one.second.device) && !must_be_there.contains(one.first);
    });
    for (uint64_t name = 0; name < spaces_.size() * kNames; ++name) {
      if (!must_be_there.contains(name)) unsure_.insert(name);
    }
  }
  bool kept = KeepArena(power);
  AttachDevices(&must_be_there);
  NoteCleared();
  if (loses) DoubtNamesOfOldRecords();
  if (ChangeTenants(&must_be_there, !loses && !drive_cut)) kept = false;
  const std::set<uint64_t> misled = MisledByDrives();
  if (random_.Chance(0.3)) DrawQuotas();
  world_.Start();
  ConnectAll();
  world_.store().CheckInvariants();
  CheckQuotas();
  // Its quota is smaller than it was, a device is back, or removals were undone: which of its
  // chunks went at once is open.
  const StoreSnapshot start = world_.store().snapshot();
  std::erase_if(must_be_there, [&](uint64_t name) {
    return start.tenants[space(name).tenant.value()].counters.g3_quota_evictions > 0;
  });
  // A small table may have no room for all of them: removed records that come back take room.
  const bool room = world_options_.store.max_chunks > 2 * kNames * spaces_.size();
  if (kept && room) CheckSurvivors(in_g2, Stored(&LookupResult::g2_parts));
  // One index may have lost a removal while another has the record that took its place. A device
  // that left comes back with records that the table had no more.
  const bool alone_in_table = report_.attachments == 0 && !one_left && !loses && !drive_cut;
  if (faultless_ && (room || alone_in_table)) {
    world_.RunToEnd();  // headers of unsure records are read first
    CheckSurvivors(must_be_there, StoredOrBeneath(must_be_there));
  }
  CheckCleared();
  std::erase_if(must_be_there, [&](uint64_t name) { return misled.contains(name); });
  NotePromises();
  if ((power || drive_cut) && honest_ && room && random_.Chance(0.5)) ReadDurable(must_be_there);
}

// The removal of an old record may be lost while its blocks were reused. If another device has the
// promised record, the store reads the one or the other first: a client that reads just then may
// hear of the damage, and a lease may hold the damaged one. The next reader gets the other one. If
// that device was left out, there is the old record alone.
void Simulator::DoubtNamesOfOldRecords() {
  for (uint64_t name = 0; name < spaces_.size() * kNames; ++name) {
    const std::vector<Promise> records = RecordsOf(name);
    const auto promise = durable_.find(name);
    const bool promised = promise != durable_.end() && records == std::vector{promise->second};
    if (!records.empty() && !promised) unsure_.insert(name);
  }
}

// Returns the names in G3, and those of `names` whose record is kept beneath a chunk in G2. A
// record is kept so if the chunk has another shape than the record. The chosen one of two records
// may have another shape, and so may the record of a device that is back, as the chunk was put anew
// while the device was away. An unconfirmed record is kept so, too. Kept records are those that an
// index holds (CheckInvariants).
std::set<uint64_t> Simulator::StoredOrBeneath(const std::set<uint64_t>& names) {
  std::set<uint64_t> there = Stored(&LookupResult::g3_parts);
  for (const uint64_t name : Stored(&LookupResult::g2_parts)) {
    if (names.contains(name) && !RecordsOf(name).empty()) there.insert(name);
  }
  return there;
}

// A device that is back has the promised record, but meanwhile the chunk came to another device as
// well, from G2. The second drive forgot the chunk between the write and the sync, and reported
// nothing. The record of the first is in no doubt, and the store gives up the other copy for it, as
// it may.
std::set<uint64_t> Simulator::MisledByDrives() {
  std::set<uint64_t> misled;
  for (const auto& [name, promise] : durable_) {
    for (const Promise& record : RecordsOf(name)) {
      if (record == promise) continue;
      const IndexRecord known = *world_.index(record.device).Find(Id(name));
      if (world_.Forgot(record.device, known.extents)) misled.insert(name);
    }
  }
  report_.forgotten += misled.size();
  return misled;
}

// After a loss of power acknowledged durable chunks are not only known, but whole. A record beneath
// a chunk of another shape, which only G2 has, goes with it when G2 evicts that.
void Simulator::ReadDurable(const std::set<uint64_t>& must_be_there) {
  const std::set<uint64_t> at_start = Stored(&LookupResult::g3_parts);
  world_.RunToEnd();
  for (const uint64_t name : must_be_there) {
    const auto promise = durable_.find(name);
    // The device left: another device's record of the chunk since then promises nothing.
    if (promise == durable_.end() || !world_.attached(promise->second.device)) continue;
    const auto client = std::find_if(clients_.begin(), clients_.end(), [&](const Client& one) {
      return one.tenant == space(name).tenant;
    });
    // The record of two that is read first may have a payload that the power cut took.
    bool whole = false;
    for (size_t tries = std::max<size_t>(1, RecordsOf(name).size()); !whole && tries > 0; --tries) {
      auto read = world_.store().Read(client->token, Id(name), LeaseId(0), false);
      const bool evicted = world_.store().snapshot().counters.unbacked_evictions > 0;
      if (read->outcome == ReadOutcome::kMiss && !at_start.contains(name) && evicted) break;
      if (read->outcome == ReadOutcome::kMiss) std::printf("durable, but lost: %lu\n", name);
      KVKEEP_CHECK(read->outcome != ReadOutcome::kMiss);
      if (!StartRead(*client, name, *std::move(read), 0, /*must=*/tries == 1)) break;
      world_.RunToEnd();
      whole = client->readers.back()->ready();
      CheckReader(*client->readers.back());
      client->readers.pop_back();
      report_.durable_read += whole;
    }
  }
}

void Simulator::CheckSurvivors(const std::set<uint64_t>& must_be_there,
                               const std::set<uint64_t>& there) {
  for (const uint64_t name : must_be_there) {
    if (!there.contains(name)) std::printf("lost by the crash: %lu\n", name);
    KVKEEP_CHECK(there.contains(name));
  }
}

}  // namespace kvkeep
