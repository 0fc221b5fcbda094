#include "server/events/publisher.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

constexpr size_t kMostNamespaces = 65'536;  // whose blocks a chunk are remembered
// Subscribers that join within this time of an announcement share the next one.
constexpr std::chrono::milliseconds kGather{200};
// Reads of metadata at a time: each may pin a chunk, and have it verified, while it lasts.
constexpr size_t kMostReads = 16;
// A message is full at this size; one more chunk may exceed it.
constexpr size_t kEnoughForMessage = kMessageBytes / 2;

// Returns the most bytes of an event in a message: names of fields, then numbers in MessagePack.
constexpr size_t BytesOf(uint64_t blocks, size_t tokens) { return 200 + blocks * 9 + tokens * 5; }

}  // namespace

// Wakes the thread, from any other; may outlive the publisher.
struct Publisher::Waker {
  void Wake() const {
    const uint64_t one = 1;
    // If the counter is full, the descriptor is readable already.
    [[maybe_unused]] const ssize_t written = write(fd.get(), &one, sizeof(one));
  }
  void Clear() const {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(fd.get(), &count, sizeof(count));
  }
  UniqueFd fd;
};

// Events whose metadata is being read.
struct Publisher::Resolving {
  EventBatch batch;
  std::vector<absl::StatusOr<std::string>> metadata;  // by event
  std::atomic<size_t> left{0};
  size_t next = 0;  // the first event that was not looked at yet

  // Returns whether an event is of the same chunk as the one before, so that its metadata is read
  // once. A chunk in both tiers, or stored during an announcement, has events in a row.
  bool IsAgain(size_t i) const {
    const std::vector<ChunkEvent>& events = batch.events;
    return i > 0 && events[i].stored && events[i - 1].stored && events[i - 1].id == events[i].id;
  }
  void OnOne(const Waker& waker) {
    if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) waker.Wake();
  }
  bool done() const { return left.load(std::memory_order_acquire) == 0; }
};

absl::StatusOr<std::unique_ptr<Publisher>> Publisher::Start(const PublisherOptions& options,
                                                            Store* store, Clock* clock,
                                                            PublisherCounters* counters) {
  auto waker = std::make_shared<Waker>();
  waker->fd = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!waker->fd.valid()) return absl::ResourceExhaustedError("no descriptor for an eventfd");
  // Numbers begin at the microseconds since 1970, as no process publishes a message each
  // microsecond.
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<Subscribers> sockets,
                          Subscribers::Open(options.sockets, clock->UnixMicros()));
  std::unique_ptr<Publisher> publisher(
      new Publisher(options, store, clock, counters, std::move(sockets), std::move(waker)));
  publisher->thread_ = std::thread([self = publisher.get()] { self->Run(); });
  return publisher;
}

Publisher::Publisher(const PublisherOptions& options, Store* store, Clock* clock,
                     PublisherCounters* counters, std::unique_ptr<Subscribers> sockets,
                     std::shared_ptr<Waker> waker)
    : options_(options),
      store_(store),
      clock_(clock),
      counters_(counters),
      sockets_(std::move(sockets)),
      waker_(std::move(waker)) {}

Publisher::~Publisher() {
  stopping_ = true;
  waker_->Wake();
  thread_.join();
}

void Publisher::Run() {
  pthread_setname_np(pthread_self(), "kvkeep-events");
  MonotonicTime announce_at = MonotonicTime::max();
  while (!stopping_) {
    bool waits = true;
    if (sockets_->count() == 0) {
      reader_ = EventReader();
      resolving_.reset();
      announcing_ = false;
      announce_at = MonotonicTime::max();
    } else if (clock_->Now() >= announce_at && !announcing_) {
      announce_at = MonotonicTime::max();
      more_ = std::make_shared<std::atomic<bool>>(false);
      reader_ = store_->WatchAll(options_.tenant);
      resolving_.reset();
      reader_waits_ = false;
      announcing_ = true;
      waits = false;
    } else if (reader_) {
      waits = !Step();
    }
    const bool due = announce_at != MonotonicTime::max();
    const auto timeout = !waits ? std::chrono::milliseconds(0)
                         : due  ? kGather
                                : std::chrono::milliseconds(-1);
    const Subscribers::News news = sockets_->Wait(waker_->fd.get(), timeout);
    if (news.woken) waker_->Clear();
    if (news.joined) announce_at = std::min(announce_at, clock_->Now() + kGather);
    counters_->replays += news.replays;
    DropIfOver();  // replays that a subscriber does not read count, too
    ShowGauges(sockets_->count(), sockets_->queued_bytes());
  }
  reader_ = EventReader();
  ShowGauges(0, 0);
}

void Publisher::ShowGauges(uint64_t subscribers, uint64_t queued_bytes) {
  counters_->subscribers += subscribers - std::exchange(shown_subscribers_, subscribers);
  counters_->queued_bytes += queued_bytes - std::exchange(shown_bytes_, queued_bytes);
}

bool Publisher::Step() {
  if (resolving_ != nullptr) {
    if (!resolving_->done()) return false;
    if (AskForSome()) return true;
    Publish(*resolving_);
    if (resolving_->batch.whole) announcing_ = false;
    resolving_.reset();
    return true;
  }
  if (reader_waits_ && !more_->exchange(false)) return false;
  reader_waits_ = false;
  absl::StatusOr<EventBatch> batch = reader_.Next();
  KVKEEP_CHECK(batch.ok());  // the reader belongs to no session
  if (batch->tells()) {
    resolving_ = std::make_shared<Resolving>();
    resolving_->batch = *std::move(batch);
    resolving_->metadata.assign(resolving_->batch.events.size(),
                                absl::UnknownError("not asked for"));
    return true;
  }
  if (batch->more) return true;
  reader_waits_ = true;
  // Each wait has its own flag, as the wake of a reader that was given up may still come.
  reader_.WhenMore([waker = waker_, more = more_] {
    *more = true;
    waker->Wake();
  });
  return true;
}

bool Publisher::AskForSome() {
  Resolving& now = *resolving_;
  now.left = 1;
  size_t asked = 0;
  for (; now.next < now.batch.events.size() && asked < kMostReads; ++now.next) {
    const ChunkEvent& event = now.batch.events[now.next];
    if (!event.stored || !event.has_metadata || now.IsAgain(now.next)) continue;
    ++asked;
    ++now.left;
    store_->ReadMetadata(event.id, [resolving = resolving_, i = now.next,
                                    waker = waker_](absl::StatusOr<std::string> metadata) {
      resolving->metadata[i] = std::move(metadata);
      resolving->OnOne(*waker);
    });
  }
  now.OnOne(*waker_);
  return asked > 0;
}

void Publisher::Publish(const Resolving& resolved) {
  std::vector<BlockEvent> out;
  size_t bytes = 0;
  absl::erase_if(tokens_per_chunk_, [](const auto& one) { return one.second == 0; });
  if (resolved.batch.begins_anew) {
    ++counters_->announcements;
    out.push_back({.kind = BlockEvent::Kind::kCleared});
  }
  const std::vector<ChunkEvent>& events = resolved.batch.events;
  size_t asked = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    if (!events[i].has_metadata) continue;
    if (!resolved.IsAgain(i)) asked = i;
    if (bytes >= kEnoughForMessage) {
      Send(out);
      out.clear();
      bytes = 0;
    }
    if (events[i].stored) {
      bytes += AddStored(events[i], resolved.metadata[asked], out);
    } else {
      bytes += AddRemoved(events[i], out);
    }
  }
  if (!out.empty()) Send(out);
}

void Publisher::Send(const std::vector<BlockEvent>& events) {
  const double now = static_cast<double>(clock_->UnixMicros()) / 1e6;
  sockets_->Publish(EncodeEvents(options_.form, now, events));
  ++counters_->messages;
  DropIfOver();
}

void Publisher::DropIfOver() {
  if (sockets_->over_limit()) counters_->dropped_subscribers += sockets_->DropAll();
}

size_t Publisher::AddStored(const ChunkEvent& event, const absl::StatusOr<std::string>& metadata,
                            std::vector<BlockEvent>& out) {
  std::optional<BlockEvent> stored;
  if (metadata.ok()) stored = BlocksOf(event.id.key, *metadata, MostBlocks(event.id.ns));
  if (!stored.has_value()) {
    ++counters_->untold_chunks;
    return 0;
  }
  stored->tier = event.tier;
  const uint64_t blocks = stored->blocks.size();
  if (most_blocks_.size() < kMostNamespaces || most_blocks_.contains(event.id.ns)) {
    uint64_t& most = most_blocks_[event.id.ns];
    most = std::max(most, blocks);
  }
  counters_->stored_blocks += blocks;
  out.push_back(*std::move(stored));
  return BytesOf(blocks, out.back().token_ids.size());
}

uint64_t Publisher::MostBlocks(const NamespaceDigest& ns) {
  if (tokens_per_chunk_.size() >= kMostNamespaces) tokens_per_chunk_.clear();
  const auto [known, is_new] = tokens_per_chunk_.try_emplace(ns, 0);
  if (is_new) known->second = store_->TokensPerChunk(ns);
  return known->second == 0 ? kMostBlocks : known->second;
}

// Removes as many blocks as any chunk of the namespace had; for a chunk with fewer blocks, the
// further names are unused.
size_t Publisher::AddRemoved(const ChunkEvent& event, std::vector<BlockEvent>& out) {
  const auto most = most_blocks_.find(event.id.ns);
  if (most == most_blocks_.end()) return 0;  // no chunk of it was ever told
  const bool joins = !out.empty() && out.back().kind == BlockEvent::Kind::kRemoved &&
                     out.back().tier == event.tier;
  if (!joins) out.push_back({.kind = BlockEvent::Kind::kRemoved, .tier = event.tier});
  const uint64_t last = LastBlock(event.id.key);
  for (uint64_t left = most->second; left > 0; --left) {
    out.back().blocks.push_back(last - (left - 1));
  }
  counters_->removed_blocks += most->second;
  return BytesOf(most->second, 0);
}

}  // namespace kvkeep
