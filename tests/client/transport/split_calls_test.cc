// Calls in slices, against a transport that answers from a set of keys, at once or on request.
#include "client/transport/split_calls.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <set>

#include "client/transport/split_lease.h"

namespace kvkeep::client {
namespace {

ChunkKey Key(size_t number) { return *ChunkKey::FromBytes(absl::StrCat("key ", number)); }

std::vector<ChunkKey> Numbered(size_t count) {
  std::vector<ChunkKey> keys;
  for (size_t i = 0; i < count; ++i) keys.push_back(Key(i));
  return keys;
}

// The daemon's side of leases: the chunks that each of them keeps.
using Held = std::map<uint64_t, uint32_t>;

class TestLease final : public LeaseState {
 public:
  TestLease(std::shared_ptr<Held> held, uint64_t id, const bool* over)
      : held_(std::move(held)), id_(id), over_(over) {}
  bool alive() const override { return !*over_; }
  void Shrink(uint32_t keep_keys) override {
    REQUIRE(held_->contains(id_));  // otherwise it is given back twice
    (*held_)[id_] = keep_keys;
    if (keep_keys == 0) held_->erase(id_);
  }
  Path path() const override { return Path::kLocal; }
  uint64_t id() const { return id_; }

 private:
  const std::shared_ptr<Held> held_;
  const uint64_t id_;
  const bool* const over_;
};

// Takes at most kMost chunks a request.
constexpr size_t kMost = 10;

class TestTransport final : public Transport {
 public:
  struct Asked {
    size_t keys = 0;
    LeaseMode lease = LeaseMode::kNone;
    std::chrono::microseconds remote_wait{0};
    Deadline deadline{0};
  };
  std::set<ChunkKey> present, coming;
  uint32_t most_leased = UINT32_MAX;  // keys in one lease
  size_t most_leases = SIZE_MAX;
  uint32_t promotion_us = 0;
  size_t fail_at = SIZE_MAX;  // request; UNAVAILABLE
  bool later = false;         // answers wait for Let
  bool over = false;
  std::deque<Asked> asked;
  std::shared_ptr<Held> held = std::make_shared<Held>();
  std::shared_ptr<NamespaceBinding> ns;
  const NamespaceSpec spec{.model = "m", .tokens_per_chunk = 16};

  LongCall Call(Keys keys, size_t parts = 1, Deadline deadline = Deadline(10'000)) {
    return LongCallOf(this, ns, spec, keys, parts, limits(),
                      std::chrono::steady_clock::now() + deadline);
  }
  void Let() {
    while (!waiting_.empty()) {
      auto answer = std::move(waiting_.front());
      waiting_.pop_front();
      std::move(answer)();
    }
  }
  size_t waiting() const { return waiting_.size(); }

  ServerLimits limits() const override { return {.max_keys_per_call = kMost}; }
  void Lookup(Ns, const NamespaceSpec&, Keys keys, const LookupOptions& options,
              Callback<LookupResult> done) override {
    const bool failed = asked.size() == fail_at;
    asked.push_back({keys.size(), options.lease, options.remote_wait, options.deadline});
    if (failed) return Answer<LookupResult>(std::move(done), Away());
    Answer(std::move(done), Find(keys, options));
  }
  void Get(Ns, const NamespaceSpec&, Keys keys, GetOptions options,
           Callback<GetResult> done) override {
    const bool failed = asked.size() == fail_at;
    asked.push_back({.keys = keys.size(),
                     .remote_wait = options.remote_wait,
                     .deadline = options.deadline});
    if (failed) return Answer<GetResult>(std::move(done), Away());
    Answer(std::move(done), Got(keys, options));
  }
  void Release(Lease lease, DoneCallback done) override {
    lease.Release();
    std::move(done)(absl::OkStatus());
  }

  absl::Status WaitFirstAttempt(Deadline) override { return absl::OkStatus(); }
  bool WaitConnected(Deadline) override { return true; }
  absl::Status why_away() const override { return absl::OkStatus(); }
  ClientStats stats() const override { return {}; }
  absl::StatusOr<std::shared_ptr<NamespaceBinding>> OpenNamespace(const NamespaceSpec&,
                                                                  Deadline) override {
    return ns;
  }
  void Put(Ns, const NamespaceSpec&, std::vector<PutChunk>, const PutOptions&,
           Callback<PutResult>) override {}
  void Touch(Ns, Keys, Parts, Deadline, Callback<uint64_t>) override {}
  void Prefetch(Ns, Keys, Parts, Deadline, Callback<PrefetchResult>) override {}
  void Delete(Ns, Keys, Parts, Deadline, Callback<uint64_t>) override {}
  void GetServerInfo(Deadline, Callback<ServerInfo>) override {}
  absl::StatusOr<std::shared_ptr<const ArenaMap>> Arena() override { return Nothing(); }
  void Acquire(Ns, const NamespaceSpec&, Keys, const AcquireOptions&, Callback<Acquired>) override {
  }
  absl::StatusOr<GpuRegion> RegisterGpuMemory(GpuMemory, Deadline) override { return Nothing(); }
  void PutFromGpu(Ns, const NamespaceSpec&, std::vector<GpuPutChunk>, const GpuPutOptions&,
                  Callback<PutResult>) override {}
  void GetToGpu(Ns, const NamespaceSpec&, std::vector<GpuGetChunk>, const GpuGetOptions&,
                Callback<GetResult>) override {}
  GpuStats gpu_stats() const override { return {}; }
  absl::StatusOr<StagingBuffer> AllocateStaging(uint64_t) override { return Nothing(); }
  absl::StatusOr<RegisteredMemory> RegisterMemory(int, std::span<const std::byte>,
                                                  const RegisterOptions&) override {
    return Nothing();
  }

 private:
  static absl::Status Away() { return absl::UnavailableError("the daemon is away"); }
  static absl::Status Nothing() { return absl::UnimplementedError("not of this test"); }

  template <typename T>
  void Answer(Callback<T> done, absl::StatusOr<T> with) {
    if (!later) return std::move(done)(std::move(with));
    waiting_.push_back([done = std::move(done), with = std::move(with)]() mutable {
      std::move(done)(std::move(with));
    });
  }

  absl::StatusOr<LookupResult> Find(Keys keys, const LookupOptions& options) {
    REQUIRE(keys.size() <= kMost);
    LookupResult found{.promotion_us = promotion_us, .lease = {}, .row_bytes = 1};
    const bool remote = options.remote_wait.count() > 0;
    bool leads = true, reached = true;
    uint32_t reachable = 0;
    size_t there = 0;
    for (const ChunkKey& key : keys) {
      const bool here = present.contains(key), comes = remote && coming.contains(key);
      found.g2_bits.push_back(here ? '\1' : '\0');
      if (remote) found.remote_bits.push_back(comes ? '\1' : '\0');
      there += here || comes;
      found.leading_keys += leads = leads && here;
      reachable += reached = reached && (here || comes);
    }
    found.remote_asked = remote;
    found.remote_keys = reachable - found.leading_keys;
    if (options.lease == LeaseMode::kNone || there == 0) return found;
    const bool all = options.lease == LeaseMode::kAllPresent;
    const auto leased = std::min(all ? static_cast<uint32_t>(keys.size()) : reachable, most_leased);
    if (leased == 0) return found;
    if (held->size() >= most_leases) return absl::ResourceExhaustedError("leases_per_session");
    const uint64_t id = ++last_lease_;
    (*held)[id] = leased;
    found.leased_keys = leased;
    found.lease = Lease(std::make_unique<TestLease>(held, id, &over), leased, leased * 100);
    return found;
  }

  // A key's payload is one byte: its place within the lease, or the request.
  absl::StatusOr<GetResult> Got(Keys keys, GetOptions& options) {
    REQUIRE(keys.size() <= kMost);
    if (options.lease != nullptr) {
      const auto& lease = static_cast<const TestLease&>(*options.lease->state());
      if (!held->contains(lease.id())) return absl::FailedPreconditionError("dead");
      REQUIRE(options.first_key + keys.size() <= options.lease->keys());
    }
    GetResult got;
    size_t run = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const size_t runs = options.destination_runs.empty() ? 1 : options.destination_runs[i];
      const bool hit = present.contains(keys[i]);
      if (hit) {
        const std::span<std::byte> to =
            options.allocate ? options.allocate(i, 1) : options.destinations[run];
        to[0] = static_cast<std::byte>(options.first_key + i);
      }
      run += runs;
      got.chunks.push_back({.status = hit ? GetStatus::kHit : GetStatus::kMiss});
    }
    if (!options.allocate) REQUIRE(options.destinations.size() == run);
    return got;
  }

  uint64_t last_lease_ = 0;
  std::deque<absl::AnyInvocable<void() &&>> waiting_;
};

absl::StatusOr<LookupResult> Look(TestTransport& t, LongCall call, const LookupOptions& options,
                                  bool whole = true) {
  std::optional<absl::StatusOr<LookupResult>> answer;
  LookupInSlices(std::move(call), options, whole,
                 [&](absl::StatusOr<LookupResult> found) { answer.emplace(std::move(found)); });
  t.Let();
  REQUIRE(answer.has_value());
  return *std::move(answer);
}

absl::StatusOr<GetResult> Take(TestTransport& t, LongCall call, GetOptions options) {
  std::optional<absl::StatusOr<GetResult>> answer;
  GetInSlices(std::move(call), std::move(options),
              [&](absl::StatusOr<GetResult> got) { answer.emplace(std::move(got)); });
  t.Let();
  REQUIRE(answer.has_value());
  return *std::move(answer);
}

}  // namespace

TEST_CASE("a long lookup leases the leading run, tells of the rest, and is one answer") {
  TestTransport t;
  t.later = GENERATE(false, true);
  const std::vector<ChunkKey> keys = Numbered(47);
  for (size_t i = 0; i < 47; ++i) {
    if (i != 23 && i != 40) t.present.insert(keys[i]);
  }
  auto found = Look(t, t.Call(keys), {.lease = LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  CHECK(found->leading_keys == 23);
  CHECK(found->leased_keys == 23);
  CHECK(found->lease.keys() == 23);
  CHECK(found->lease.bytes() == 2'300);
  CHECK(found->lease.alive());
  for (size_t i = 0; i < 47; ++i) CHECK(found->in_g2(i) == t.present.contains(keys[i]));
  REQUIRE(t.asked.size() == 5);
  CHECK(t.asked[4].keys == 7);
  for (size_t i = 0; i < 5; ++i) {
    CHECK(t.asked[i].lease == (i < 3 ? LeaseMode::kLeadingRun : LeaseMode::kNone));
  }
  CHECK(*t.held == Held{{1, 10}, {2, 10}, {3, 3}});
  found = absl::UnknownError("dropped");
  CHECK(t.held->empty());
}

TEST_CASE("requests of a long lookup go one after the other") {
  TestTransport t;
  t.later = true;
  const std::vector<ChunkKey> keys = Numbered(30);
  bool done = false;
  LookupInSlices(t.Call(keys), {}, true, [&](const auto& found) { done = found.ok(); });
  CHECK(t.waiting() == 1);
  CHECK(t.asked.size() == 1);
  t.Let();
  CHECK(t.asked.size() == 3);
  CHECK(done);
}

TEST_CASE("many slices that are answered inside the call go no deeper") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(300'000);
  auto found = Look(t, t.Call(keys), {});
  REQUIRE(found.ok());
  CHECK(t.asked.size() == 30'000);
}

TEST_CASE("a long lookup of all that is there leases over gaps, also slices that have nothing") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(40);
  for (const size_t i : {1u, 9u, 25u, 31u}) t.present.insert(keys[i]);  // none in 10 to 19
  auto found = Look(t, t.Call(keys), {.lease = LeaseMode::kAllPresent});
  REQUIRE(found.ok());
  CHECK(found->leading_keys == 0);
  CHECK(found->leased_keys == 40);
  CHECK(t.held->size() == 3);
  std::vector<std::byte> bytes(40);
  std::vector<std::span<std::byte>> to;
  for (std::byte& byte : bytes) to.emplace_back(&byte, 1);
  auto got = Take(t, t.Call(keys), {.lease = &found->lease, .destinations = to});
  REQUIRE(got.ok());
  CHECK(got->error.ok());
  for (size_t i = 0; i < 40; ++i) {
    const bool there = t.present.contains(keys[i]);
    CHECK(got->chunks[i].status == (there ? GetStatus::kHit : GetStatus::kMiss));
    if (there) CHECK(bytes[i] == static_cast<std::byte>(i % 10));  // of the slice's lease
  }
  t.present.clear();
  found = Look(t, t.Call(keys), {.lease = LeaseMode::kAllPresent});
  REQUIRE(found.ok());
  CHECK(found->leased_keys == 0);
  CHECK_FALSE(found->lease.alive());
}

TEST_CASE("where a lease does not fit a long lookup leases no more, and still tells the run") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(40);
  t.present = {keys.begin(), keys.end()};
  const LeaseMode mode = GENERATE(LeaseMode::kLeadingRun, LeaseMode::kAllPresent);
  SECTION("too many bytes") {
    t.most_leased = 7;
    auto found = Look(t, t.Call(keys), {.lease = mode});
    REQUIRE(found.ok());
    CHECK(found->leading_keys == 40);
    CHECK(found->leased_keys == 7);
    CHECK(*t.held == Held{{1, 7}});
  }
  SECTION("too many leases") {
    t.most_leases = 2;
    auto found = Look(t, t.Call(keys), {.lease = mode});
    REQUIRE(found.ok());
    CHECK(found->leading_keys == 40);
    CHECK(found->leased_keys == 20);
    CHECK(t.asked.size() == 5);  // the third slice twice
  }
  SECTION("none at all") {
    t.most_leases = 0;
    CHECK(absl::IsResourceExhausted(Look(t, t.Call(keys), {.lease = mode}).status()));
  }
}

TEST_CASE("a long lookup that fails later gives its leases back") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(40);
  t.present = {keys.begin(), keys.end()};
  t.fail_at = 2;
  const auto found = Look(t, t.Call(keys), {.lease = LeaseMode::kLeadingRun});
  CHECK(absl::IsUnavailable(found.status()));
  CHECK(t.asked.size() == 3);
  CHECK(t.held->empty());
}

TEST_CASE("a long call has one deadline, and says how far it came") {
  TestTransport t;
  t.later = true;
  const std::vector<ChunkKey> keys = Numbered(40);
  std::optional<absl::StatusOr<LookupResult>> answer;
  const auto begin = std::chrono::steady_clock::now();
  LookupInSlices(t.Call(keys, 1, Deadline(50)), {}, true,
                 [&](absl::StatusOr<LookupResult> found) { answer.emplace(std::move(found)); });
  CHECK(t.asked[0].deadline <= Deadline(50));
  while (std::chrono::steady_clock::now() - begin < Deadline(50)) std::this_thread::yield();
  t.Let();  // the first slice; no time is left for the second
  REQUIRE(answer.has_value());
  CHECK(absl::IsDeadlineExceeded(answer->status()));
  CHECK(answer->status().message() == "the daemon answered for 10 of 40 keys by the deadline");
  CHECK(t.asked.size() == 1);
}

TEST_CASE("keys from beyond the node go on with the run, and are told behind the leading ones") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(40);
  for (size_t i = 0; i < 33; ++i) (i / 5 == 2 ? t.coming : t.present).insert(keys[i]);
  const std::chrono::microseconds wait(10'000'000);
  auto found = Look(t, t.Call(keys), {.lease = LeaseMode::kLeadingRun, .remote_wait = wait});
  REQUIRE(found.ok());
  CHECK(found->leading_keys == 10);
  CHECK(found->remote_keys == 23);  // 10 to 14 come, 15 to 32 lie behind them
  CHECK(found->leased_keys == 33);
  CHECK(found->remote_asked);
  CHECK(found->coming(14));
  CHECK_FALSE(found->coming(15));
  CHECK(found->in_g2(15));
  for (size_t i = 1; i < 4; ++i) {
    CHECK(t.asked[i].remote_wait > wait / 2);
    CHECK(t.asked[i].remote_wait <= t.asked[i - 1].remote_wait);
  }
  t.asked.clear();
  t.present.erase(keys[0]);
  found = Look(t, t.Call(keys), {.lease = LeaseMode::kLeadingRun, .remote_wait = wait});
  REQUIRE(found.ok());
  CHECK(found->remote_keys == 0);
  CHECK(t.asked[1].remote_wait.count() == 0);  // no run to be completed
}

TEST_CASE("how long a promotion takes: a leased slice's work is in the next one's estimate") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(40);
  for (size_t i = 0; i < 25; ++i) t.present.insert(keys[i]);
  t.promotion_us = 100;
  CHECK(Look(t, t.Call(keys), {.lease = LeaseMode::kLeadingRun})->promotion_us == 100);
  CHECK(Look(t, t.Call(keys), {})->promotion_us == 300);
}

TEST_CASE("who wants the run alone asks for nothing behind its end") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(40);
  for (size_t i = 0; i < 15; ++i) t.present.insert(keys[i]);
  auto found = Look(t, t.Call(keys), {.lease = LeaseMode::kLeadingRun}, /*whole=*/false);
  REQUIRE(found.ok());
  CHECK(found->leading_keys == 15);
  CHECK(t.asked.size() == 2);
}

TEST_CASE("a lease of several shrinks from its end, and gives nothing back twice") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(35);
  t.present = {keys.begin(), keys.end()};
  auto found = Look(t, t.Call(keys), {.lease = LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  Lease lease = std::move(found->lease);
  lease.Shrink(34);
  CHECK(*t.held == Held{{1, 10}, {2, 10}, {3, 10}, {4, 4}});
  lease.Shrink(20);
  CHECK(*t.held == Held{{1, 10}, {2, 10}});
  lease.Shrink(13);
  CHECK(*t.held == Held{{1, 10}, {2, 3}});
  CHECK(lease.keys() == 13);
  std::vector<std::byte> bytes(35);
  const auto get = [&](size_t first, size_t count) {
    return Take(t, t.Call(Keys(keys).subspan(first, count)),
                {.lease = &lease,
                 .first_key = static_cast<uint32_t>(first),
                 .allocate = [&](size_t chunk, uint64_t) {
                   return std::span(bytes).subspan(first + chunk, 1);
                 }});
  };
  CHECK(get(8, 5)->chunks[4].status == GetStatus::kHit);
  CHECK(bytes[9] == std::byte{9});
  CHECK(bytes[12] == std::byte{2});
  CHECK(absl::IsInvalidArgument(get(8, 6).status()));
  SECTION("dropped") { lease.Release(); }
  SECTION("and who releases it is told") {
    std::optional<absl::Status> told;
    const std::unique_ptr<LeaseState> state = std::move(lease).TakeState();
    ReleaseAll(&t, std::move(static_cast<SplitLease&>(*state)).TakeLeases(),
               [&](absl::Status status) { told = std::move(status); });
    CHECK(told == absl::OkStatus());
  }
  CHECK(t.held->empty());
}

TEST_CASE("a lease of several is dead as soon as a session of it is over") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(20);
  t.present = {keys.begin(), keys.end()};
  auto found = Look(t, t.Call(keys), {.lease = LeaseMode::kLeadingRun});
  REQUIRE(found->lease.alive());
  t.over = true;
  CHECK_FALSE(found->lease.alive());
}

TEST_CASE("a long get fills each chunk's own destinations, and keeps what came before an error") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(25);
  t.present = {keys.begin(), keys.end()};
  std::vector<std::byte> bytes(50);
  std::vector<std::span<std::byte>> to;
  std::vector<uint32_t> runs;
  for (size_t i = 0; i < 25; ++i) {
    runs.push_back(i % 3 == 0 ? 2 : 1);
    for (size_t run = 0; run < runs[i]; ++run) {
      to.push_back(std::span(bytes).subspan(i * 2 + run, 1));
    }
  }
  auto got = Take(t, t.Call(keys), {.destinations = to, .destination_runs = runs});
  REQUIRE(got.ok());
  for (size_t i = 0; i < 25; ++i) {
    CHECK(got->chunks[i].status == GetStatus::kHit);
    CHECK(bytes[i * 2] == static_cast<std::byte>(i % 10));
  }
  t.asked.clear();
  t.fail_at = 2;
  got = Take(t, t.Call(keys), {.destinations = to, .destination_runs = runs});
  REQUIRE(got.ok());
  CHECK(absl::IsUnavailable(got->error));
  CHECK(got->chunks[19].status == GetStatus::kHit);
  CHECK(got->chunks[20].status == GetStatus::kUnfinished);
  t.asked.clear();
  t.fail_at = 0;
  CHECK(absl::IsUnavailable(
      Take(t, t.Call(keys), {.destinations = to, .destination_runs = runs}).status()));
}

TEST_CASE("each request of a long get may look beyond the node as long as the get may") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(25);
  const auto wait = std::chrono::milliseconds(7);
  const auto nowhere = [](size_t, uint64_t) { return std::span<std::byte>(); };
  REQUIRE(Take(t, t.Call(keys), {.remote_wait = wait, .allocate = nowhere}).ok());
  REQUIRE(t.asked.size() == 3);
  for (const TestTransport::Asked& asked : t.asked) CHECK(asked.remote_wait == wait);
}

TEST_CASE("sums go over all slices") {
  TestTransport t;
  const std::vector<ChunkKey> keys = Numbered(25);
  std::vector<size_t> sizes;
  uint64_t touched = 0;
  SumInSlices<uint64_t>(
      t.Call(keys, 2),
      [&](Keys some, Deadline left, Callback<uint64_t> done) {
        CHECK(left > Deadline(0));
        sizes.push_back(some.size());
        std::move(done)(some.size() * 2);
      },
      [&](absl::StatusOr<uint64_t> sum) { touched = sum.value(); });
  CHECK(touched == 50);
  CHECK(sizes == std::vector<size_t>{5, 5, 5, 5, 5});
}

TEST_CASE("a call is split where more chunks are asked for than a request may name") {
  const ServerLimits limits{.max_keys_per_call = 500};
  const std::vector<ChunkKey> keys(501);
  CHECK(NeedsSlices(keys, 1, limits));
  CHECK_FALSE(NeedsSlices(Keys(keys).first(500), 1, limits));
  CHECK(NeedsSlices(Keys(keys).first(500), 2, limits));
  CHECK(KeysInRequest(2, limits) == 250);
  CHECK(KeysInRequest(3, limits) == 166);
  CHECK_FALSE(NeedsSlices(keys, 501, limits));  // one key alone is too much: refused
  CHECK_FALSE(NeedsSlices(keys, 1, {}));        // the daemon did not say
}

}  // namespace kvkeep::client
