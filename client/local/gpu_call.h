// GpuCall: one put from, or get to, GPU memory: its regions, its messages, their answers. The base
// class of both, which are in gpu_calls.cc. Internal.
//
// The bytes never come here: the daemon copies. A call is one message, or several when it names
// more chunks or runs than the daemon takes at once; it ends when all have ended, by its deadline.
// The daemon is given less time, so that a late copy is cancelled and answered before that. A put's
// time is absolute if the daemon supports that: it does not store what it reads later.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/gpu/gpu_values.h"
#include "client/local/gpu_regions.h"

namespace kvkeep::client {

class GpuCall : public std::enable_shared_from_this<GpuCall> {
 public:
  struct What {
    LocalSessionPtr session;
    NamespaceDigest ns;
    LocalSession::Time deadline;
    std::shared_ptr<GpuRegions> regions;
    std::shared_ptr<GpuUse> use;  // may be null
  };
  // A chunk that the daemon is asked about.
  struct Item {
    uint32_t index = 0;  // in the call
    const std::vector<GpuRun>* runs = nullptr;
    uint64_t payload_bytes = 0;
    size_t wire_bytes = 0;  // without its runs
    uint64_t lease = 0;     // of a get, the daemon's number: a message names one lease
  };

  virtual ~GpuCall() = default;

  // Checks runs and finds their regions: INVALID_ARGUMENT names the fault. Sends nothing.
  absl::Status Prepare(std::vector<Item> items);
  // Returns whether Send need not wait, as every region is registered with this session.
  bool IsBound() const;
  // Registers regions that are not registered, waits for that, then calls Send.
  void BindAndSend();
  // Sends the messages; all later steps are callbacks. REQUIRES: IsBound.
  void Send();

  // Ends the call with an error. Nothing was sent.
  void Refuse(absl::Status why) { Complete(std::move(why)); }

  // Returns the sum of the runs' bytes. INVALID_ARGUMENT: an empty run, or more than a chunk may
  // have.
  static absl::StatusOr<uint64_t> PayloadBytes(const std::vector<GpuRun>& runs);

 protected:
  using Items = std::span<const Item>;

  GpuCall(What what, local::Kind kind) : what_(std::move(what)), kind_(kind) {}

  struct Body {
    NamespaceDigest ns;
    Items items;
    uint32_t timeout_ms = 0;
    uint64_t until_ns = 0;                  // of a put: by the daemon's clock; 0: not supported
    std::vector<local::GpuMemoryRun> runs;  // of all items, in order
  };
  virtual void Write(const Body& body, local::MessageWriter* writer) const = 0;
  // Reads a reply. INTERNAL: it breaks the protocol. May be called for different items at the same
  // time.
  virtual absl::Status Read(LocalSession::Reply& reply, Items items) = 0;
  // Called when all messages have ended. `error`: the first failure, which its items do not have.
  virtual void Complete(absl::Status error) = 0;

  const What what_;

 private:
  struct Region {
    LocalGpuRegionPtr region;
    GpuBinding known;
  };

  absl::Status CheckRun(const GpuRun& run);
  absl::Status CheckSkip(const GpuRun& run) const;
  bool has_reused() const;
  std::vector<Items> Groups() const;
  LocalSession::Time::duration TimeGiven() const;
  void SendGroup(Items items);
  void Ended(const absl::Status& status);

  const local::Kind kind_;                            // kPutFromGpu or kGetToGpu
  std::vector<Item> items_;                           // constant after Prepare
  absl::flat_hash_map<GpuRegionId, Region> regions_;  // constant after the binding
  std::vector<LocalGpuRegionPtr> held_;
  uint32_t max_runs_ = 0;
  uint32_t max_timeout_ms_ = 0;
  std::shared_ptr<const DaemonProcess> daemon_;

  Mutex mu_;
  size_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client
