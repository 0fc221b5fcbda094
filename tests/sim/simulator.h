// Simulator: one run of the simulation (simulation.h): the clients, and the model that judges.
//
// Where the store yields its lock in the middle of a call, other clients may act: Interrupt() runs
// a step there. A client that is in a call makes no other one.
//
// The model knows a chunk by its name, a number: of a space (namespace and part of a tenant) and of
// a key in it. Keys are the same in all spaces, bytes are not.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/event_mirror.h"
#include "tests/sim/held.h"
#include "tests/sim/names.h"
#include "tests/sim/payload.h"
#include "tests/sim/random_world.h"
#include "tests/sim/second_tenant.h"
#include "tests/sim/simulation.h"
#include "tests/sim/world.h"

namespace kvkeep {

class Simulator {
 public:
  explicit Simulator(const SimulationOptions& options)
      : options_(options),
        scenario_(RandomScenario(options.seed, options.without, options.policy)),
        world_options_(scenario_.world),
        faultless_(FreeOfFaults(scenario_)),
        honest_(Honest(scenario_)),
        world_(world_options_),
        random_(options.seed + 1),
        names_end_(random_.Chance(0.3) ? 8 : kNames),
        second_(scenario_.namespaces * scenario_.parts) {}

  SimulationReport Run();

 private:
  struct Client {
    TenantId tenant;
    SessionToken token;
    std::vector<HeldLease> leases;
    std::vector<std::shared_ptr<HeldReader>> readers;
    std::vector<HeldPut> puts;
    bool busy = false;  // in a call
  };
  struct LeasedBytes { uint64_t bytes, limit; };
  // Counts scopes that something must not interrupt.
  class Uninterrupted {
   public:
    explicit Uninterrupted(int* count) : count_(count) { ++*count_; }
    ~Uninterrupted() { --*count_; }

   private:
    int* const count_;
  };

  void Step();
  void Act(Client& client, uint64_t pick);
  void Interrupt();
  void DrawFrom(uint64_t step);
  void ConnectAll();
  void Connect(Client& client);
  void Disconnect(Client& client);
  void Revoke(Client& client);
  void DoStalled();
  bool SealStalled(HeldPut& put, const SessionToken& token);
  LeasedBytes Leased(const Client& client);
  void DoLookup(Client& client);
  void NoteLease(Client& client, const Looked& looked, const LookupResult& result);
  void LookupBeyond(Client& client, const Looked& looked, LookupRequest request);
  void NoteRecalled(uint64_t name);
  void DoRead(Client& client);
  bool StartRead(Client& client, uint64_t name, ReadResult read, uint64_t oldest, bool must);
  void DoBeginPut(Client& client);
  void DoContinuePut(Client& client);
  void DoRelease(Client& client);
  void DoDelete(Client& client);
  void DoRecall(Client& client);
  void DoDropReader(Client& client);
  void DoTrouble();
  void DoJoin(size_t device);
  void DoLeave(size_t device);
  void OpenFailedAnew();
  void DriveLosesPower(size_t device);
  bool DrivesLosePower();  // some of them, between two processes; false: none
  void AwaitDurable(uint64_t name);
  void AttachDevices(std::set<uint64_t>* must_be_there);
  bool StopInOrder();
  void DoCrash(bool power);
  void CountProcess();
  bool KeepArena(bool power);
  size_t tenants() const;  // of this process
  bool IsAway(uint64_t name) const { return second_.IsAway(name / kNames); }
  bool ChangeTenants(std::set<uint64_t>* must_be_there, bool all_kept);
  void DrawQuotas();
  void CheckQuotas();
  bool SetCapacities();  // false: refused
  void AddMemory(uint64_t most_blocks);
  void CheckRecordsInQuota();
  std::vector<Promise> RecordsOf(uint64_t name);  // in the indexes of attached devices
  // Returns whether the record acknowledged as durable for this name is still in the index.
  bool PromiseHolds(uint64_t name);
  bool HasLeft(uint64_t name);
  bool IsKept(uint64_t name, const Promise& promise);  // its index may not forget it
  void CheckPromises();
  void NotePromises();
  // Looks at everything that is recorded now and was not `before`, by device.
  void NoteRevived(const std::vector<Records>& before, bool power);
  void NoteRevivedOn(size_t device, const Records& before);
  bool IsBelieved(uint64_t name, const Promise& record) const;
  // Notes records that the next process finds in doubt no more, and checks that it says so.
  void NoteCleared();
  void CheckCleared();
  std::vector<Records> AllRecords();
  Records RecordsOn(size_t device);
  // Returns whether it is present in the tiers whose presence words are given.
  std::set<uint64_t> Stored(std::vector<uint64_t> LookupResult::*tier);
  std::set<uint64_t> StoredOrBeneath(const std::set<uint64_t>& names);
  std::set<uint64_t> MustOutlive(bool power, const std::set<uint64_t>& in_g2);
  void DoubtNamesOfOldRecords();

  std::set<uint64_t> MisledByDrives();
  static void CheckSurvivors(const std::set<uint64_t>& must, const std::set<uint64_t>& there);
  void ReadDurable(const std::set<uint64_t>& must_be_there);
  void CheckReader(HeldReader& held);
  void CheckPresent(Client& client, uint64_t name);
  void OnPieceReady(const std::shared_ptr<HeldReader>& held, size_t piece, absl::Status status);
  void FinishAll();
  void CheckEvents();  // all read: the reported state is what lookups find, in each tier
  ImageShape RandomShape();
  size_t RandomSpace(const Client& client);
  uint64_t RandomName(const Client& client) {
    return RandomSpace(client) * kNames + random_.Below(names_end_);
  }
  const Space& space(uint64_t name) const { return spaces_[name / kNames]; }
  static ChunkKey Key(uint64_t name) { return MakeKey(name % kNames); }
  ChunkId Id(uint64_t name) const { return {space(name).ns, Key(name), space(name).part}; }
  bool MustNotFail(uint64_t name) const { return faultless_ && !unsure_.contains(name); }
  Client& AnyClient() { return clients_[random_.Below(clients_.size())]; }
  void Log(const std::string& what);
  void Mix(uint64_t value) { report_.digest = (report_.digest ^ value) * 0x100000001b3; }

  const SimulationOptions options_;
  const Scenario scenario_;
  const WorldOptions world_options_;
  const bool faultless_;
  const bool honest_;
  World world_;
  SeededRandom random_;
  const uint64_t names_end_;   // few names: they meet in many states
  std::vector<Space> spaces_;  // all parts of a tenant's namespace are adjacent
  SecondTenant second_;
  std::map<uint64_t, Name> names_;
  std::vector<Client> clients_;
  std::vector<Stalled> stalled_;
  std::set<size_t> left_;         // devices, in this process
  std::vector<uint64_t> quotas_;  // of this process, in blocks, by tenant; 0: none
  // TenantCounters::g3_pushed_out when the current capacities were set; likewise.
  std::vector<uint64_t> pushed_out_;
  // Acknowledged as durable and not deleted since, with the acknowledged record: a chunk that was
  // evicted from G3 and written back later from G2 has another record, which promises nothing.
  std::map<uint64_t, Promise> durable_;
  std::map<uint64_t, uint64_t> promised_;  // in this process: changes of the name until then
  // Records that are back after their removal in the same boot, since a drive forgot the end of its
  // index: their blocks may be reused. Only records that are in no doubt; by device.
  std::vector<Records> believed_;
  // Sequences of records that a process had doubts about when it began, by device; names of those
  // that the next one has none about.
  std::vector<std::set<CommitSequence>> in_doubt_;
  std::vector<std::pair<uint64_t, Promise>> cleared_;
  // Names of the others: a client soon puts them durable, to see whether they are believed.
  std::set<uint64_t> doubted_;
  std::optional<EventMirror> events_;  // of all namespaces, from some time of this process on
  // Requested from beyond the node, in this process: bytes from there may fail, whatever was
  // promised of this node's own copy.
  std::set<uint64_t> recalled_;
  // Named by records that a power cut may have brought back: their header is right, but blocks
  // behind it may have been reused since. They may turn out damaged without any fault.
  std::set<uint64_t> unsure_;
  uint64_t next_version_ = 1;
  uint64_t step_ = 0;
  uint64_t callbacks_due_ = 0;
  uint64_t interruptions_ = 0;
  int depth_ = 0;    // calls interrupted by this one
  int alone_ = 0;    // nothing may interrupt
  int sealing_ = 0;  // no deletes meanwhile: their order would be unknown
  int deleting_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> sealed_while_deleting_;  // name, version
  bool crashed_ = false;
  bool joined_since_ = false, began_to_leave_ = false;  // a device, since this process began
  uint64_t process_ = 0;  // callbacks of an earlier process do not count
  SimulationReport report_;
};

}  // namespace kvkeep
