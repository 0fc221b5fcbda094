#include "tiers/index/database.h"

#include <rocksdb/convenience.h>

#include <utility>

namespace kvkeep {

AbandonedDatabases& AbandonedDatabases::Get() {
  static auto* const all = new AbandonedDatabases;
  return *all;
}

void AbandonedDatabases::Add(Database database) {
  database.env->ReleaseCompactions();  // else it would wait for them
  rocksdb::CancelAllBackgroundWork(database.db.get(), /*wait=*/true);
  database.env->StopThreads();
  database.env->CloseFiles();
  MutexLock lock(&mu_);
  all_.push_back(std::move(database));
}

bool AbandonedDatabases::full() const {
  MutexLock lock(&mu_);
  return all_.size() >= kMost;
}

bool AbandonedDatabases::has_room() const {
  MutexLock lock(&mu_);
  return all_.size() + 1 < kMost;
}

}  // namespace kvkeep
