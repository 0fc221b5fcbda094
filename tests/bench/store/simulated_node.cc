#include "tests/bench/store/simulated_node.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <utility>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/base/random.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

constexpr uint64_t kSimulatedChunkBytes = 512 * kKiB;
constexpr uint64_t kChunksOfPrompt = 4;
constexpr uint64_t kPromptBytes = kChunksOfPrompt * kSimulatedChunkBytes;
constexpr uint64_t kDataOfSimulatedG2 = 3;
constexpr int kSimulatedCopyThreads = 2;
constexpr uint64_t kOrderSeed = 20261123;

double WallSeconds() { return std::chrono::duration<double>(RealClock()->Now()).count(); }

}  // namespace

struct SimulatedNode::Prompt {
  std::vector<ChunkReader> chunks;
  uint64_t bytes_from_drives = 0;
  std::atomic<uint64_t> missing = kChunksOfPrompt;
  std::atomic<bool> failed = false;
};

absl::StatusOr<std::unique_ptr<SimulatedNode>> SimulatedNode::Start(const Options& options) {
  KVKEEP_CHECK(options.drives > 0 && options.data_bytes >= 8 * kDataOfSimulatedG2 * kPromptBytes);
  std::unique_ptr<SimulatedNode> node(new SimulatedNode(options));
  KVKEEP_RETURN_IF_ERROR(node->Open());
  return node;
}

uint64_t SimulatedNode::prompts() const { return options_.data_bytes / kPromptBytes; }

absl::Status SimulatedNode::Open() {
  copy_ = std::make_unique<ThreadPool>("copy", kSimulatedCopyThreads);
  index_ = std::make_unique<ThreadPool>("index", 1);
  const uint64_t g2_bytes = RoundUp(options_.data_bytes / kDataOfSimulatedG2, 2 * kMiB);
  KVKEEP_ASSIGN_OR_RETURN(
      arena_,
      CreateArena({.capacity_bytes = g2_bytes, .backing = ArenaBacking::kMemfd}, copy_.get()));
  StoreDeps deps{.clock = RealClock(),
                 .random = RealRandom(),
                 .arena = arena_.get(),
                 .copy_executor = copy_.get()};
  const auto drives = static_cast<uint64_t>(options_.drives);
  // Headers and tails, how far one drive may be ahead of another, and what the store keeps free.
  const uint64_t bytes = RoundUp(options_.data_bytes / drives / 2 * 3 + 64 * kMiB, kBlockBytes);
  for (uint64_t i = 0; i < drives; ++i) {
    drives_.push_back(std::make_unique<SimulatedDevice>(
        SimulatedDrive{.bytes = bytes,
                       .latency = options_.latency,
                       .bytes_per_second = options_.bytes_per_second},
        static_cast<uint8_t>(i + 1)));
    deps.devices.push_back({.device = drives_.back().get(),
                            .index_executor = index_.get(),
                            .sync_executor = index_.get()});
  }
  KVKEEP_ASSIGN_OR_RETURN(store_, Store::Create({.dirty_budget_bytes = g2_bytes,
                                                 .max_leased_bytes = g2_bytes,
                                                 .max_reserved_bytes = g2_bytes},
                                                deps));
  KVKEEP_ASSIGN_OR_RETURN(session_, store_->OpenSession({.client_name = "simulated drives"}));
  KVKEEP_ASSIGN_OR_RETURN(
      ns_, store_->OpenNamespace(session_, {.model = "simulated", .tokens_per_chunk = 16}));
  order_.resize(prompts());
  std::iota(order_.begin(), order_.end(), 0);
  SeededRandom random(kOrderSeed);
  for (uint64_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
  return absl::OkStatus();
}

ChunkKey SimulatedNode::KeyOf(uint64_t prompt, uint64_t chunk) const {
  ChunkKey key;
  SeededRandom random(kOrderSeed + 1 + prompt * kChunksOfPrompt + chunk);
  random.Fill(std::as_writable_bytes(std::span(key.bytes)));
  return key;
}

absl::Status SimulatedNode::Put(uint64_t prompt, std::span<const std::byte> payload) {
  for (uint64_t chunk = 0; chunk < kChunksOfPrompt; ++chunk) {
    PutRequest put{.ns = ns_,
                   .key = KeyOf(prompt, chunk),
                   .shape = {.payload_bytes = static_cast<uint32_t>(payload.size())}};
    if (chunk > 0) put.parent = KeyOf(prompt, chunk - 1);
    KVKEEP_ASSIGN_OR_RETURN(ReserveResult reserved, store_->Reserve(session_, put));
    if (!reserved.reservation) return absl::ResourceExhaustedError(reserved.message);
    reserved.reservation.Append(payload);
    KVKEEP_RETURN_IF_ERROR(reserved.reservation.Seal({}).status());
  }
  return absl::OkStatus();
}

absl::Status SimulatedNode::AwaitDurable(uint64_t first, uint64_t end) {
  Mutex mu;
  CondVar all;
  uint64_t missing = (end - first) * kChunksOfPrompt;
  absl::Status wrong;
  for (uint64_t chunk = 0; chunk < (end - first) * kChunksOfPrompt; ++chunk) {
    const ChunkKey key = KeyOf(first + chunk / kChunksOfPrompt, chunk % kChunksOfPrompt);
    store_->WhenDurable({ns_, key, PartId(0)}, [&](absl::Status status) {
      MutexLock lock(&mu);
      wrong.Update(status);
      if (--missing == 0) all.NotifyAll();
    });
  }
  MutexLock lock(&mu);
  while (missing > 0) all.Wait(&mu);
  return wrong;
}

absl::StatusOr<double> SimulatedNode::Fill() {
  std::vector<std::byte> payload(kSimulatedChunkBytes);
  SeededRandom(kOrderSeed).Fill(payload);
  const uint64_t at_once = std::max<uint64_t>(1, prompts() / kDataOfSimulatedG2 / 2);
  const double began = WallSeconds();
  for (uint64_t first = 0; first < prompts(); first += at_once) {
    const uint64_t end = std::min(prompts(), first + at_once);
    for (uint64_t i = first; i < end; ++i) KVKEEP_RETURN_IF_ERROR(Put(i, payload));
    KVKEEP_RETURN_IF_ERROR(AwaitDurable(first, end));
  }
  return static_cast<double>(prompts() * kPromptBytes) / (WallSeconds() - began) / 1e9;
}

absl::StatusOr<std::unique_ptr<SimulatedNode::Prompt>> SimulatedNode::Begin() {
  const uint64_t number = order_[begun_++ % order_.size()];
  auto prompt = std::make_unique<Prompt>();
  for (uint64_t chunk = 0; chunk < kChunksOfPrompt; ++chunk) {
    KVKEEP_ASSIGN_OR_RETURN(
        ReadResult read,
        store_->Read(session_, {ns_, KeyOf(number, chunk), PartId(0)}, LeaseId(0), false));
    if (read.outcome != ReadOutcome::kHit) {
      return absl::InternalError(absl::StrCat(
          "prompt ", number, read.outcome == ReadOutcome::kBusy ? ": no room in G2" : " is lost"));
    }
    if (read.from_g3) prompt->bytes_from_drives += kSimulatedChunkBytes;
    prompt->chunks.push_back(std::move(read.reader));
  }
  for (ChunkReader& chunk : prompt->chunks) {
    const auto came = [this, whose = prompt.get()](absl::Status status) {
      if (!status.ok()) whose->failed = true;
      if (--whose->missing > 0) return;
      MutexLock lock(&arrived_.mu);
      arrived_.prompts.push_back(whose);
      arrived_.some.NotifyAll();
    };
    chunk.WhenReady(0, chunk.shape().pieces(), came);
  }
  return prompt;
}

std::vector<SimulatedNode::Prompt*> SimulatedNode::AwaitArrived() {
  MutexLock lock(&arrived_.mu);
  while (arrived_.prompts.empty()) arrived_.some.Wait(&arrived_.mu);
  return std::exchange(arrived_.prompts, {});
}

absl::StatusOr<uint64_t> SimulatedNode::ReadWhile(absl::FunctionRef<bool()> more) {
  // Half of G2, so that pinned chunks never keep others out.
  const uint64_t window = std::max<uint64_t>(1, prompts() / kDataOfSimulatedG2 / 2);
  std::map<Prompt*, std::unique_ptr<Prompt>> under_way;
  absl::Status wrong;
  const auto begin_one = [&] {
    absl::StatusOr<std::unique_ptr<Prompt>> prompt = Begin();
    if (!prompt.ok()) return wrong.Update(prompt.status());
    Prompt* const key = prompt->get();
    under_way[key] = *std::move(prompt);
  };
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < window && wrong.ok(); ++i) begin_one();
  while (!under_way.empty()) {
    for (Prompt* prompt : AwaitArrived()) {
      if (prompt->failed) wrong.Update(absl::DataLossError("a chunk did not come"));
      const uint64_t came = prompt->bytes_from_drives;
      under_way.erase(prompt);
      if (!wrong.ok() || !more()) continue;
      bytes += came;
      begin_one();
    }
  }
  if (!wrong.ok()) return wrong;
  return bytes;
}

absl::StatusOr<double> SimulatedNode::Read(double seconds) {
  const double began = WallSeconds();
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t bytes,
                          ReadWhile([began, seconds] { return WallSeconds() - began < seconds; }));
  return static_cast<double>(bytes) / seconds / 1e9;
}

}  // namespace kvkeep
