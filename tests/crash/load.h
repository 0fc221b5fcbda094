// Load: one client of the crash tests. Puts, reads, looks up, leases and deletes chunks of its own
// keys, reads those of others, and writes down in the expected state what it was told and what it
// saw that must not be.
//
// Which version of a key may be served: one that was put and is not dead. A version is dead when
// its delete was answered: for this life of the daemon, since a kill undoes a delete whose removal
// no index has yet. It is dead for good once a durable put that began later was acknowledged: one
// device's removals go ahead of its adds. So there is one device, and nobody reads (which delays a
// removal) what is being deleted. One thread.
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

  // Reads every own key after a start of the daemon. Ends early when the turn is over: that daemon
  // died.
  void Check(uint32_t turn);
  // One call, or a few.
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
  // Judges what a read of an own key brought, and notes what is known now.
  void Judge(uint32_t key, const Seen& seen);
  void CheckKey(uint32_t key);
  // Runs a call, takes its time, counts its failure.
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
  std::string tried_;          // by the check of what is lost now, in words
  std::vector<bool> present_;  // by key: as far as is known
  std::vector<std::byte> buffer_;
};

}  // namespace kvkeep::crash
