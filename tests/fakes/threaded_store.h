// ThreadedStore: the real store with real threads over memory: an arena, one disk, thread pools.
// For tests that need threads, and for benchmarks. Restart ends the process in order and starts
// another.
//
// Calls block until their work is done. For one thread.
#pragma once

#include <future>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/memory_arena.h"
#include "tests/fakes/memory_device.h"
#include "tests/fakes/memory_index.h"
#include "tests/fakes/memory_nvme_device.h"
#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/random.h"
#include "tiers/store/store.h"

namespace kvkeep {

class ThreadedStore {
 public:
  struct Options {
    uint64_t g2_blocks = 16'384;  // 64 MiB
    uint64_t device_blocks = 32'768;
    int threads = 2;  // of the copy pool, and of the disk
    std::shared_ptr<KeyRing> keys;
  };
  explicit ThreadedStore(Options options) : options_(std::move(options)) { Start(); }
  ~ThreadedStore() { Stop(); }

  void Restart() {
    Stop();
    Start();
  }
  Store& store() { return *store_; }
  MemoryDisk& disk() { return *disk_; }

  // Puts a chunk, which is sealed and on its way to the disk.
  void Put(const ChunkKey& key, std::span<const std::byte> payload) {
    const PutRequest request{
        .ns = ns_, .key = key, .shape = {.payload_bytes = static_cast<uint32_t>(payload.size())}};
    auto reserved = store_->Reserve(session_, request);
    KVKEEP_CHECK(reserved.ok() && reserved->reservation);
    reserved->reservation.Append(payload);
    KVKEEP_CHECK(reserved->reservation.Seal({}).ok());
    put_.push_back(key);
  }
  // Waits until all puts are on the disk.
  void AwaitDurable() {
    std::vector<std::promise<absl::Status>> told(put_.size());
    for (size_t i = 0; i < put_.size(); ++i) {
      store_->WhenDurable({ns_, put_[i], PartId(0)}, [&promise = told[i]](absl::Status status) {
        promise.set_value(std::move(status));
      });
    }
    for (std::promise<absl::Status>& one : told) KVKEEP_CHECK(one.get_future().get().ok());
    put_.clear();
  }
  // Begins the chunk's promotion, unless it is in G2. Returns an empty reader for a miss.
  ChunkReader Read(const ChunkKey& key) {
    auto read = store_->Read(session_, {ns_, key, PartId(0)}, LeaseId(0), false);
    KVKEEP_CHECK(read.ok() && read->outcome != ReadOutcome::kBusy);
    return std::move(read->reader);
  }
  static absl::Status AwaitReady(ChunkReader& reader) {
    std::promise<absl::Status> told;
    reader.WhenReady(0, reader.shape().pieces(),
                     [&told](absl::Status status) { told.set_value(std::move(status)); });
    return told.get_future().get();
  }

 private:
  void Start() {
    copy_ = std::make_unique<ThreadPool>("copy", options_.threads);
    io_ = std::make_unique<ThreadPool>("io", options_.threads);
    index_thread_ = std::make_unique<ThreadPool>("index", 1);
    device_ = std::make_unique<MemoryDevice>(disk_, io_.get());
    nvme_ = std::make_unique<MemoryNvmeDevice>(device_.get(), &index_, 1);
    arena_ = std::make_unique<MemoryArena>(BlockCount(options_.g2_blocks),
                                           BlockCount(options_.g2_blocks), false);
    StoreOptions store;
    store.dirty_budget_bytes = store.max_reserved_bytes = store.max_leased_bytes =
        options_.g2_blocks * kBlockBytes;
    store.max_chunks = 10'000;
    store_ = Store::Create(store, {.clock = RealClock(),
                                   .random = RealRandom(),
                                   .arena = arena_.get(),
                                   .devices = {{.device = nvme_.get(),
                                                .index_executor = index_thread_.get(),
                                                .sync_executor = index_thread_.get()}},
                                   .copy_executor = copy_.get(),
                                   .keys = options_.keys.get()})
                 .value();
    session_ = store_->OpenSession({.client_name = "threaded"}).value();
    ns_ = store_->OpenNamespace(session_, {.model = "m", .tokens_per_chunk = 16}).value();
  }
  // Brings all threads of a pool to one place: none is in a task, or in a Post to another pool.
  static void AwaitIdle(ThreadPool& pool, int threads) {
    const auto all = std::make_shared<std::latch>(threads + 1);
    for (int i = 0; i < threads; ++i) pool.Post([all] { all->arrive_and_wait(); });
    all->arrive_and_wait();
  }

  // Work hops from pool to pool; the rest of it then has few hops to go.
  void Stop() {
    AwaitDurable();
    for (int i = 0; i < 8; ++i) {
      AwaitIdle(*copy_, options_.threads);
      AwaitIdle(*io_, options_.threads);
      AwaitIdle(*index_thread_, 1);
    }
    copy_.reset();
    io_.reset();
    index_thread_.reset();
    store_.reset();
    nvme_.reset();
    device_.reset();
  }

  const Options options_;
  std::shared_ptr<MemoryDisk> disk_ =
      std::make_shared<MemoryDisk>(options_.device_blocks * kBlockBytes);
  MemoryIndex index_;
  std::unique_ptr<ThreadPool> copy_, io_, index_thread_;
  std::unique_ptr<MemoryDevice> device_;
  std::unique_ptr<MemoryNvmeDevice> nvme_;
  std::unique_ptr<MemoryArena> arena_;
  std::unique_ptr<Store> store_;
  SessionToken session_;
  NamespaceDigest ns_;
  std::vector<ChunkKey> put_;  // since the last AwaitDurable
};

}  // namespace kvkeep
