// Publisher: tells routers over ZeroMQ which blocks one tenant's chunks hold in G2 and in G3, as
// vLLM and SGLang tell of theirs.
//
// Only chunks whose metadata names their tokens (v1::ChunkMetadata) are told of. For a new
// subscriber the publisher starts over: "all cleared", then every chunk that is there, then
// changes. It also starts over when the daemon starts, since subscribers reconnect then, and when
// its reader of events fell behind. With no subscriber nothing is read, kept or sent.
//
// The publisher's own thread alone uses the sockets. It neither waits for the store nor holds it
// up. A subscriber that is too slow for its queue loses messages, sees the gap in their numbers,
// and asks for them again. When the messages queued for all subscribers exceed the limit, every
// subscriber is disconnected, and gets everything anew when it reconnects.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <memory>
#include <thread>

#include "server/events/block_events.h"
#include "server/events/publisher_counters.h"
#include "server/events/subscribers.h"
#include "tiers/store/store.h"

namespace kvkeep {

struct PublisherOptions {
  SubscriberOptions sockets;
  EventForm form = EventForm::kVllm;
  TenantId tenant;
};

class Publisher {
 public:
  // All must outlive it. `clock` is for the messages' times and first number.
  static absl::StatusOr<std::unique_ptr<Publisher>> Start(const PublisherOptions& options,
                                                          Store* store, Clock* clock,
                                                          PublisherCounters* counters);
  // Ends the thread. Requests to the store may end later, and do no harm.
  ~Publisher();

 private:
  struct Waker;
  struct Resolving;

  Publisher(const PublisherOptions& options, Store* store, Clock* clock,
            PublisherCounters* counters, std::unique_ptr<Subscribers> sockets,
            std::shared_ptr<Waker> waker);
  void Run();
  // Reads events, asks for their metadata, and publishes the events before them. Returns false if
  // it must wait.
  bool Step();
  // Asks for the metadata of the next events; false: all were asked for.
  bool AskForSome();
  void Publish(const Resolving& resolved);
  void Send(const std::vector<BlockEvent>& events);
  void DropIfOver();
  // Gauges count all publishers together.
  void ShowGauges(uint64_t subscribers, uint64_t queued_bytes);
  // Returns about how many bytes it added.
  size_t AddStored(const ChunkEvent& event, const absl::StatusOr<std::string>& metadata,
                   std::vector<BlockEvent>& out);
  size_t AddRemoved(const ChunkEvent& event, std::vector<BlockEvent>& out);
  // The most blocks that a chunk of the namespace can have: each has a token at least.
  uint64_t MostBlocks(const NamespaceDigest& ns);

  const PublisherOptions options_;
  Store* const store_;
  Clock* const clock_;
  PublisherCounters* const counters_;
  const std::unique_ptr<Subscribers> sockets_;
  const std::shared_ptr<Waker> waker_;
  std::atomic<bool> stopping_{false};

  // Below: touched by the thread only.
  EventReader reader_;
  std::shared_ptr<std::atomic<bool>> more_;  // true if reader_ has more, once it waits
  bool reader_waits_ = false;
  bool announcing_ = false;  // tells what is there; new subscribers wait for the end
  std::shared_ptr<Resolving> resolving_;
  uint64_t shown_subscribers_ = 0, shown_bytes_ = 0;
  // The most blocks that a chunk of each namespace had: a removal removes that many. A client that
  // names more blocks than a chunk can have would make every removal that long.
  absl::flat_hash_map<NamespaceDigest, uint64_t> most_blocks_;
  // Tokens of a chunk, by namespace. A namespace that no session has open is asked for in each
  // batch.
  absl::flat_hash_map<NamespaceDigest, uint32_t> tokens_per_chunk_;
  std::thread thread_;
};

}  // namespace kvkeep
