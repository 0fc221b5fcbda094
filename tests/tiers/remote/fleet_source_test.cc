#include "tiers/remote/fleet_source.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <map>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_remote_source.h"
#include "tests/tiers/remote/image_in_memory.h"
#include "tiers/base/tenant_tag.h"

namespace kvkeep {
namespace {

using Wanted = RemoteSource::Wanted;

// A peer that has images in memory, and faults that the test sets.
class FakePeer final : public PeerSource {
 public:
  FakePeer(std::string name, ManualExecutor* executor)
      : name_(std::move(name)), executor_(*executor) {}

  const std::string& name() const override { return name_; }
  bool reachable() const override { return is_reachable; }
  std::shared_ptr<const ChunkSummary> summary() const override { return told; }
  void Find(std::vector<ChunkId> ids, MonotonicTime deadline,
            std::function<void(absl::StatusOr<Found>)> done) override {
    ++questions;
    last_deadline = deadline;
    Later(late_turns, [this, ids = std::move(ids), done = std::move(done)] {
      if (!find_error.ok()) return done(find_error);
      Found found;
      for (const ChunkId& id : ids) {
        const auto image = images.find(id);
        found.push_back(image == images.end()
                            ? std::nullopt
                            : std::optional(PeerChunk{image->second.shape, tier}));
      }
      if (answers_short) found.pop_back();
      done(std::move(found));
    });
  }
  void Read(PeerRead read) override {
    ++reads;
    last_waits_if_busy = read.waits_if_busy;
    executor_.Post([this, read = std::move(read)] { ReadNow(read); });
  }

  std::map<ChunkId, Image> images;
  Tier tier = Tier::kG2;
  bool is_reachable = true, answers_short = false;
  std::shared_ptr<const ChunkSummary> told;
  absl::Status find_error, read_error;
  size_t cut_after_pieces = SIZE_MAX;
  int questions = 0, reads = 0;
  int bodies = 0;  // sent
  bool last_waits_if_busy = false;
  int late_turns = 0;  // before a question is answered
  MonotonicTime last_deadline{0};

 private:
  void Later(int turns, Executor::Task task) {
    if (turns == 0) return executor_.Post(std::move(task));
    executor_.Post(
        [this, turns, task = std::move(task)]() mutable { Later(turns - 1, std::move(task)); });
  }
  void ReadNow(const PeerRead& read) {
    const RemoteSource::ReadRequest& request = read.request;
    const auto image = images.find(request.id);
    absl::Status status = read_error;
    if (status.ok() && image == images.end()) status = absl::NotFoundError("not here");
    if (status.ok()) {
      std::memcpy(request.header.data(), image->second.bytes.data(), kHeaderBytes);
      status = read.check_header();
      bodies += status.ok();
    }
    request.header_done(status);
    for (size_t piece = 0; piece < request.shape.pieces(); ++piece) {
      if (status.ok() && piece >= cut_after_pieces) status = absl::UnavailableError("cut");
      uint64_t at = request.shape.piece_begin(piece);
      const uint64_t end = request.shape.piece_end(piece);
      while (status.ok() && at < end) {
        const std::span<std::byte> to = request.memory(at, end - at);
        std::memcpy(to.data(), image->second.bytes.data() + at, to.size());
        at += to.size();
      }
      request.piece_done(piece, end - request.shape.piece_begin(piece), status);
    }
  }

  const std::string name_;
  ManualExecutor& executor_;
};

// A node that sees `peers` others and, if it is asked to, a bucket.
class SeenFleet {
 public:
  explicit SeenFleet(size_t peers, bool with_bucket = true,
                     const FleetSourceOptions& options = {}) {
    for (size_t i = 0; i < peers; ++i) {
      this->peers.push_back(std::make_shared<FakePeer>(std::string(1, char('a' + i)), &executor));
    }
    source = std::make_unique<FleetSource>(
        options, shared.place(), shared.mac_key(),
        FleetSource::Parts{with_bucket ? &shared : nullptr, &executor, &clock, &random});
    source->SetPeers({this->peers.begin(), this->peers.end()});
  }

  // Gives the peer an image of the chunk, of the same bytes whichever peer it is.
  Image Give(FakePeer& peer, const ChunkId& id, uint32_t payload = 3'000'000) {
    Image image = Image::Make(shared, id, payload, id.key.bytes[0], Tier::kG2, false);
    peer.images.insert_or_assign(id, image);
    return image;
  }
  // Gives the peer images of the chunks, and its own summary of all that it has.
  void GiveAndTell(FakePeer& peer, const std::vector<ChunkId>& ids) {
    for (const ChunkId& id : ids) Give(peer, id, 1'000);
    SummaryBuilder builder(ChunkSummary::kMostBytes);
    const NameHash hash(shared.place());
    for (const auto& [id, image] : peer.images) builder.Add(hash(id));
    peer.told = std::make_shared<const ChunkSummary>(builder.Build());
  }
  // Writes an encrypted image to the bucket.
  Image Keep(const ChunkId& id, uint32_t payload = 3'000'000) {
    Image image = Image::Make(shared, id, payload, 77);
    shared.Write({image.id, image.shape, image.header(), image.memory(),
                  [](const absl::Status& status) { CHECK(status.ok()); }});
    executor.RunAll();
    return image;
  }
  RemoteSource::Found Find(std::vector<ChunkId> ids, Wanted wanted = Wanted::kLeadingRun) {
    std::optional<RemoteSource::Found> found;
    source->Find(std::move(ids), wanted, MonotonicTime::max(), [&](RemoteSource::Found is) {
      REQUIRE_FALSE(found.has_value());
      found = std::move(is);
    });
    CHECK_FALSE(found.has_value());
    executor.RunAll();
    return found.value();
  }
  // Reads the image and returns how that ended; the bytes are in `into`.
  absl::Status Read(const Image& like) {
    into = Empty(like);
    told = Told();
    StartRead(*source, into, &told);
    CHECK_FALSE(told.header.has_value());
    executor.RunAll();
    REQUIRE(told.ended(like.shape));
    return told.header->ok() ? told.pieces : *told.header;
  }

  ManualClock clock;
  ManualExecutor executor;
  SeededRandom random{1};
  MemoryBucket bucket;
  MemoryRemoteSource shared{&bucket, &executor, 1, {}};
  std::vector<std::shared_ptr<FakePeer>> peers;
  std::unique_ptr<FleetSource> source;
  Image into;
  Told told;
};

TEST_CASE("A chunk of a peer is found there and read from there, whole") {
  SeenFleet fleet(2);
  const Image image = fleet.Give(*fleet.peers[1], Chunk(1));
  CHECK(fleet.Find({Chunk(1), Chunk(2)}) == RemoteSource::Found{image.shape, std::nullopt});
  CHECK(fleet.Read(image).ok());
  CHECK((fleet.into.bytes == image.bytes));
  const FleetSourceCounters counters = fleet.source->counters();
  CHECK(counters.questions == 2);
  CHECK(counters.found_chunks == 1);
  CHECK(counters.reads == 1);
  CHECK(counters.read_bytes == image.bytes.size() - kHeaderBytes);
  CHECK(fleet.peers[0]->reads == 0);
}

TEST_CASE("What no peer has is looked for in G4, and read from there") {
  SeenFleet fleet(2);
  const Image at_peer = fleet.Give(*fleet.peers[0], Chunk(1));
  const Image in_bucket = fleet.Keep(Chunk(2), 1'000'000);
  CHECK(fleet.Find({Chunk(1), Chunk(2), Chunk(3)}) ==
        RemoteSource::Found{at_peer.shape, in_bucket.shape, std::nullopt});
  CHECK(fleet.Read(in_bucket).ok());
  CHECK((fleet.into.bytes == in_bucket.bytes));
  CHECK(fleet.peers[0]->reads + fleet.peers[1]->reads == 0);
}

TEST_CASE("Peers are asked for a few milliseconds, G4 as long as the caller said") {
  SeenFleet fleet(1);
  fleet.clock.Advance(std::chrono::seconds(1));
  fleet.source->Find({Chunk(1)}, Wanted::kLeadingRun, std::chrono::seconds(3),
                     [](const RemoteSource::Found&) {});
  fleet.executor.RunAll();
  CHECK(fleet.peers[0]->last_deadline == std::chrono::milliseconds(1005));
  CHECK(fleet.shared.find_deadline == std::chrono::seconds(3));
  fleet.source->Find({Chunk(1)}, Wanted::kLeadingRun, std::chrono::milliseconds(1002),
                     [](const RemoteSource::Found&) {});
  fleet.executor.RunAll();
  CHECK(fleet.peers[0]->last_deadline == std::chrono::milliseconds(1002));
}

TEST_CASE("A peer that fails, is late or answers for too few keys hides no other's chunks") {
  SeenFleet fleet(3);
  const Image image = fleet.Give(*fleet.peers[2], Chunk(1));
  fleet.Give(*fleet.peers[1], Chunk(1));
  fleet.peers[0]->find_error = absl::DeadlineExceededError("late");
  fleet.peers[1]->answers_short = true;
  CHECK(fleet.Find({Chunk(1)}) == RemoteSource::Found{image.shape});
  CHECK(fleet.source->counters().late_questions == 1);
  CHECK(fleet.source->counters().failed_questions == 1);
  CHECK(fleet.Read(image).ok());
  CHECK(fleet.peers[2]->reads == 1);
}

TEST_CASE("A peer with the chunk in DRAM is read before one that has it on NVMe") {
  for (const size_t in_dram : {0u, 1u}) {
    SeenFleet fleet(2);
    const Image image = fleet.Give(*fleet.peers[0], Chunk(1));
    fleet.Give(*fleet.peers[1], Chunk(1));
    fleet.peers[1 - in_dram]->tier = Tier::kG3;
    fleet.Find({Chunk(1)});
    CHECK(fleet.Read(image).ok());
    CHECK(fleet.peers[in_dram]->reads == 1);
    CHECK(fleet.peers[1 - in_dram]->reads == 0);
  }
}

TEST_CASE("Reads of many chunks are spread over the peers that have them") {
  SeenFleet fleet(2);
  std::vector<ChunkId> ids;
  std::deque<Image> into;
  std::deque<Told> told;
  for (uint8_t i = 1; i <= 8; ++i) {
    ids.push_back(Chunk(i));
    for (const auto& peer : fleet.peers) fleet.Give(*peer, Chunk(i), 100'000);
  }
  fleet.Find(ids);
  for (const ChunkId& id : ids) {
    into.push_back(Empty(fleet.peers[0]->images.at(id)));
    StartRead(*fleet.source, into.back(), &told.emplace_back());
  }
  fleet.executor.RunAll();
  CHECK(fleet.peers[0]->reads == 4);
  CHECK(fleet.peers[1]->reads == 4);
}

TEST_CASE("If a peer does not serve the image, the next peer does, and G4 at last") {
  SeenFleet fleet(2);
  const Image image = fleet.Give(*fleet.peers[0], Chunk(1));
  fleet.Give(*fleet.peers[1], Chunk(1));
  fleet.peers[1]->tier = Tier::kG3;  // asked second
  const Image kept = fleet.Keep(Chunk(1));
  REQUIRE(kept.shape == image.shape);
  SECTION("it is busy") {
    fleet.peers[0]->read_error = absl::ResourceExhaustedError("busy");
    fleet.Find({Chunk(1)});
    CHECK(fleet.Read(image).ok());
    CHECK((fleet.into.bytes == image.bytes));
    CHECK(fleet.source->counters().busy_reads == 1);
    CHECK(fleet.source->counters().read_elsewhere == 0);
  }
  SECTION("its connection is gone before the header page") {
    fleet.peers[0]->read_error = absl::UnavailableError("gone");
    fleet.peers[1]->read_error = absl::UnavailableError("gone");
    fleet.Find({Chunk(1)});
    CHECK(fleet.Read(image).ok());
    CHECK((fleet.into.bytes == kept.bytes));
    CHECK(fleet.source->counters().failed_reads == 2);
    CHECK(fleet.source->counters().read_elsewhere == 1);
  }
  SECTION("it has evicted the chunk") {
    fleet.Find({Chunk(1)});
    fleet.peers[0]->images.clear();
    CHECK(fleet.Read(image).ok());
    CHECK((fleet.into.bytes == image.bytes));
    CHECK(fleet.source->counters().absent_reads == 1);
  }
  SECTION("it is not reachable any more") {
    fleet.Find({Chunk(1)});
    fleet.peers[0]->is_reachable = fleet.peers[1]->is_reachable = false;
    CHECK(fleet.Read(image).ok());
    CHECK((fleet.into.bytes == kept.bytes));
    CHECK(fleet.peers[0]->reads == 0);
  }
}

TEST_CASE("A header page that is not this chunk's of this fleet counts as none") {
  SeenFleet fleet(1);
  Image image = fleet.Give(*fleet.peers[0], Chunk(1));
  fleet.Find({Chunk(1)});
  MemoryRemoteSource stranger{&fleet.bucket, &fleet.executor, 2, {}};
  Image other;
  SECTION("another chunk's") {
    other = Image::Make(fleet.shared, Chunk(9), 3'000'000, 1, Tier::kG2, false);
  }
  SECTION("of another form: as it lies in G4") {
    other = Image::Make(fleet.shared, Chunk(1), 3'000'000, 1, Tier::kG4, true);
  }
  SECTION("encrypted, as no peer sends it") {
    other = Image::Make(fleet.shared, Chunk(1), 3'000'000, 1, Tier::kG2, true);
  }
  SECTION("of another size") {
    other = Image::Make(fleet.shared, Chunk(1), 2'999'999, 1, Tier::kG2, false);
  }
  SECTION("changed on its way") {
    other = image;
    other.bytes[100] ^= std::byte{1};
  }
  fleet.peers[0]->images.insert_or_assign(Chunk(1), other);
  CHECK(absl::IsNotFound(fleet.Read(image)));  // by G4, which has none
  CHECK(fleet.source->counters().bad_headers == 1);
  CHECK(fleet.source->counters().failed_reads == 1);
  CHECK(fleet.peers[0]->bodies == 0);  // the rest is not sent
}

TEST_CASE("A chunk that a peer has damaged, or only says it has, is taken from G4 for a while") {
  SeenFleet fleet(2);
  const Image at_peer = fleet.Give(*fleet.peers[0], Chunk(1));
  const Image kept = fleet.Keep(Chunk(1), 2'000'000);
  REQUIRE(fleet.Find({Chunk(1)}) == RemoteSource::Found{at_peer.shape});
  SECTION("damaged behind its header page: the store tells") {
    CHECK(fleet.Read(at_peer).ok());
    fleet.source->NoteBad(Chunk(1));
  }
  SECTION("another header page") {
    fleet.peers[0]->images.at(Chunk(1)).bytes[100] ^= std::byte{1};
    CHECK_FALSE(fleet.Read(at_peer).ok());
  }
  SECTION("frames that are none") {
    fleet.peers[0]->read_error = absl::DataLossError("a frame cannot be parsed");
    CHECK_FALSE(fleet.Read(at_peer).ok());
  }
  SECTION("not there when it is read, of a size that G4's has not") {
    fleet.peers[0]->read_error = absl::NotFoundError("not here");
    CHECK_FALSE(fleet.Read(at_peer).ok());
  }
  CHECK(fleet.source->counters().distrusted == 1);
  const int reads = fleet.peers[0]->reads;
  CHECK(fleet.Find({Chunk(1)}) == RemoteSource::Found{kept.shape});
  CHECK(fleet.Read(kept).ok());
  CHECK((fleet.into.bytes == kept.bytes));
  CHECK(fleet.peers[0]->reads == reads);
  fleet.clock.Advance(std::chrono::seconds(61));
  CHECK(fleet.Find({Chunk(1)}) == RemoteSource::Found{at_peer.shape});
}

TEST_CASE("Chunks that are distrusted are bounded, and are not asked for without G4 either") {
  SeenFleet fleet(1, false, {.distrusted_chunks = 2});
  const Image image = fleet.Give(*fleet.peers[0], Chunk(1), 100'000);
  for (uint8_t i = 1; i <= 2; ++i) fleet.source->NoteBad(Chunk(i));
  CHECK(fleet.Find({Chunk(1)}) == RemoteSource::Found{std::nullopt});
  CHECK(absl::IsUnavailable(fleet.Read(image)));
  CHECK(fleet.peers[0]->reads == 0);
  fleet.source->NoteBad(Chunk(3));
  CHECK(fleet.Find({Chunk(1)}) == RemoteSource::Found{image.shape});
}

TEST_CASE("A read waits for a busy peer only if nobody else has the chunk") {
  SeenFleet with_bucket(1), alone(2, false);
  for (SeenFleet* const fleet : {&with_bucket, &alone}) {
    for (const auto& peer : fleet->peers) {
      fleet->Give(*peer, Chunk(1));
      peer->read_error = absl::ResourceExhaustedError("busy");
    }
    fleet->Find({Chunk(1)});
    CHECK_FALSE(fleet->Read(fleet->peers[0]->images.at(Chunk(1))).ok());
  }
  CHECK_FALSE(with_bucket.peers[0]->last_waits_if_busy);
  CHECK(alone.peers[0]->last_waits_if_busy != alone.peers[1]->last_waits_if_busy);
  const Image image = with_bucket.Give(*with_bucket.peers[0], Chunk(2));
  with_bucket.Find({Chunk(2)});
  with_bucket.shared.set_faults({.away = 1});
  CHECK_FALSE(with_bucket.Read(image).ok());
  CHECK(with_bucket.peers[0]->last_waits_if_busy);
}

TEST_CASE("A search that has all chunks in DRAM waits for nobody, and a late peer is read, too") {
  SeenFleet fleet(2);
  const Image image = fleet.Give(*fleet.peers[0], Chunk(1));
  fleet.Give(*fleet.peers[1], Chunk(1));
  fleet.peers[1]->late_turns = 3;
  std::optional<RemoteSource::Found> found;
  fleet.source->Find({Chunk(1)}, Wanted::kLeadingRun, MonotonicTime::max(),
                     [&](RemoteSource::Found is) { found = std::move(is); });
  while (!found.has_value()) fleet.executor.RunOne();
  CHECK_FALSE(fleet.executor.idle());  // the late answer is still to come
  fleet.executor.RunAll();
  fleet.peers[0]->read_error = absl::UnavailableError("gone");
  CHECK(fleet.Read(image).ok());
  CHECK(fleet.peers[1]->reads == 1);
  SECTION("not where NVMe answered first: DRAM may be elsewhere") {
    fleet.peers[0]->tier = Tier::kG3;
    fleet.peers[0]->read_error = absl::OkStatus();
    fleet.Find({Chunk(1)});
    CHECK(fleet.Read(image).ok());
    CHECK(fleet.peers[1]->reads == 2);
  }
}

TEST_CASE("A read that is cut after its header fails as a whole, and no other source mixes in") {
  SeenFleet fleet(2);
  const Image image = fleet.Give(*fleet.peers[0], Chunk(1));
  fleet.Give(*fleet.peers[1], Chunk(1));
  fleet.Keep(Chunk(1));
  for (const auto& peer : fleet.peers) peer->cut_after_pieces = 1;
  fleet.Find({Chunk(1)});
  CHECK(absl::IsUnavailable(fleet.Read(image)));
  CHECK(fleet.told.header->ok());
  CHECK(fleet.peers[0]->reads + fleet.peers[1]->reads == 1);
  CHECK(fleet.source->counters().cut_reads == 1);
  CHECK(fleet.source->counters().read_elsewhere == 0);
}

TEST_CASE("Peers are not asked for chunks of a tenant that is not shared") {
  const uint32_t own = TenantTagOf(Chunk(1).ns);
  for (const uint32_t shared : {own, own + 1}) {
    SeenFleet fleet(1, false, {.shared_tenants = absl::flat_hash_set<uint32_t>{shared}});
    const Image image = fleet.Give(*fleet.peers[0], Chunk(1));
    CHECK(fleet.Find({Chunk(1)})[0].has_value() == (shared == own));
    CHECK(fleet.Read(image).ok() == (shared == own));
    CHECK(fleet.peers[0]->questions + fleet.peers[0]->reads == (shared == own ? 2 : 0));
  }
}

TEST_CASE("Without G4 there are peers alone: nothing is kept, and every request is answered") {
  SeenFleet fleet(1, false);
  CHECK_FALSE(fleet.source->keeps());
  CHECK_FALSE(fleet.source->writable());
  CHECK(fleet.source->readable());
  const Image image = fleet.Give(*fleet.peers[0], Chunk(1));
  CHECK(fleet.Find({Chunk(1)}) == RemoteSource::Found{image.shape});
  CHECK(fleet.Read(image).ok());
  CHECK(fleet.Read(image).ok());  // it is asked although it is not remembered any more
  fleet.peers[0]->is_reachable = false;
  CHECK_FALSE(fleet.source->readable());
  CHECK(fleet.Find({Chunk(1)}) == RemoteSource::Found{std::nullopt});
  CHECK(absl::IsUnavailable(fleet.Read(image)));
  std::vector<absl::Status> answers;
  fleet.source->Remove(Chunk(1), [&](const absl::Status& status) { answers.push_back(status); });
  fleet.source->Age(Chunk(1), [&](const auto& age) { answers.push_back(age.status()); });
  CHECK(answers.empty());
  fleet.executor.RunAll();
  CHECK(answers.size() == 2);
}

TEST_CASE("What peers have is remembered for a while, and for so many chunks") {
  SeenFleet fleet(1, true, {.remembered_chunks = 2});
  const Image kept = fleet.Keep(Chunk(1), 100'000);
  const Image image = fleet.Give(*fleet.peers[0], Chunk(1), 100'000);
  const auto bytes_read = [&] {
    REQUIRE(fleet.Read(image).ok());
    return fleet.into.bytes;
  };
  fleet.Find({Chunk(1)});
  fleet.clock.Advance(std::chrono::seconds(29));
  CHECK((bytes_read() == image.bytes));
  fleet.Find({Chunk(1)});
  fleet.clock.Advance(std::chrono::seconds(31));
  CHECK((bytes_read() == kept.bytes));
  for (uint8_t i = 1; i <= 3; ++i) {
    fleet.Give(*fleet.peers[0], Chunk(i), 100'000);
    fleet.Find({Chunk(i)});
  }
  CHECK((bytes_read() == kept.bytes));
}

TEST_CASE("A chunk that a peer says it has is read from there, without a search") {
  SeenFleet fleet(2);
  const Image image = fleet.Give(*fleet.peers[1], Chunk(1));
  CHECK(absl::IsNotFound(fleet.source->NoteHolder("nobody", {{Chunk(1), image.shape}})));
  fleet.peers[1]->is_reachable = false;
  CHECK(absl::IsUnavailable(fleet.source->NoteHolder("b", {{Chunk(1), image.shape}})));
  fleet.peers[1]->is_reachable = true;
  CHECK(fleet.source->NoteHolder("b", {{Chunk(1), image.shape}}).ok());
  CHECK(fleet.Read(image).ok());
  CHECK((fleet.into.bytes == image.bytes));
  CHECK(fleet.peers[0]->questions + fleet.peers[1]->questions == 0);
  CHECK(fleet.peers[0]->reads == 0);
}

TEST_CASE("A peer that says it has a chunk hides nobody who was found to have it") {
  SeenFleet fleet(2, false);
  const Image image = fleet.Give(*fleet.peers[0], Chunk(1));
  fleet.Find({Chunk(1)});
  for (int i = 0; i < 2; ++i) {
    REQUIRE(fleet.source->NoteHolder("b", {{Chunk(1), image.shape}}).ok());
    REQUIRE(fleet.source->NoteHolder("b", {{Chunk(1), {1, 0}}}).ok());
  }
  CHECK(fleet.Read(image).ok());
  CHECK((fleet.into.bytes == image.bytes));
  CHECK(fleet.peers[1]->reads <= 1);
  // Nor does one that has it no more: without G4 the chunk is asked for again.
  CHECK(fleet.source->counters().distrusted == 0);
}

std::vector<ChunkId> Chunks(uint8_t first, uint8_t last) {
  std::vector<ChunkId> ids;
  for (uint8_t i = first; i <= last; ++i) ids.push_back(Chunk(i));
  return ids;
}

TEST_CASE("In a large fleet the peers are asked that say they have most of the chunks") {
  SeenFleet fleet(20, false, {.most_peers = 2});
  for (const auto& peer : fleet.peers) fleet.GiveAndTell(*peer, Chunks(100, 120));
  fleet.GiveAndTell(*fleet.peers[7], Chunks(1, 3));
  fleet.GiveAndTell(*fleet.peers[11], Chunks(1, 8));
  fleet.GiveAndTell(*fleet.peers[13], Chunks(1, 6));
  CHECK(fleet.Find(Chunks(1, 9))[7].has_value());
  for (size_t i = 0; i < 20; ++i) CHECK(fleet.peers[i]->questions == (i == 11 || i == 13 ? 1 : 0));
  CHECK(fleet.source->counters().spared_questions == 17);
}

TEST_CASE("Peers that seem to lack the chunks are asked last, by chance: they may have got them") {
  SeenFleet fleet(6, false);
  for (const auto& peer : fleet.peers) fleet.GiveAndTell(*peer, Chunks(100, 110));
  for (int i = 0; i < 60; ++i) fleet.Find(Chunks(1, 9));
  int questions = 0;
  for (const auto& peer : fleet.peers) {
    CHECK(peer->questions > 0);
    questions += peer->questions;
  }
  CHECK(questions == 180);
  fleet.peers[0]->told = nullptr;  // says nothing of them
  fleet.Find(Chunks(1, 9));
  const int before = fleet.peers[0]->questions;
  fleet.Find(Chunks(1, 9));
  CHECK(fleet.peers[0]->questions == before + 1);
}

TEST_CASE(
    "Two peers that have a part of a run each are asked, for its first and its other chunks") {
  SeenFleet fleet(20, false, {.most_peers = 2});
  for (const auto& peer : fleet.peers) fleet.GiveAndTell(*peer, {Chunk(99)});
  fleet.GiveAndTell(*fleet.peers[3], {Chunk(1)});
  fleet.GiveAndTell(*fleet.peers[4], Chunks(2, 9));
  const RemoteSource::Found found = fleet.Find(Chunks(1, 9), Wanted::kAny);
  CHECK(std::count(found.begin(), found.end(), std::nullopt) == 0);
}

TEST_CASE("A summary that samples counts by how far it reaches, not by how much it names") {
  SeenFleet fleet(6, false, {.most_peers = 1});
  std::vector<ChunkId> run = Chunks(1, 200);
  for (const auto& peer : fleet.peers) fleet.GiveAndTell(*peer, Chunks(1, 9));
  for (const ChunkId& id : run) fleet.Give(*fleet.peers[2], id, 1'000);
  SummaryBuilder few(ChunkSummary::kBlockBytes);  // names about one in eight
  const NameHash hash(fleet.shared.place());
  for (const ChunkId& id : run) few.Add(hash(id));
  fleet.peers[2]->told = std::make_shared<const ChunkSummary>(few.Build());
  REQUIRE(fleet.peers[2]->told->level() >= 2);
  CHECK(fleet.Find(run)[199].has_value());
}

TEST_CASE("A peer that has only the end of a prompt is asked where an end is wanted") {
  SeenFleet fleet(20, false, {.most_peers = 1});
  for (const auto& peer : fleet.peers) fleet.GiveAndTell(*peer, {Chunk(99)});
  fleet.GiveAndTell(*fleet.peers[2], Chunks(5, 9));
  CHECK(fleet.Find(Chunks(1, 9), Wanted::kAny)[8].has_value());
  CHECK(fleet.peers[2]->questions == 1);
}

TEST_CASE("Peers that say nothing of the chunks are asked by chance, after those that have them") {
  SeenFleet fleet(12, false);
  for (size_t i = 0; i < 6; ++i) fleet.GiveAndTell(*fleet.peers[i], Chunks(100, 110));
  fleet.GiveAndTell(*fleet.peers[5], Chunks(1, 4));  // 6 to 11 have told nothing
  for (int i = 0; i < 40; ++i) fleet.Find(Chunks(1, 4));
  CHECK(fleet.peers[5]->questions == 40);
  int others = 0;
  for (size_t i = 6; i < 12; ++i) {
    CHECK(fleet.peers[i]->questions > 0);
    others += fleet.peers[i]->questions;
  }
  CHECK(others == 80);
  for (size_t i = 0; i < 5; ++i) CHECK(fleet.peers[i]->questions == 0);
}

TEST_CASE("In a small fleet all are asked, whatever their summaries say") {
  SeenFleet fleet(3);
  for (const auto& peer : fleet.peers) fleet.GiveAndTell(*peer, {Chunk(99)});
  fleet.Find(Chunks(1, 9));
  CHECK(fleet.source->counters().questions == 3);
  CHECK(fleet.source->counters().spared_questions == 0);
}

TEST_CASE("A search asks as many peers as it may, and others when those change") {
  SeenFleet fleet(8);
  for (int i = 0; i < 100; ++i) fleet.Find({Chunk(1)});
  int asked = 0;
  for (const auto& peer : fleet.peers) {
    CHECK(peer->questions > 0);
    asked += peer->questions;
  }
  CHECK(asked == 300);
  fleet.source->SetPeers({});
  CHECK(fleet.Find({Chunk(1)}) == RemoteSource::Found{std::nullopt});
  CHECK(fleet.source->counters().questions == 300);
}

}  // namespace
}  // namespace kvkeep
