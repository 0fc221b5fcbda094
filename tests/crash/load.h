// Load: one client of the crash tests. It puts, reads, looks up, leases and deletes chunks of its
// own keys, and reads other clients' chunks. It records answers and errors in the expected state.
//
// A version of a key may be served if it was put and is not dead. A version is dead when its delete
// was answered, in this process of the daemon, since a kill undoes a delete whose removal no index
// has yet. It is dead for good once a durable put that began later was acknowledged, as a device's
// removals go ahead of its adds. So there is one device, and no client reads (which delays a
// removal) a chunk that is being deleted. One thread.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/client.h"
#include "tests/crash/expected_state.h"
#include "tests/crash/payload.h"

namespace kvkeep::crash {

struct LoadOptions {
  std::string endpoint;
  client::PathChoice path = client::PathChoice::kAuto;
  uint32_t client = 0, clients = 1, keys = 1;
  uint64_t seed = 0;
};

class Load {
 public:
  Load(const LoadOptions& options, Shared* shared);

  // Reads every own key after a start of the daemon. Ends early if the turn is over, as that daemon
  // died.
  void Check(uint32_t turn);
  // Makes one call, or a few.
  void Step();

 private:
  struct Seen {
    enum class What { kVersion, kMiss, kOther } what = What::kOther;
    uint32_t version = 0;
  };

  KeyName Name(uint32_t key) const { return {options_.client, key}; }
  KeyState& State(uint32_t key) { return shared_->keys[options_.client][key]; }
  ClientState& mine() { return shared_->clients[options_.client]; }
  bool Interrupted() const { return shared_->turn != checking_; }
  uint32_t Random(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  void PutSome(uint32_t first, bool durable);
  void NotePut(uint32_t key, uint32_t version, client::PutStatus status, bool durable);
  void PutAgainDurable(uint32_t key);
  void Read(uint32_t key);
  void ReadOther();
  void LookUpAll();
  void LeaseSome(uint32_t first);
  void AcquireSome(uint32_t first);
  void DeleteOne(uint32_t key);

  Seen Get(const KeyName& name, const client::Lease* lease, uint32_t index_in_lease);
  // Checks a read of an own key, and records what is known now.
  void Judge(uint32_t key, const Seen& seen);
  void CheckKey(uint32_t key);
  // Runs a call, measures its time, counts its failure.
  template <typename Call>
  auto Timed(Call call) -> decltype(call());
  void NoteFailure(const absl::Status& status);
  void Fail(Count& what, const std::string& text);

  const LoadOptions options_;
  Shared* const shared_;
  std::mt19937_64 random_;
  std::unique_ptr<client::Client> client_;
  client::Namespace ns_;
  uint32_t checking_ = 0;      // the turn of the check under way
  std::string last_failure_;   // of a call
  std::string tried_;          // reason, in words, of the current check for losses
  std::vector<bool> present_;  // by key, as far as known
  std::vector<std::byte> buffer_;
};

}  // namespace kvkeep::crash
