// An index's database as RocksDB sees it, for tests that plant what no index would write.
#pragma once

#include <rocksdb/db.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tiers/base/check.h"

namespace kvkeep {

class RawDatabase {
 public:
  // Opens it with all column families that it has.
  explicit RawDatabase(const std::string& dir, const rocksdb::Options& options = {}) {
    std::vector<std::string> names;
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    if (!rocksdb::DB::ListColumnFamilies(options, dir, &names).ok()) names = {"default"};
    for (const std::string& name : names) families.emplace_back(name, options);
    rocksdb::DB* raw = nullptr;
    KVKEEP_CHECK(rocksdb::DB::Open(options, dir, families, &handles_, &raw).ok());
    db_.reset(raw);
  }
  ~RawDatabase() {
    for (rocksdb::ColumnFamilyHandle* const handle : handles_) delete handle;
  }
  RawDatabase(const RawDatabase&) = delete;
  RawDatabase& operator=(const RawDatabase&) = delete;

  // Writes to the default column family; no value: removes the key.
  void Plant(const std::string& key, const std::optional<std::string>& value) {
    KVKEEP_CHECK((value.has_value() ? db_->Put({}, key, *value) : db_->Delete({}, key)).ok());
  }
  size_t families() const { return handles_.size(); }
  // `family`: its number, in the order in which families were made.
  void Plant(size_t family, const std::string& key, const std::string& value) {
    KVKEEP_CHECK(db_->Put({}, handles_[family], key, value).ok());
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
};

// Drops the column family of recency, as in a database of a former version.
inline void MakeFormer(const std::string& dir) {
  const rocksdb::Options options;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* raw = nullptr;
  KVKEEP_CHECK(rocksdb::DB::Open(options, dir, {{"default", options}, {"recency", options}},
                                 &handles, &raw)
                   .ok());
  const std::unique_ptr<rocksdb::DB> db(raw);
  KVKEEP_CHECK(db->DropColumnFamily(handles[1]).ok());
  for (rocksdb::ColumnFamilyHandle* const handle : handles) delete handle;
}

}  // namespace kvkeep
