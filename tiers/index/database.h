// A RocksDB database with the Env that it runs on, and the keeper of databases that must not be
// closed.
#pragma once

#include <rocksdb/db.h>

#include <memory>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/index/rocksdb_env.h"

namespace kvkeep {

struct Database {
  std::unique_ptr<IndexEnv> env;  // goes after it
  std::unique_ptr<rocksdb::DB> db;
  // Its column families, the default one first; they go before it.
  std::vector<std::unique_ptr<rocksdb::ColumnFamilyHandle>> families;
};

// After a failed write RocksDB's close would touch the log's writer again, which ends the process
// in a build with asserts (Debian's). So the database stays in memory until the process ends; its
// threads are stopped, its files and the lock on its directory closed. Thread-safe.
class AbandonedDatabases {
 public:
  static constexpr size_t kMost = 16;  // each has its write buffers: tens of MiB

  // The process's own.
  static AbandonedDatabases& Get();

  // REQUIRES: nobody uses the database any more. Waits for its work under way.
  void Add(Database database);
  bool full() const;      // no database is to be opened any more
  bool has_room() const;  // nor after one more

 private:
  mutable Mutex mu_;
  std::vector<Database> all_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
