#include "server/storage/storage_stack.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "server/sockets/sockets.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tiers/host/kernel_facts.h"
#include "tiers/remote/fleet_keys.h"

namespace kvkeep {
namespace {

// Default limit: each thread checksums 11 GB/s, and a GPU brings 55.
constexpr int kMostCopyThreads = 8;
// The least memory that a daemon takes beside its arena: buffers of gRPC and RocksDB, tables,
// threads.
constexpr uint64_t kBesideArenaBytes = 256 * kMiB;
// Work may hop between threads while AwaitQuiet looks at them one after the other (device -> index
// -> sync is the longest way), so one quiet look proves nothing.
constexpr int kQuietLooks = 4;
// How long a start waits for devices to join. It then serves, whatever they do.
constexpr std::chrono::milliseconds kPatience{200};
// How long a start waits for locks of devices, where they prove that the G2 of an earlier process
// may be kept: a busy machine, or that process's last I/O, may take them longer than a join.
constexpr std::chrono::milliseconds kLockPatience{2'000};
constexpr std::chrono::minutes kRequiredPatience{10};
// How long a start waits for memory that clients of an earlier daemon still map: they unmap it five
// seconds after its end.
constexpr std::chrono::seconds kMemoryPatience{15};
constexpr std::chrono::milliseconds kMemoryLook{50};
constexpr std::chrono::seconds kMemoryPeriod{1};    // while it serves
constexpr std::chrono::seconds kBeyondPatience{2};  // for G4; unfinished writes are no loss
constexpr std::chrono::seconds kStopPatience{5};    // for a device that is just being opened

int CopyThreads(int configured) {
  if (configured > 0) return configured;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores, 1, kMostCopyThreads);
}

// Returns how many threads ask a bucket. One takes about 1 GB/s by TLS; the line of a large machine
// has more.
uint32_t G4Threads() { return std::clamp(std::thread::hardware_concurrency() / 8, 1u, 4u); }

// Returns the threads of a start: it may use all cores, as nothing is served yet. More threads do
// not take memory faster.
int StartThreads() {
  constexpr int kMost = 32;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMost);
}

absl::StatusOr<Secret> ReadFleetKey(const std::string& path, absl::string_view about) {
  absl::StatusOr<Secret> key = ReadMasterKey(path);
  if (key.ok()) return key;
  return absl::InvalidArgumentError(absl::StrCat(about, ": ", std::string(key.status().message())));
}

absl::StatusOr<G4Secrets> ReadFleetKeys(const FleetKeyFiles& files) {
  G4Secrets secrets;
  KVKEEP_ASSIGN_OR_RETURN(secrets.fleet, ReadFleetKey(files.fleet, "fleet.key_file"));
  for (const std::string& file : files.previous) {
    KVKEEP_ASSIGN_OR_RETURN(Secret key, ReadFleetKey(file, "fleet.previous_key_files"));
    secrets.previous.push_back(std::move(key));
  }
  for (const auto& [tenant, file] : files.tenants) {
    KVKEEP_ASSIGN_OR_RETURN(
        secrets.tenants[tenant],
        ReadFleetKey(file, absl::StrCat("tenants[].g4_key_file of '", tenant, "'")));
  }
  return secrets;
}

}  // namespace

StorageStack::StorageStack(const Log* log, ServerState* state) : log_(log), state_(state) {}
StorageStack::~StorageStack() = default;

absl::StatusOr<std::unique_ptr<StorageStack>> StorageStack::Open(const StorageOptions& options,
                                                                 const Log* log,
                                                                 ServerState* state) {
  std::unique_ptr<StorageStack> storage(new StorageStack(log, state));
  const absl::Status opened = storage->OpenAll(options);
  if (opened.ok()) return storage;
  // A thread that hangs with a drive cannot be ended; only the process can.
  if (!storage->StopPlaces(RealClock()->Now() + kStopPatience)) storage.release();
  return opened;
}

absl::Status StorageStack::OpenAll(const StorageOptions& options) {
  KVKEEP_ASSIGN_OR_RETURN(identity_,
                          LoadOrCreateStoreIdentity(options.state_dir + "/identity", RealRandom()));
  KVKEEP_RETURN_IF_ERROR(OpenKeys(options));
  KVKEEP_RETURN_IF_ERROR(OpenG4(options));
  copy_pool_ = std::make_unique<CopyPool>(CopyThreads(options.copy_threads), options.arena.numa,
                                          options.arena.numa_choice);
  prefault_ = std::make_unique<HeldExecutor>(copy_pool_->threads()->background());
  state_->start.step = "opening devices";
  KVKEEP_RETURN_IF_ERROR(OpenDevices(options));
  state_->start.step = "taking memory for G2";
  KVKEEP_RETURN_IF_ERROR(OpenArena(options));
  state_->start.step = "recovering";
  KVKEEP_RETURN_IF_ERROR(OpenFleet(options));
  return OpenStore(options);
}

absl::Status StorageStack::OpenKeys(const StorageOptions& options) {
  const std::string ring = options.state_dir + "/keyring";
  if (options.master_key_file.empty()) {
    if (access(ring.c_str(), F_OK) == 0) {
      log_->Warn("encryption is off, but there is a key ring: chunks encrypted earlier are misses",
                 {{"key_ring", ring}, {"to_do", "set encryption.master_key_file, or remove it"}});
    }
    return absl::OkStatus();
  }
  const auto about = [](const absl::Status& status) {
    return absl::Status(
        status.code(), absl::StrCat("encryption.master_key_file: ", std::string(status.message())));
  };
  const absl::StatusOr<Secret> master = ReadMasterKey(options.master_key_file);
  if (!master.ok()) return about(master.status());
  std::vector<std::string> tenants;
  for (const TenantOptions& tenant : options.store.tenants) tenants.push_back(tenant.name);
  if (tenants.empty()) tenants.emplace_back();
  KVKEEP_ASSIGN_OR_RETURN(key_file_, KeyRingFile::Open(ring));
  const size_t before = key_file_->entries().size();
  const absl::StatusOr<std::vector<Secret>> previous =
      ReadPreviousMasterKeys(options.previous_master_key_files, key_file_->entries(), *master);
  if (!previous.ok()) {
    return absl::Status(previous.status().code(),
                        absl::StrCat("encryption.previous_master_key_files: ",
                                     std::string(previous.status().message())));
  }
  absl::StatusOr<std::unique_ptr<KeyRing>> keys =
      key_file_->UnwrapWithKeysFor(tenants, *master, RealRandom(), *previous);
  if (absl::IsInvalidArgument(keys.status())) return about(keys.status());
  if (!keys.ok()) return keys.status();
  keys_ = *std::move(keys);
  log_->Info("chunks written to G3 are encrypted",
             {{"key_ring", ring},
              {"keys", absl::StrCat(keys_->size())},
              {"new_keys", absl::StrCat(keys_->size() - before)}});
  if (!options.previous_master_key_files.empty()) {
    log_->Info("all keys are wrapped by the master key: previous master keys are not needed here",
               {{"were_needed", previous->empty() ? "no" : "yes"},
                {"to_do", "take them out of encryption.previous_master_key_files"}});
  }
  return absl::OkStatus();
}

absl::Status StorageStack::OpenG4(const StorageOptions& options) {
  if (!options.g4.has_value()) return absl::OkStatus();
  KVKEEP_ASSIGN_OR_RETURN(const G4Secrets secrets, ReadFleetKeys(options.fleet_keys));
  G4Options g4 = *options.g4;
  g4.place.writer = identity_.store_uuid.ToHex();
  g4.place.http_threads = G4Threads();
  absl::StatusOr<std::unique_ptr<G4>> opened = G4::Open(g4, secrets, RealClock(), RealRandom());
  if (!opened.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("g4: ", std::string(opened.status().message())));
  }
  g4_ = *std::move(opened);
  // Objects in G4 are not asked for before the epoch is known; a G4 that hangs delays the start
  // only briefly.
  constexpr std::chrono::seconds kEpochWithin{2};
  g4_->AwaitEpoch(kEpochWithin);
  KVKEEP_ASSIGN_OR_RETURN(removal_log_, FileRemovalLog::Open(options.state_dir + "/g4-removals"));
  if (const size_t left = removal_log_->Left().size(); left > 0) {
    log_->Info("deleted chunks are still to be removed from G4", {{"chunks", absl::StrCat(left)}});
  }
  return absl::OkStatus();
}

absl::Status StorageStack::OpenFleet(const StorageOptions& options) {
  if (!options.peers.has_value()) return absl::OkStatus();
  KVKEEP_ASSIGN_OR_RETURN(const Secret key,
                          ReadFleetKey(options.fleet_keys.fleet, "fleet.key_file"));
  const FleetKeys keys = FleetKeys::Derive(key, options.fleet_name);
  fleet_ = std::make_unique<FleetSource>(
      *options.peers, keys.id, keys.mac,
      FleetSource::Parts{.shared = g4_ == nullptr ? nullptr : g4_->source(),
                         .executor = copy_pool_->threads(),
                         .clock = RealClock(),
                         .random = RealRandom()});
  return absl::OkStatus();
}

void StorageStack::TellOfG4(const ObjectStoreHealth& health) const {
  if (health.writable()) return log_->Info("G4 serves", {{"where", g4_->where()}});
  const char* const message = health.readable() ? "G4 takes no writes"
                              : health.state == ObjectStoreHealth::State::kAway
                                  ? "G4 is away: its chunks are misses"
                                  : "G4 refuses requests";
  log_->Warn(message, {{"where", g4_->where()},
                       {"code", health.error.code},
                       {"why", health.error.message},
                       {"request_id", health.error.request_id},
                       {"to_do", health.what_to_do}});
}

void StorageStack::TellOfG4Keys(const absl::Status& renewal) const {
  if (renewal.ok()) return log_->Info("G4's keys are renewed again", {{"where", g4_->where()}});
  log_->Warn("G4's keys could not be renewed: the previous ones are used",
             {{"where", g4_->where()}, {"why", std::string(renewal.message())}});
}

void StorageStack::ClearG4(absl::AnyInvocable<void(absl::Status) &&> done) {
  if (g4_ == nullptr) {
    return std::move(done)(absl::FailedPreconditionError("g4: nothing lies beyond this node"));
  }
  // Runs on the copy pool: the object store's threads answer all other requests.
  g4_->BeginEpoch([this, done = std::move(done)](absl::Status status) mutable {
    copy_executor()->Post([done = std::move(done), status = std::move(status)]() mutable {
      std::move(done)(std::move(status));
    });
  });
}

std::optional<G4Snapshot> StorageStack::g4() const {
  if (g4_ == nullptr) return std::nullopt;
  return g4_->snapshot();
}

absl::Status StorageStack::OpenArena(const StorageOptions& options) {
  ArenaOptions arena = options.arena;
  // Images of another store would be found, and fail when they are read.
  arena.owners ^= Xxh3(std::as_bytes(std::span(identity_.store_uuid.bytes)));
  arena.fresh |= !unsure_devices_.empty();
  std::string replaced_because;
  arena.replaced_because = &replaced_because;
  arena.threads = StartThreads();
  arena.taken_bytes = &state_->start.memory_bytes;
  const MonotonicTime give_up = RealClock()->Now() + kMemoryPatience;
  absl::StatusOr<std::unique_ptr<Arena>> made = CreateArena(arena, prefault_.get());
  if (absl::IsUnavailable(made.status())) {
    log_->Warn("G2 waits for memory", {{"why", std::string(made.status().message())}});
  }
  while (absl::IsUnavailable(made.status()) && RealClock()->Now() < give_up) {
    std::this_thread::sleep_for(kMemoryLook);  // for other processes, whose end nothing reports
    state_->start.memory_bytes = 0;
    made = CreateArena(arena, prefault_.get());
  }
  KVKEEP_ASSIGN_OR_RETURN(arena_, std::move(made));
  WarnOfTightMemory();
  WarnOfPart();
  if (!unsure_devices_.empty() && arena_->stats().survives_restart) {
    log_->Warn(
        "G2 starts cold: I/O of an earlier process may still run on devices that are not open",
        {{"devices", absl::StrJoin(unsure_devices_, ", ")},
         {"to_do", "bring them back; or, for good, remove their lines from the file of devices"}});
  }
  return absl::OkStatus();
}

void StorageStack::WarnOfTightMemory() const {
  const MemoryLimit limit = LeastMemoryLimit();
  const uint64_t arena = arena_->capacity_bytes();
  if (limit.bytes >= arena && limit.bytes - arena >= kBesideArenaBytes) return;
  log_->Warn("little memory is left beside G2: the kernel may kill the daemon",
             {{"limit_bytes", absl::StrCat(limit.bytes)},
              {"limit", limit.path},
              {"g2_bytes", absl::StrCat(arena)},
              {"to_do", absl::StrCat("raise the limit, or lower g2.capacity, until ",
                                     kBesideArenaBytes, " bytes are left")}});
}

void StorageStack::WarnOfPart() const {
  const Arena::Stats arena = arena_->stats();
  if (arena.to_come_bytes == 0) return;
  log_->Warn("G2 has a part of its memory; the rest is taken when it is free",
             {{"there_bytes", absl::StrCat(arena.capacity_bytes - arena.to_come_bytes)},
              {"to_come_bytes", absl::StrCat(arena.to_come_bytes)},
              {"why", "clients of an earlier daemon still map it"},
              {"arena", arena_->describe()}});
}

bool StorageStack::TakeMemory() {
  if (!to_come_ || RealClock()->Now() < memory_look_at_) return false;
  const std::vector<Extent> came = arena_->TakeMore();
  if (came.empty()) {
    memory_look_at_ = RealClock()->Now() + kMemoryPeriod;
    return false;
  }
  store_->AddMemory(came);
  to_come_ = arena_->stats().to_come_bytes > 0;
  if (!to_come_) log_->Info("G2 has all of its memory", {{"arena", arena_->describe()}});
  return true;
}

void StorageStack::BeginLog() {
  for (const auto& place : places_) place->BeginLog();
}

bool StorageStack::Tick() {
  const bool at_rest = store_->Tick();
  const bool came = TakeMemory();
  if (g4_ != nullptr) {
    if (const std::optional<ObjectStoreHealth> now = g4_->Tick()) TellOfG4(*now);
    if (const std::optional<absl::Status> keys = g4_->NewsOfKeys()) TellOfG4Keys(*keys);
  }
  return RegisterSegments() && at_rest && !came;
}

bool StorageStack::RegisterSegments() {
  const Arena::Stats arena = arena_->stats();
  const uint64_t there = arena.capacity_bytes - arena.to_come_bytes;
  if (arena.prefaulted_bytes + arena.prefault_failed_bytes < there) return false;
  const bool all = io_.RegisterNext(*arena_, [this](const absl::Status& status) {
    if (state_->counters.buffer_registration_failures.fetch_add(1) > 0) return;
    log_->Warn("a segment of the arena is not registered for I/O, which then costs more CPU",
               {{"why", std::string(status.message())}});
  });
  if (all && !to_come_ && !std::exchange(said_ready_, true)) {
    log_->Info("arena ready", {{"arena", describe()}, {"io", io_.describe()}});
  }
  return all;
}

IoEngineOptions StorageStack::ShareBuffers(const StorageOptions& options) {
  IoEngineOptions io = options.io;
  if (io.mode == IoMode::kThreads || options.devices.size() < 2) return io;
  absl::StatusOr<std::shared_ptr<SharedBuffers>> shared = SharedBuffers::Create();
  if (!shared.ok()) {
    log_->Info("each device's ring pins G2 for itself, which takes up to 6 MiB a GiB and ring",
               {{"why", std::string(shared.status().message())}});
    return io;
  }
  io_.Share(*shared, copy_pool_->threads()->background());
  io.shared = *std::move(shared);
  return io;
}

absl::Status StorageStack::OpenDevices(const StorageOptions& options) {
  const std::string known_file = options.state_dir + "/devices";
  KVKEEP_ASSIGN_OR_RETURN(KnownDevices known, KnownDevices::Load(known_file));
  std::set<std::string> unsure = known.dirs();
  {
    MutexLock lock(&known_mu_);
    known_.emplace(std::move(known));
  }
  const DevicePlace::Home home{.identity = identity_,
                               .knows =
                                   [this](const std::string& dir) {
                                     MutexLock lock(&known_mu_);
                                     return known_->Contains(dir);
                                   },
                               .note =
                                   [this](const std::string& dir) {
                                     MutexLock lock(&known_mu_);
                                     return known_->Add(dir);
                                   },
                               .known_file = known_file};
  const IoEngineOptions io = ShareBuffers(options);
  for (const NvmeDeviceOptions& device : options.devices) {
    KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<IoEngine> engine, CreateIoEngine(io));
    IoEngine* const borrowed = engine.get();
    io_.Add(std::move(engine));
    places_.push_back(std::make_unique<DevicePlace>(device, home, borrowed, log_));
  }
  const bool outlives = !options.arena.mount_dir.empty();
  const MonotonicTime deadline = RealClock()->Now() + (outlives ? kLockPatience : kPatience);
  for (size_t i = 0; i < places_.size(); ++i) {
    const NvmeDeviceOptions& device = options.devices[i];
    if (device.required && !places_[i]->AwaitOpened(RealClock()->Now() + kRequiredPatience)) {
      return absl::UnavailableError(absl::StrCat(
          device.dir, ": does not answer, and could not be opened (the device is required)"));
    }
    if (places_[i]->AwaitLocks(deadline)) unsure.erase(device.dir);
    KVKEEP_RETURN_IF_ERROR(Judge(device, *places_[i]));
  }
  unsure_devices_.assign(unsure.begin(), unsure.end());
  return absl::OkStatus();
}

absl::Status StorageStack::Judge(const NvmeDeviceOptions& options, const DevicePlace& place) const {
  const std::optional<NvmeDevice::OpenError> error = place.error();
  if (!error.has_value()) return absl::OkStatus();
  if (error->failure == OpenFailure::kMisconfigured) {
    return absl::InvalidArgumentError(error->status.message());
  }
  if (!options.required) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(std::string(error->status.message()), " (the device is required)"));
}

StoreOptions StorageStack::ForStore(const StorageOptions& options) {
  StoreOptions store = options.store;
  for (const NvmeDeviceOptions& device : options.devices) {
    store.g3_capacity_bytes.push_back(device.capacity_bytes);
  }
  return store;
}

absl::Status StorageStack::SetLimits(const StorageOptions& options) {
  KVKEEP_RETURN_IF_ERROR(store_->SetLimits(ForStore(options)));
  if (g4_ != nullptr && options.g4.has_value()) {
    g4_->SetProbesPerSecond(options.g4->probes_per_second);
  }
  return absl::OkStatus();
}

absl::Status StorageStack::OpenStore(const StorageOptions& options) {
  StoreDeps deps{.clock = RealClock(),
                 .random = RealRandom(),
                 .arena = arena_.get(),
                 .copy_executor = copy_executor(),
                 .background_executor = copy_pool_->threads()->background(),
                 .mac_key = identity_.mac_key,
                 .keys = keys_.get(),
                 .recovered_records = &state_->start.recovered_records,
                 .recovered_images = &state_->start.recovered_images,
                 .recovery_threads = StartThreads(),
                 .work_clock = ThreadCpuClock(),
                 .work_clock_every = 13,
                 .wake = [this] { wake_(); }};
  KVKEEP_ASSIGN_OR_RETURN(deps.boot_id, ReadBootId());
  if (g4_ != nullptr) {
    deps.remote = g4_->source();
    deps.remote_keys = g4_->keys();
    deps.removal_log = removal_log_.get();
  }
  if (fleet_ != nullptr) deps.remote = fleet_.get();
  deps.devices.resize(places_.size(), {.coming = true});
  const MonotonicTime began = RealClock()->Now();
  to_come_ = arena_->stats().to_come_bytes > 0;
  KVKEEP_ASSIGN_OR_RETURN(store_, Store::Create(ForStore(options), deps));
  prefault_->LetGo();  // not before: the recovery takes all cores, and clients wait for it
  for (size_t i = 0; i < places_.size(); ++i) places_[i]->JoinTo(store_.get(), i);
  // Devices that can join soon are there for the first request.
  for (const auto& place : places_) place->AwaitHere(began + kPatience);
  state_->start.recovery_ns = static_cast<uint64_t>((RealClock()->Now() - began).count());
  return absl::OkStatus();
}

std::string StorageStack::describe() const {
  const std::string copies = copy_pool_->describe();
  return absl::StrCat(arena_->describe(), copies.empty() ? "" : "; ", copies);
}

StoreSnapshot StorageStack::snapshot() const {
  StoreSnapshot snapshot = store_->snapshot();
  for (size_t i = 0; i < places_.size(); ++i) places_[i]->AddTo(&snapshot.devices[i]);
  return snapshot;
}

void StorageStack::PassThroughPools() {
  copy_pool_->PassThrough();
  if (removal_log_ != nullptr) removal_log_->AwaitWritten();
  for (const auto& place : places_) place->PassThrough();
}

bool StorageStack::NothingHeld() const {
  const ServerCounters& counters = state_->counters;
  const LocalCounters& local = state_->local;
  const IoEngine::Stats io = io_.stats();
  return local.open_connections.load() == 0 && local.puts_copying.load() == 0 &&
         local.gpu_gets_copying.load() == 0 && local.staging_bytes.load() == 0 &&
         io.in_flight == 0 && io.queued == 0 && store_->beyond_is_quiet() &&
         store_->learning_is_quiet() && counters.pinned_chunks.load() == 0 &&
         counters.open_get_streams.load() == 0 && counters.open_put_streams.load() == 0 &&
         counters.open_session_streams.load() == 0 && counters.open_watch_streams.load() == 0;
}

bool StorageStack::StopPlaces(MonotonicTime deadline) {
  if (store_ != nullptr) store_->BeginDrain();  // a join that is under way ends
  bool stopped = true;
  for (const auto& place : places_) stopped = place->Stop(deadline) && stopped;
  return stopped;
}

bool StorageStack::AwaitQuiet(std::chrono::nanoseconds timeout) {
  const MonotonicTime began = RealClock()->Now(), deadline = began + timeout;
  if (!StopPlaces(deadline)) return false;
  int quiet_looks = 0;
  while (quiet_looks < kQuietLooks) {
    const MonotonicTime now = RealClock()->Now();
    if (now > deadline) return false;
    if (g4_ != nullptr && now > began + kBeyondPatience) g4_->Stop();
    const bool before = NothingHeld();
    PassThroughPools();
    quiet_looks = before && NothingHeld() ? quiet_looks + 1 : 0;
    // Waits for I/O and callbacks to end.
    if (quiet_looks == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace kvkeep
