// MissedDeletes: the deletes while a device was away, so that its records bring no deleted chunk
// back when the device joins.
//
// Every record that a device holds when it joins is older than its absence. So a delete in that
// time, of a chunk, of a namespace or of everything, covers every such record that it names. It
// holds at most kMostChunks identities; after one more it covers everything: the device then joins
// empty, which costs hits and is never wrong.
//
// Owned by the device's tier. The store's lock protects it. It frees nothing while it is used,
// since that takes time: its owner moves it away and destroys it without the lock. It is in the
// process's memory alone, so a delete of an absent device's chunk does not outlive the process.
#pragma once

#include <absl/container/btree_set.h>

#include <cstddef>

#include "tiers/base/key.h"

namespace kvkeep::store_internal {

class MissedDeletes {
 public:
  static constexpr size_t kMostChunks = 1 << 18;

  explicit MissedDeletes(size_t most_chunks = kMostChunks) : most_chunks_(most_chunks) {}

  void Add(const ChunkId& id) {
    if (all_ || !chunks_.insert(id).second) return;
    all_ = overflowed_ = chunks_.size() > most_chunks_;
  }
  void AddNamespace(const NamespaceDigest& ns) {
    if (all_ || !namespaces_.insert(ns).second) return;
    all_ = overflowed_ = namespaces_.size() > most_chunks_;
  }
  void AddAll() { all_ = true; }

  bool Covers(const ChunkId& id) const {
    return all_ || chunks_.contains(id) || namespaces_.contains(id.ns);
  }
  bool empty() const { return !all_ && chunks_.empty() && namespaces_.empty(); }
  bool overflowed() const { return overflowed_; }
  bool roomy() const { return chunks_.size() < most_chunks_ / 2; }

 private:
  size_t most_chunks_;
  bool all_ = false, overflowed_ = false;
  // Trees, since a hash map that grows moves all of its entries under the lock.
  absl::btree_set<ChunkId> chunks_;
  absl::btree_set<NamespaceDigest> namespaces_;
};

}  // namespace kvkeep::store_internal
