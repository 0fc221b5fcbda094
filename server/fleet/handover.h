// Handover: gives this node's hottest chunks to other nodes before it is taken away.
//
// It names the chunks once, hottest first, and offers them in batches of a namespace, each to one
// node, which reads the chunks from here by Fetch. Chunks that are equally hot are mostly of one
// prompt, and lookups do not ask other nodes for a few chunks, so a batch has some dozens, and
// stays with its node while that takes some of it. What a node refuses is offered to the next one.
// A node that says it is full, knows no offers, or takes nothing of several in a row is asked no
// more. The hand-over ends when nothing is left, when nobody is left to ask, or at its deadline.
// `bytes_per_second` limits what is taken; the nodes that take have limits of their own.
//
// Tick goes on with it, and so does each answer. Thread-safe. No lock is held over an offer. The
// destructor REQUIRES that all offers are answered.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/life/hand_over.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/base/token_bucket.h"
#include "tiers/remote/offered_chunk.h"

namespace kvkeep {

// Counts since the start.
struct HandoverCounters {
  uint64_t offers = 0, handed_chunks = 0, handed_bytes = 0;
  uint64_t refused_chunks = 0;  // by one node; another one may have taken the chunk
};

class Handover {
 public:
  struct Options {
    uint64_t bytes_per_second = 0;  // 0: nothing is offered
    std::chrono::milliseconds offer_within{30'000};
    std::chrono::milliseconds patience{3'000};  // with nodes that are not reachable
    std::chrono::milliseconds rest{100};        // after an offer of which nothing was taken
  };
  // A batch has at least so many chunks, if there are as many, and then ends at kBatchBytes.
  static constexpr size_t kLeastChunks = 64, kMostChunks = 1024;
  static constexpr uint64_t kBatchBytes = 16 << 20;
  static constexpr int kMostFruitless = 16;  // offers to one node, and of one batch, in a row

  // `name_hottest` returns what is to be handed over, which takes a while on a large node;
  // `executor` runs it. Both pointers are borrowed.
  Handover(const Options& options, std::function<HotChunks()> name_hottest, Executor* executor,
           const Clock* clock);
  ~Handover();

  // As BeginHandOver and handed_over of HandOver.
  void Begin(MonotonicTime deadline);
  HandedOver state() const;

  using Takers = std::vector<std::shared_ptr<OfferTaker>>;
  void Tick(const Takers& takers);
  HandoverCounters counters() const;
  // Offers nothing any more.
  void Stop();
  bool busy() const;  // an offer is not answered, or something runs

 private:
  struct Batch {
    std::vector<OfferedChunk> chunks;
    uint64_t bytes = 0;
    int fruitless = 0;
    std::shared_ptr<OfferTaker> with;  // the node that takes it piece by piece; null: any
  };
  struct Taker {
    std::shared_ptr<OfferTaker> node;
    bool reachable = false, asked = false, done = false;  // done: it is asked no more
    int fruitless = 0;
    MonotonicTime rests_until{0}, reached{0};
  };
  enum class State : uint8_t { kIdle, kNaming, kGiving, kStopped };

  static std::deque<Batch> ToBatches(const std::vector<OfferedChunk>& chunks);
  void Name();
  void Pump();
  bool IsOver(MonotonicTime now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  using Batches = std::deque<Batch>;
  // Returns whose turn it is, and the batch that it gets; null: nobody's.
  std::pair<Taker*, Batches::iterator> Next(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Takes(const OfferTaker* node) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnAnswer(uint64_t run, const std::shared_ptr<OfferTaker>& node, Batch batch,
                const absl::StatusOr<OfferAnswer>& answer);
  void Note(uint64_t run, const std::shared_ptr<OfferTaker>& node, Batch batch,
            const absl::StatusOr<OfferAnswer>& answer);
  // Counts what was taken, and leaves in the batch what was not. Returns whether anything was.
  bool Take(const OfferAnswer& answer, Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const std::function<HotChunks()> name_hottest_;
  Executor& executor_;
  const Clock& clock_;

  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kIdle;
  uint64_t run_ ABSL_GUARDED_BY(mu_) = 0;  // grows with each hand-over
  MonotonicTime deadline_ ABSL_GUARDED_BY(mu_){0};
  std::deque<Batch> batches_ ABSL_GUARDED_BY(mu_);
  std::vector<Taker> takers_ ABSL_GUARDED_BY(mu_);
  bool looked_ ABSL_GUARDED_BY(mu_) = false;  // Tick has told who is there since the run began
  size_t turn_ ABSL_GUARDED_BY(mu_) = 0;
  size_t asked_ ABSL_GUARDED_BY(mu_) = 0;  // offers of any run that are not answered
  uint64_t asked_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t running_ ABSL_GUARDED_BY(mu_) = 0;  // calls of OnAnswer and Name that have not returned
  TokenBucket rate_ ABSL_GUARDED_BY(mu_);
  uint64_t handed_ ABSL_GUARDED_BY(mu_) = 0, all_ ABSL_GUARDED_BY(mu_) = 0;  // of this run
  HandoverCounters counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
