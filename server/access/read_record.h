// ReadRecord: writes the audit lines of reads of another tenant's chunks: a line at the first read
// of a reader in a namespace, then one for each minute with reads that says how much was read.
//
//   msg=audit call=ReadOther who="local:pid=7 uid=5 gid=5" what="tenant b read 12 chunks, 4096
//   bytes of payload, of tenant a, namespace 0123..." outcome=OK
//
// A reader is a session's peer (process, or address and name) with its tenant. There are at most
// kMost records at a time; further readers share one for each tenant that they read. For one
// thread.
#pragma once

#include <absl/container/btree_map.h>

#include <chrono>
#include <string>
#include <tuple>
#include <vector>

#include "server/observe/log.h"
#include "tiers/base/clock.h"
#include "tiers/store/snapshot.h"

namespace kvkeep {

class ReadRecord {
 public:
  static constexpr std::chrono::seconds kLineEvery{60};
  static constexpr size_t kMost = 1024;

  // `tenants`: names as they are shown, by TenantId. Borrows the others.
  ReadRecord(const Log* log, const Clock* clock, std::vector<std::string> tenants)
      : log_(log), clock_(clock), tenants_(std::move(tenants)) {}
  // Writes the lines that are still due.
  ~ReadRecord();

  // Records the reads since the last call. Call about every second, also with none.
  void Note(const std::vector<ForeignRead>& reads);

 private:
  // The peer, its tenant, the namespace that it read, and that namespace's tenant.
  using Key = std::tuple<std::string, TenantId, NamespaceDigest, TenantId>;
  struct Count {
    MonotonicTime next_line{0};
    uint64_t chunks = 0, bytes = 0;  // not said yet
  };
  void Say(const Key& key, Count& count) const;
  std::string NameOf(TenantId tenant) const;

  const Log* const log_;
  const Clock* const clock_;
  const std::vector<std::string> tenants_;
  absl::btree_map<Key, Count> counts_;
};

}  // namespace kvkeep
