// A gRPC client, as bytes: a script of messages as they come off the wire, over a store in memory,
// through the checks and conversions of the daemon. An operator's messages too, except those
// without content. Streams and threads of gRPC are tested by socket_test.cc.
//
// So that random bytes get far, messages are completed: an empty session token or namespace becomes
// the open one, a lease below 16 one of those granted. Checks: an answer or an error for
// everything, right bytes behind every read, every wait for durability answered, and nothing left
// behind when the session ends.
#include <array>
#include <memory>
#include <vector>

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/grpc/put_receiver.h"
#include "server/requests/convert.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "tests/sim/world.h"
#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

enum class Op : uint8_t { kCall, kPutFrame, kPutEnd, kRun, kTime, kSession };
constexpr uint8_t kOps = 6;
enum class Call : uint8_t {
  kNamespace,
  kLookup,
  kGet,
  kTouch,
  kPrefetch,
  kRelease,
  kDelete,
  kSession,
  kWatch,
  kClear,
  kEvict,
  kVerify,
  kDrain,
};
constexpr uint8_t kCalls = 13;
constexpr size_t kMaxSteps = 300;
constexpr uint64_t kSmallLease = 16;
constexpr uint32_t kMaxKeys = 64;
constexpr auto kTurn = std::chrono::seconds(1);  // everything that is due then is due at once

WorldOptions SmallWorld() {
  WorldOptions options;
  options.g2_blocks = 64;
  options.g2_segment_blocks = 32;
  options.device_blocks = {128};
  options.store.max_keys_per_call = kMaxKeys;
  // A table is made for each input, so it is small.
  options.store.max_chunks = 64;
  options.store.max_sessions = 4;
  return options;
}

class Runner {
 public:
  Runner() : world_(SmallWorld()) {
    world_.Start();
    OpenSession();
  }

  void Run(InputReader input) {
    for (size_t step = 0; step < kMaxSteps && !input.done(); ++step) Step(input);
    End();
  }

 private:
  struct Subject {
    SessionToken session;
    OwnedChunkSet chunks;
  };
  // A read under way; its reader goes when it is answered.
  struct Get {
    ChunkReader reader;
    bool answered = false;
  };

  void Step(InputReader& input) {
    switch (static_cast<Op>(input.U8() % kOps)) {
      case Op::kCall: {
        const auto call = static_cast<Call>(input.U8() % kCalls);
        return Answer(call, input.Text(input.U16())).IgnoreError();
      }
      case Op::kPutFrame:
        return PutFrame(input.Text(input.U16()));
      case Op::kPutEnd:
        if (put_ != nullptr) put_->OnEnd().IgnoreError();
        return put_.reset();
      case Op::kRun:
        for (uint8_t i = input.U8(); i > 0 && world_.RunOneAtRandom(); --i) {
        }
        return;
      case Op::kTime:
        return world_.Settle(kTurn);
      case Op::kSession:
        CloseSession();
        return OpenSession();
    }
  }

  void OpenSession() {
    const absl::StatusOr<SessionToken> session = world_.store().OpenSession({.client_name = "f"});
    KVKEEP_CHECK(session.ok() != draining_);
    if (draining_) return;  // everything goes on with a closed session
    session_ = *session;
    const absl::StatusOr<NamespaceDigest> ns =
        world_.store().OpenNamespace(session_, {.model = "f", .tokens_per_chunk = 1, .parts = 3});
    KVKEEP_CHECK(ns.ok());
    ns_ = *ns;
    leases_.clear();
  }

  void CloseSession() {
    put_.reset();
    world_.RunAll();  // reads under way are answered
    DropAnswered();
    world_.store().CloseSession(session_);
    // A reader of events gets them.
    KVKEEP_CHECK(!watch_ || absl::IsFailedPrecondition(watch_.Next().status()));
    watch_ = EventReader();
  }

  template <typename Request>
  absl::StatusOr<Request> Parse(const std::string& bytes) const {
    Request request;
    if (!request.ParseFromString(bytes)) return absl::InvalidArgumentError("no protobuf");
    if (request.session_token().empty()) request.set_session_token(Text(session_));
    return request;
  }
  template <typename Request>
  absl::StatusOr<Subject> ParseSubject(Request& request) {
    if (request.namespace_digest().empty()) request.set_namespace_digest(Text(ns_));
    Subject subject;
    KVKEEP_ASSIGN_OR_RETURN(subject.session, ParseSessionToken(request.session_token()));
    KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest ns,
                            ParseNamespaceDigest(request.namespace_digest()));
    KVKEEP_ASSIGN_OR_RETURN(const NamespaceSpec spec,
                            world_.store().FindNamespace(subject.session, ns));
    KVKEEP_ASSIGN_OR_RETURN(subject.chunks,
                            ParseChunkSet(ns, request.keys(), request.parts(), spec, kMaxKeys));
    KVKEEP_CHECK(subject.chunks.chunks() >= 1 && subject.chunks.chunks() <= kMaxKeys);
    return subject;
  }
  template <typename Digest>
  static std::string Text(const Digest& digest) {
    return std::string(digest.view());
  }
  LeaseId Lease(uint64_t said) const {
    if (said == 0 || said >= kSmallLease || leases_.empty()) return LeaseId(said);
    return leases_[said % leases_.size()];
  }

  absl::Status Answer(Call call, const std::string& bytes) {
    Store& store = world_.store();
    switch (call) {
      case Call::kNamespace:
        return OpenNamespace(bytes);
      case Call::kLookup:
        return Lookup(bytes);
      case Call::kGet:
        return Read(bytes);
      case Call::kTouch: {
        KVKEEP_ASSIGN_OR_RETURN(auto request, Parse<v1::TouchRequest>(bytes));
        KVKEEP_ASSIGN_OR_RETURN(const Subject subject, ParseSubject(request));
        return store.Touch(subject.session, subject.chunks.view()).status();
      }
      case Call::kPrefetch: {
        KVKEEP_ASSIGN_OR_RETURN(auto request, Parse<v1::PrefetchRequest>(bytes));
        KVKEEP_ASSIGN_OR_RETURN(const Subject subject, ParseSubject(request));
        return store.Prefetch(subject.session, subject.chunks.view()).status();
      }
      case Call::kRelease: {
        KVKEEP_ASSIGN_OR_RETURN(const auto request, Parse<v1::ReleaseRequest>(bytes));
        KVKEEP_ASSIGN_OR_RETURN(const SessionToken session,
                                ParseSessionToken(request.session_token()));
        return store.Release(session, Lease(request.lease_id()), request.keep_keys());
      }
      case Call::kDelete: {
        KVKEEP_ASSIGN_OR_RETURN(auto request, Parse<v1::DeleteRequest>(bytes));
        KVKEEP_ASSIGN_OR_RETURN(const Subject subject, ParseSubject(request));
        return store.Delete(subject.session, subject.chunks.view()).status();
      }
      case Call::kSession:
        return AnotherSession(bytes);
      case Call::kWatch:
        return Watch(bytes);
      default:
        return Administer(call, bytes);
    }
  }

  template <typename Request>
  static absl::StatusOr<Request> ParseAdmin(const std::string& bytes) {
    Request request;
    if (!request.ParseFromString(bytes)) return absl::InvalidArgumentError("no protobuf");
    return request;
  }

  absl::Status Administer(Call call, const std::string& bytes) {
    Store& store = world_.store();
    if (call == Call::kClear) {
      KVKEEP_ASSIGN_OR_RETURN(const auto request, ParseAdmin<v1::ClearRequest>(bytes));
      std::optional<NamespaceDigest> ns;
      if (!request.namespace_digest().empty()) {
        KVKEEP_ASSIGN_OR_RETURN(ns, ParseNamespaceDigest(request.namespace_digest()));
      }
      store.Clear(ns);
    } else if (call == Call::kEvict) {
      KVKEEP_ASSIGN_OR_RETURN(const auto request, ParseAdmin<v1::EvictRequest>(bytes));
      KVKEEP_ASSIGN_OR_RETURN(const EvictResult evicted, store.Evict({.of_g3 = request.g3(),
                                                                      .tenant = request.tenant(),
                                                                      .bytes = request.bytes()}));
      KVKEEP_CHECK((evicted.chunks > 0) == (evicted.bytes > 0));
    } else if (call == Call::kVerify) {
      KVKEEP_ASSIGN_OR_RETURN(const auto request, ParseAdmin<v1::VerifyRequest>(bytes));
      store.ScrubRound(request.bytes_per_second());
    } else if (call == Call::kDrain) {
      KVKEEP_RETURN_IF_ERROR(ParseAdmin<v1::DrainRequest>(bytes).status());
      store.BeginDrain();
      draining_ = true;
    }
    store.Namespaces();
    return absl::OkStatus();
  }

  // A session of its own, closed again: the limit of sessions is for all of them.
  absl::Status AnotherSession(const std::string& bytes) {
    KVKEEP_ASSIGN_OR_RETURN(const auto request, ParseAdmin<v1::OpenSessionRequest>(bytes));
    KVKEEP_ASSIGN_OR_RETURN(const std::string name, ParseClientName(request.client_name()));
    KVKEEP_CHECK(name.size() <= kMaxClientNameBytes);
    const absl::StatusOr<SessionToken> session = world_.store().OpenSession({.client_name = name});
    KVKEEP_CHECK(session.ok() != draining_);
    if (session.ok()) world_.store().CloseSession(*session);
    return session.status();
  }

  // One at a time, read to its present end.
  absl::Status Watch(const std::string& bytes) {
    KVKEEP_ASSIGN_OR_RETURN(auto request, Parse<v1::WatchRequest>(bytes));
    if (request.namespace_digest().empty()) request.set_namespace_digest(Text(ns_));
    KVKEEP_ASSIGN_OR_RETURN(const SessionToken session, ParseSessionToken(request.session_token()));
    KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest ns,
                            ParseNamespaceDigest(request.namespace_digest()));
    KVKEEP_ASSIGN_OR_RETURN(watch_, world_.store().Watch(session, ns));
    for (bool more = true; more;) {
      KVKEEP_ASSIGN_OR_RETURN(const EventBatch batch, watch_.Next());
      for (const ChunkEvent& event : batch.events) KVKEEP_CHECK(event.id.ns == ns);
      more = batch.more;
    }
    return absl::OkStatus();
  }

  absl::Status OpenNamespace(const std::string& bytes) {
    KVKEEP_ASSIGN_OR_RETURN(const auto request, Parse<v1::OpenNamespaceRequest>(bytes));
    KVKEEP_ASSIGN_OR_RETURN(const SessionToken session, ParseSessionToken(request.session_token()));
    KVKEEP_ASSIGN_OR_RETURN(const NamespaceSpec spec, ParseNamespaceSpec(request));
    KVKEEP_ASSIGN_OR_RETURN(ns_, world_.store().OpenNamespace(session, spec));
    return absl::OkStatus();
  }

  absl::Status Lookup(const std::string& bytes) {
    KVKEEP_ASSIGN_OR_RETURN(auto request, Parse<v1::LookupRequest>(bytes));
    KVKEEP_ASSIGN_OR_RETURN(const LeaseMode mode, ParseLeaseMode(request.lease_mode()));
    KVKEEP_ASSIGN_OR_RETURN(const Subject subject, ParseSubject(request));
    KVKEEP_ASSIGN_OR_RETURN(
        const LookupResult result,
        world_.store().Lookup(subject.session, {.chunks = subject.chunks.view(),
                                                .lease_mode = mode,
                                                .client_request_id = request.client_request_id(),
                                                .transient = request.transient()}));
    v1::LookupResponse response;
    ToResponse(result, subject.chunks.parts.size(), &response);
    const size_t row_bytes = (subject.chunks.parts.size() + 7) / 8;
    KVKEEP_CHECK(response.g2_parts().size() == row_bytes * subject.chunks.keys.size());
    KVKEEP_CHECK(response.leading_keys() <= subject.chunks.keys.size());
    KVKEEP_CHECK(response.leased_keys() <= subject.chunks.keys.size());
    if (response.lease_id() != 0 && leases_.size() < kSmallLease) leases_.push_back(result.lease);
    return absl::OkStatus();
  }

  absl::Status Read(const std::string& bytes) {
    KVKEEP_ASSIGN_OR_RETURN(auto request, Parse<v1::GetRequest>(bytes));
    KVKEEP_ASSIGN_OR_RETURN(const Subject subject, ParseSubject(request));
    DropAnswered();
    for (const ChunkKey& key : subject.chunks.keys) {
      for (const PartId part : subject.chunks.parts) {
        KVKEEP_ASSIGN_OR_RETURN(
            ReadResult read, world_.store().Read(subject.session, {subject.chunks.ns, key, part},
                                                 Lease(request.lease_id()), request.transient()));
        if (read.outcome == ReadOutcome::kHit) Await(std::move(read.reader));
      }
    }
    return absl::OkStatus();
  }

  void Await(ChunkReader reader) {
    gets_.push_back(std::make_unique<Get>());
    Get* const get = gets_.back().get();
    get->reader = std::move(reader);
    get->reader.WhenReady(0, get->reader.shape().pieces(), [get](absl::Status ready) {
      KVKEEP_CHECK(!get->answered);
      get->answered = true;
      if (ready.ok()) CheckBytes(get->reader);
    });
  }

  // The bytes are those that were checksummed when they were put.
  static void CheckBytes(const ChunkReader& reader) {
    const std::vector<uint64_t> sums = reader.PieceChecksums();
    KVKEEP_CHECK(sums.size() == reader.shape().pieces());
    for (size_t piece = 0; piece < sums.size(); ++piece) {
      const uint64_t bytes = PieceSize(reader.shape().payload_bytes, piece);
      Xxh3Stream sum;
      for (uint64_t at = 0; at < bytes;) {
        const auto run = reader.Payload(piece * kPieceBytes + at, bytes - at);
        KVKEEP_CHECK(!run.empty());
        sum.Append(run);
        at += run.size();
      }
      KVKEEP_CHECK(sum.Digest() == sums[piece]);
    }
  }

  void DropAnswered() {
    std::erase_if(gets_, [](const std::unique_ptr<Get>& get) { return get->answered; });
  }

  void PutFrame(std::string bytes) {
    v1::PutFrame frame;
    if (frame.ParseFromString(bytes) && frame.has_stream()) {
      v1::PutStreamHeader* const stream = frame.mutable_stream();
      if (stream->session_token().empty()) stream->set_session_token(Text(session_));
      if (stream->namespace_digest().empty()) stream->set_namespace_digest(Text(ns_));
      bytes = frame.SerializeAsString();
    }
    if (put_ == nullptr) {
      put_ = std::make_unique<PutReceiver>(&world_.store(), &counters_, TenantId());
    }
    const WireRun all = AsBytes(bytes);
    const std::array<WireRun, 2> runs = {all.first(all.size() / 3), all.subspan(all.size() / 3)};
    const absl::StatusOr<std::optional<PutReceiver::FinishedChunk>> finished = put_->OnFrame(runs);
    if (!finished.ok()) return put_.reset();  // the stream ends
    if (!finished->has_value()) return;
    KVKEEP_CHECK((*finished)->Result().status() != v1::PUT_STATUS_UNSPECIFIED);
    if (!(*finished)->put.awaits_durable()) return;
    ++awaited_;
    world_.store().WhenDurable((*finished)->put.id(), [this](absl::Status) { ++answered_; });
  }

  void End() {
    CloseSession();
    world_.Settle(kTurn);
    world_.RunAll();
    DropAnswered();
    KVKEEP_CHECK(gets_.empty());
    KVKEEP_CHECK(answered_ == awaited_);
    world_.store().CheckInvariants();
    const StoreSnapshot snapshot = world_.store().snapshot();
    KVKEEP_CHECK(snapshot.g2.leased_bytes == 0 && snapshot.g2.reserved_bytes == 0);
    KVKEEP_CHECK(snapshot.sessions.empty());
  }

  uint64_t awaited_ = 0, answered_ = 0;  // waits for durability
  World world_;
  ServerCounters counters_;
  SessionToken session_;
  NamespaceDigest ns_;
  std::vector<LeaseId> leases_;
  std::vector<std::unique_ptr<Get>> gets_;
  std::unique_ptr<PutReceiver> put_;
  EventReader watch_;
  bool draining_ = false;
};

void RunRequests(std::span<const uint8_t> input) { Runner().Run(InputReader(input)); }

// Writes scripts: the seeds.
class Script {
 public:
  Script& Do(Op op) {
    bytes_.push_back(static_cast<uint8_t>(op));
    return *this;
  }
  Script& Run(uint8_t tasks) {
    Do(Op::kRun);
    bytes_.push_back(tasks);
    return *this;
  }
  template <typename Request>
  Script& Ask(Call call, const Request& request) {
    Do(Op::kCall);
    bytes_.push_back(static_cast<uint8_t>(call));
    return Text(request.SerializeAsString());
  }
  Script& Put(const v1::PutFrame& frame) {
    return Do(Op::kPutFrame).Text(frame.SerializeAsString());
  }
  const FuzzInput& bytes() const { return bytes_; }

 private:
  Script& Text(const std::string& text) {
    bytes_.push_back(static_cast<uint8_t>(text.size()));
    bytes_.push_back(static_cast<uint8_t>(text.size() >> 8));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    return *this;
  }

  FuzzInput bytes_;
};

std::string KeyOf(char name) { return std::string(ChunkKey::kSize, name); }

v1::PutFrame Frame(char name, size_t bytes, bool first) {
  v1::PutFrame frame;
  if (first) frame.mutable_stream();
  frame.mutable_chunk()->set_key(KeyOf(name));
  frame.mutable_chunk()->set_payload_bytes(bytes);
  frame.set_payload(std::string(bytes, name));
  return frame;
}

template <typename Request>
Request Keys(const std::string& names) {
  Request request;
  for (const char name : names) request.mutable_keys()->append(KeyOf(name));
  return request;
}

FuzzInput PutsAndGets() {
  v1::PutFrame second = Frame('b', 5000, false);
  second.mutable_chunk()->set_durable(true);
  second.mutable_chunk()->set_metadata("tail");
  second.mutable_chunk()->set_part(1);
  second.mutable_chunk()->mutable_hints()->set_parent_key(KeyOf('a'));
  v1::PutFrame start = Frame('c', 300, false), rest;
  start.mutable_payload()->resize(100);
  rest.set_payload(std::string(200, 'c'));
  auto lookup = Keys<v1::LookupRequest>("abc");
  lookup.set_lease_mode(v1::LEASE_MODE_LEADING_RUN);
  lookup.add_parts(0);
  v1::ReleaseRequest release;
  release.set_lease_id(1);
  return Script()
      .Put(Frame('a', 9000, true))
      .Put(second)
      .Put(start)
      .Put(rest)
      .Do(Op::kPutEnd)
      .Run(9)
      .Ask(Call::kLookup, lookup)
      .Ask(Call::kGet, Keys<v1::GetRequest>("abc"))
      .Do(Op::kTime)
      .Ask(Call::kTouch, Keys<v1::TouchRequest>("ab"))
      .Ask(Call::kRelease, release)
      .Ask(Call::kDelete, Keys<v1::DeleteRequest>("b"))
      .Ask(Call::kGet, Keys<v1::GetRequest>("b"))
      .bytes();
}

// More than G2 holds, so that reads come from the device.
FuzzInput Promotions() {
  Script script;
  for (char name = 'a'; name < 'k'; ++name) {
    script.Put(Frame(name, 40'000, name == 'a')).Do(Op::kTime);
  }
  return script.Ask(Call::kPrefetch, Keys<v1::PrefetchRequest>("ab"))
      .Run(3)
      .Ask(Call::kGet, Keys<v1::GetRequest>("abcj"))
      .Run(200)
      .Do(Op::kSession)
      .Ask(Call::kGet, Keys<v1::GetRequest>("a"))
      .bytes();
}

FuzzInput Mistakes() {
  v1::PutFrame wrong = Frame('a', 100, true), abort;
  wrong.mutable_chunk()->set_checksum(1);
  abort.set_abort(true);
  v1::PutFrame long_one = Frame('b', 100, false);
  long_one.mutable_chunk()->set_payload_bytes(99);
  v1::OpenNamespaceRequest ns;
  ns.set_model("m");
  ns.set_tokens_per_chunk(16);
  ns.set_parts(70'000);
  auto lookup = Keys<v1::LookupRequest>("a");
  lookup.add_parts(3);
  v1::GetRequest get;
  get.set_keys("short");
  v1::ClearRequest clear;
  clear.set_namespace_digest("short");
  return Script()
      .Put(wrong)
      .Put(abort)
      .Put(long_one)
      .Ask(Call::kNamespace, ns)
      .Ask(Call::kLookup, lookup)
      .Ask(Call::kGet, get)
      .Ask(Call::kClear, clear)
      .bytes();
}

// An operator's requests between a client's calls, and a client that hears of them.
FuzzInput Operator() {
  v1::OpenSessionRequest session;
  session.set_client_name("other");
  v1::EvictRequest evict;
  evict.set_bytes(5000);
  v1::VerifyRequest verify;
  verify.set_bytes_per_second(1 << 20);
  v1::ClearRequest clear;
  clear.set_namespace_digest(std::string(NamespaceDigest::kSize, 'n'));
  return Script()
      .Ask(Call::kSession, session)
      .Ask(Call::kWatch, v1::WatchRequest())
      .Put(Frame('a', 9000, true))
      .Put(Frame('b', 9000, false))
      .Run(30)
      .Ask(Call::kWatch, v1::WatchRequest())
      .Ask(Call::kEvict, evict)
      .Ask(Call::kVerify, verify)
      .Ask(Call::kClear, clear)
      .Do(Op::kTime)
      .Ask(Call::kClear, v1::ClearRequest())
      .Put(Frame('c', 300, false))
      .Ask(Call::kDrain, v1::DrainRequest())
      .Put(Frame('d', 300, false))
      .Ask(Call::kSession, session)
      .Do(Op::kSession)
      .Ask(Call::kGet, Keys<v1::GetRequest>("c"))
      .bytes();
}

std::vector<FuzzInput> RequestsSeeds() {
  return {PutsAndGets(), Promotions(), Mistakes(), Operator()};
}

}  // namespace

const FuzzTarget kRequestsTarget{.name = "requests", .run = RunRequests, .seeds = RequestsSeeds};

}  // namespace kvkeep
