// Simulator: one run of the simulation (simulation.h): the clients, and the model that judges.
//
// Where the store lets go of its lock in the middle of a call, other clients may act: Interrupt()
// runs a step there. A client that is in a call makes no other one.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/payload.h"
#include "tests/sim/random_world.h"
#include "tests/sim/simulation.h"
#include "tests/sim/world.h"

namespace kvkeep {

inline constexpr uint64_t kNames = 64;

class Simulator {
 public:
  explicit Simulator(const SimulationOptions& options)
      : options_(options),
        world_options_(RandomWorld(options.seed)),
        faultless_(FreeOfFaults(world_options_)),
        world_(world_options_),
        random_(options.seed + 1),
        names_end_(random_.Chance(0.3) ? 8 : kNames) {}

  SimulationReport Run();

 private:
  struct Version {
    uint64_t number;
    ImageShape shape;
  };
  // What a name may hold.
  struct Name {
    std::vector<Version> versions;
    uint64_t deleted_up_to = 0;  // versions up to this one must not be read by new readers
    uint64_t stored = 0;         // the version that was stored last
  };
  struct HeldReader {
    uint64_t name = 0;
    ChunkReader reader;
    size_t pieces_left = 0;  // not told yet
    bool failed = false;
    bool ready() const { return pieces_left == 0 && !failed; }
    uint64_t version = 0;  // what its bytes turned out to be
    uint64_t oldest = 0;   // versions up to this one were deleted before the read began
  };
  struct HeldPut {
    Reservation reservation;
    uint64_t name = 0;
    uint64_t version = 0;
    std::vector<std::byte> payload;
    std::string tail;
    bool durable = false;
  };
  struct HeldLease {
    LeaseId id;
    uint32_t keys = 0;
    std::map<uint64_t, uint32_t> names;  // promised ones, with their index in the lookup
  };
  struct Client {
    SessionToken token;
    std::vector<HeldLease> leases;
    std::vector<std::shared_ptr<HeldReader>> readers;
    std::vector<HeldPut> puts;
    bool busy = false;  // in a call
  };
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
  void Connect(Client& client);
  void Disconnect(Client& client);
  void DoLookup(Client& client);
  void DoRead(Client& client);
  void DoBeginPut(Client& client);
  void DoContinuePut(Client& client);
  void DoRelease(Client& client);
  void DoDelete(Client& client);
  void DoDropReader(Client& client);
  void DoCrash(bool power);
  void CountProcess();
  bool KeepArena(bool power);
  // Of its record in an index; zero when there is none.
  CommitSequence RecordOf(uint64_t name);
  // Present in the tiers whose presence words are given.
  std::set<uint64_t> Stored(std::vector<uint64_t> LookupResult::*tier);
  void CheckSurvivors(const std::set<uint64_t>& must_be_there,
                      std::vector<uint64_t> LookupResult::*tier);
  void CheckReader(HeldReader& held);
  void CheckPresent(Client& client, uint64_t name);
  void OnPieceReady(const std::shared_ptr<HeldReader>& held, size_t piece, absl::Status status);
  void FinishAll();
  ImageShape RandomShape();
  std::vector<ChunkKey> RandomChain(std::vector<uint64_t>* names);
  bool MustNotFail(uint64_t name) const { return faultless_ && !unsure_.contains(name); }
  Client& AnyClient() { return clients_[random_.Below(clients_.size())]; }
  void Log(const std::string& what);
  void Mix(uint64_t value) { report_.digest = (report_.digest ^ value) * 0x100000001b3; }

  const SimulationOptions options_;
  const WorldOptions world_options_;
  const bool faultless_;
  World world_;
  SeededRandom random_;
  const uint64_t names_end_;  // few names: they meet in many states
  std::map<uint64_t, Name> names_;
  std::vector<Client> clients_;
  NamespaceDigest ns_;
  // Acknowledged as durable and not deleted since, with the record that was acknowledged: one that
  // was evicted from G3 and written back later from G2 has another, which promises nothing.
  std::map<uint64_t, CommitSequence> durable_;
  // Told of by records that a power cut may have brought back: their header is right, but blocks
  // behind it may have been reused since. They may turn out damaged without any fault.
  std::set<uint64_t> unsure_;
  uint64_t next_version_ = 1;
  uint64_t callbacks_due_ = 0;
  uint64_t interruptions_ = 0;
  int depth_ = 0;    // calls interrupted by this one
  int alone_ = 0;    // nothing is to interrupt
  int sealing_ = 0;  // no deletes meanwhile: the model could not tell which came first
  int deleting_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> sealed_while_deleting_;  // name, version
  bool crashed_ = false;
  uint64_t process_ = 0;  // callbacks of an earlier process do not count
  SimulationReport report_;
};

}  // namespace kvkeep
