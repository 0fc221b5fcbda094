// LocalLease: the local transport's state of a lease: its session, and the places of the chunks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client/local/requests.h"
#include "client/values/lease.h"

namespace kvkeep::client {

// The keys and parts of the lookup; a get under the lease names part of them.
struct LeasedKeys {
  NamespaceDigest ns;
  std::vector<ChunkKey> keys;
  std::vector<uint32_t> parts;  // empty: all of the namespace
  size_t part_count = 0;
};

class LocalLease final : public LeaseState {
 public:
  LocalLease(LocalSessionPtr session, uint64_t id, std::shared_ptr<const Layout> layout,
             LeasedKeys what)
      : session_(std::move(session)), id_(id), layout_(std::move(layout)), what_(std::move(what)) {}

  bool alive() const override { return !session_->over(); }
  void Shrink(uint32_t keep_keys) override {
    kept_keys_.store(keep_keys);
    if (!mark_.InChild()) session_->QueueRelease(id_, keep_keys);
  }
  // Returns whether the key was not given back. Bytes read before are good only if this still
  // holds; check Mappings::Alive first.
  bool Keeps(size_t key) const { return key < kept_keys_.load(); }
  Path path() const override { return Path::kLocal; }

  const LocalSessionPtr& session() const { return session_; }
  uint64_t id() const { return id_; }
  const std::shared_ptr<const Layout>& layout() const { return layout_; }
  const LeasedKeys& what() const { return what_; }

 private:
  const LocalSessionPtr session_;
  const uint64_t id_;
  const std::shared_ptr<const Layout> layout_;
  const LeasedKeys what_;
  const ForkMark mark_;
  std::atomic<uint32_t> kept_keys_{UINT32_MAX};
};

}  // namespace kvkeep::client
