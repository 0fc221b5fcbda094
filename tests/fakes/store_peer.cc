#include "tests/fakes/store_peer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr std::chrono::seconds kReadWithin(10);

absl::Status Broken() { return absl::UnavailableError("the connection to the peer broke"); }

}  // namespace

struct StorePeer::Question {
  std::vector<ChunkId> ids;
  MonotonicTime deadline;
  std::function<void(absl::StatusOr<Found>)> done;  // null: answered
};

// A read. Each reports its header page first, then its pieces in order.
struct StorePeer::Serving {
  RemoteSource::ReadRequest request;
  std::function<absl::Status()> check_header;
  MonotonicTime deadline;
  ChunkReader reader;  // of the peer's store, while that lives
  bool sent_header = false, over = false;
  bool broken = false;  // the peer ended meanwhile
  size_t next = 0;      // piece
};

void PeerDoor::Close() {
  for (StorePeer* const asker : askers_) asker->DropReaders();
  store_ = nullptr;
}

StorePeer::StorePeer(PeerDoor* of, PeerDoor* own, ManualExecutor* executor, ManualClock* clock,
                     uint64_t seed, const PeerFaults& faults)
    : of_(*of), own_(*own), executor_(*executor), clock_(*clock), random_(seed), faults_(faults) {
  of_.askers_.push_back(this);
}

StorePeer::~StorePeer() {
  Abandon();
  std::erase(of_.askers_, this);
}

void StorePeer::TakeSummary(const TenantTags& tenants) {
  if (!reachable()) return;
  SummaryBuilder builder(ChunkSummary::kMostBytes);
  const NameHash hash(of_.place_);
  of_.store_->NameForPeers(tenants, [&](const ChunkId& id) {
    builder.Add(hash(id));
    return true;
  });
  summary_ = std::make_shared<const ChunkSummary>(builder.Build());
}

bool StorePeer::Happens(double chance) {
  const bool happens = chance > 0 && random_.Chance(chance);
  injected_ += happens;
  return happens;
}

void StorePeer::Later(Executor::Task task, int turns) {
  if (turns < 0) turns = random_.Chance(faults_.delay) ? static_cast<int>(random_.Below(50)) : 0;
  if (turns == 0) return executor_.Post(std::move(task));
  executor_.Post(
      [this, task = std::move(task), turns]() mutable { Later(std::move(task), turns - 1); });
}

void StorePeer::Abandon() {
  DropReaders();
  for (const auto& serving : servings_) serving->over = true;
  servings_.clear();
  questions_.clear();
}

void StorePeer::DropReaders() {
  for (const auto& serving : servings_) {
    serving->broken |= static_cast<bool>(serving->reader);
    serving->reader = ChunkReader();
  }
}

void StorePeer::Tick() {
  const MonotonicTime now = clock_.Now();
  for (const auto& question : std::exchange(questions_, {})) {
    if (question->done == nullptr) continue;
    if (now < question->deadline) {
      questions_.push_back(question);
    } else {
      std::exchange(question->done, nullptr)(absl::DeadlineExceededError("the peer is late"));
    }
  }
  for (const auto& serving : std::vector(servings_)) {
    if (serving->broken || now >= serving->deadline) Fail(serving, Broken());
  }
}

// ---- find

void StorePeer::Find(std::vector<ChunkId> ids, MonotonicTime deadline,
                     std::function<void(absl::StatusOr<Found>)> done) {
  const auto question =
      std::make_shared<Question>(Question{std::move(ids), deadline, std::move(done)});
  questions_.push_back(question);
  if (Happens(faults_.lost)) return;
  Later([this, question] { Answer(question); });
}

void StorePeer::Answer(const std::shared_ptr<Question>& question) {
  absl::StatusOr<Found> answer = Broken();
  if (reachable()) {
    answer = of_.store()->LookForPeer(question->ids);
    for (size_t i = 0; i < answer->size(); ++i) {
      std::optional<PeerChunk>& chunk = (*answer)[i];
      if (!chunk.has_value()) continue;
      if (known_.size() < 64) known_.push_back(question->ids[i]);
      if (Happens(faults_.hides)) {
        chunk.reset();
      } else if (Happens(faults_.other_shape)) {
        chunk->shape.payload_bytes = static_cast<uint32_t>(random_.Between(1, 100'000));
      }
    }
  }
  Later([question, answer = std::move(answer)] {
    if (question->done != nullptr) std::exchange(question->done, nullptr)(answer);
  });
}

// ---- read

void StorePeer::Read(PeerRead read) {
  const MonotonicTime until = std::min(read.request.deadline, clock_.Now() + kReadWithin);
  const auto serving = std::make_shared<Serving>(Serving{
      .request = std::move(read.request), .check_header = read.check_header, .deadline = until});
  servings_.push_back(serving);
  if (Happens(faults_.lost)) return;
  Later([this, serving] { Begin(serving); });
}

void StorePeer::Begin(const std::shared_ptr<Serving>& serving) {
  if (serving->over) return;
  if (!reachable()) return Fail(serving, Broken());
  if (Happens(faults_.busy)) return Fail(serving, absl::ResourceExhaustedError("busy"));
  ChunkId id = serving->request.id;
  if (!known_.empty() && Happens(faults_.other_image)) id = known_[random_.Below(known_.size())];
  ReadResult read = of_.store()->ReadForPeer(id);
  if (read.outcome == ReadOutcome::kBusy) {
    return Fail(serving, absl::ResourceExhaustedError("busy"));
  }
  if (read.outcome == ReadOutcome::kMiss) return Fail(serving, absl::NotFoundError("not here"));
  serving->reader = std::move(read.reader);
  Await(serving);
}

// Sends the next piece once it is there. The end of the peer drops the callback; then Tick ends it.
void StorePeer::Await(const std::shared_ptr<Serving>& serving) {
  if (serving->next >= serving->reader.shape().pieces()) {  // another image, which is shorter
    return Fail(serving, absl::DataLossError("the image ends too soon"));
  }
  serving->reader.WhenReady(serving->next, 1, [this, serving](const absl::Status& status) {
    if (serving->over) return;  // perhaps this is gone, too
    Later([this, serving, status] {
      if (serving->over) return;
      if (!serving->reader || !reachable()) return Fail(serving, Broken());
      if (!status.ok()) return Fail(serving, absl::UnavailableError("the peer cannot read it"));
      Send(serving);
    });
  });
}

void StorePeer::Send(const std::shared_ptr<Serving>& serving) {
  if (Happens(faults_.cut)) return Fail(serving, Broken());
  if (!serving->sent_header) {
    absl::Status sent = SendHeader(*serving);
    if (sent.ok()) sent = serving->check_header();
    if (!sent.ok()) return Fail(serving, sent);
    serving->sent_header = true;
    serving->request.header_done(absl::OkStatus());
  }
  if (serving->reader.shape() != serving->request.shape) {
    return Fail(serving, absl::DataLossError("the image has another shape"));
  }
  SendPiece(*serving);
  const ImageShape& shape = serving->request.shape;
  const size_t piece = serving->next++;
  if (serving->next == shape.pieces()) {
    serving->reader = ChunkReader();
    serving->over = true;
    std::erase(servings_, serving);
  }
  serving->request.piece_done(piece, shape.piece_end(piece) - shape.piece_begin(piece),
                              absl::OkStatus());
  if (!serving->over)
    Later([this, serving] {
      if (serving->over) return;
      serving->reader ? Await(serving) : Fail(serving, Broken());
    });
}

absl::Status StorePeer::SendHeader(Serving& serving) {
  std::optional<ImageIdentity> identity = serving.reader.Identity();
  if (!identity.has_value()) return absl::UnavailableError("the peer's image is damaged");
  ImageHeader header{.identity = *std::move(identity)};
  header.placement = {.tier = Tier::kG2,
                      .place = of_.place_,
                      .incarnation = of_.store()->incarnation(),
                      .generation = Generation(0),
                      .extents = {Extent{BlockNumber(0), header.identity.shape.blocks()}}};
  MacKey mac_key = of_.mac_key_;
  if (Happens(faults_.other_place)) {
    switch (random_.Below(3)) {
      case 0:
        header.placement.place.bytes[0] ^= 1;
        break;
      case 1:
        mac_key[0] ^= std::byte{1};
        break;
      default:
        header.placement.tier = Tier::kG4;
    }
  }
  EncodeHeader(header, mac_key, serving.request.header);
  if (Happens(faults_.flipped)) {
    serving.request.header[random_.Below(kHeaderBytes)] ^= std::byte{4};
  }
  return absl::OkStatus();
}

void StorePeer::SendPiece(Serving& serving) {
  const ImageShape& shape = serving.request.shape;
  const uint64_t end = shape.piece_end(serving.next);
  for (uint64_t at = shape.piece_begin(serving.next); at < end;) {
    std::span<std::byte> to = serving.request.memory(at, end - at);
    if (at >= shape.used_bytes()) {
      std::fill(to.begin(), to.end(), std::byte{0});
    } else {
      const uint64_t most = std::min<uint64_t>(to.size(), shape.used_bytes() - at);
      const std::span<const std::byte> from = serving.reader.Image(at, most);
      to = to.first(from.size());
      std::memcpy(to.data(), from.data(), to.size());
      if (Happens(faults_.flipped)) to[random_.Below(to.size())] ^= std::byte{4};
    }
    at += to.size();
  }
}

// Reports what is not reported yet.
void StorePeer::Fail(const std::shared_ptr<Serving>& serving, const absl::Status& why) {
  serving->reader = ChunkReader();
  serving->over = true;
  std::erase(servings_, serving);
  const RemoteSource::ReadRequest& request = serving->request;
  if (!serving->sent_header) request.header_done(why);
  for (; serving->next < request.shape.pieces(); ++serving->next) {
    const size_t piece = serving->next;
    request.piece_done(piece, request.shape.piece_end(piece) - request.shape.piece_begin(piece),
                       why);
  }
}

}  // namespace kvkeep
