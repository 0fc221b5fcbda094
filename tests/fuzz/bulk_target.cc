// Clients of the bulk door, as bytes (bulk_script.h). Checks, beside what BulkOracle judges: what
// is held stays within the limits, every call ends, a connection serves the next call or is closed,
// and nothing is left behind.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>

#include "server/bulk/connection.h"
#include "tests/fuzz/bulk_oracle.h"
#include "tests/fuzz/bulk_script.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "tests/sim/world.h"
#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {
namespace {

using bulk::FrameKind;
using std::chrono::seconds;

constexpr size_t kMaxSteps = 300;
constexpr uint64_t kSmallLease = 16;
constexpr uint32_t kMaxKeys = 64;
constexpr uint32_t kParts = 3;
constexpr uint64_t kSmallPayload = 64 * kKiB, kLargePayload = 3 * kMiB / 2;
constexpr uint64_t kMostSent = 16 * kMiB;   // then payloads are small
constexpr uint64_t kMostUnsent = 4 * kMiB;  // then a client says no more
constexpr uint64_t kMostPinned = 2 * kMiB;
constexpr auto kTurn = seconds(1);
constexpr auto kStall = seconds(3);
// Apart from the account of sockets that are being closed.
constexpr DescriptorCloser::Owner kPassedDescriptors = 0xb0;
constexpr int kQuietTurns = 8;  // after as many, nothing goes on by itself

WorldOptions SmallWorld() {
  WorldOptions options;
  options.g2_blocks = 768;
  options.g2_segment_blocks = 384;
  options.device_blocks = {768};
  options.store.max_keys_per_call = kMaxKeys;
  options.store.max_chunks = 64;  // the table is made for each input
  options.store.max_sessions = 4;
  return options;
}

// Bytes that one call of a stream moves at most; 0: any number.
struct Cuts {
  size_t read = 0, write = 0;
};

// A socket's stream, whose calls move few bytes, and which shows what is written.
class CutStream final : public ByteStream {
 public:
  CutStream(UniqueFd socket, const Cuts* cuts, std::shared_ptr<BulkOracle> oracle, uint64_t* moves)
      : inner_(MakeSocketStream(std::move(socket), kPassedDescriptors)),
        cuts_(cuts),
        oracle_(std::move(oracle)),
        moves_(moves) {}

  Moved Read(absl::Span<const iovec> runs) override {
    const Moved moved = Counted(inner_->Read(Cut(runs, cuts_->read)));
    oracle_->Reads(moved.bytes);
    return moved;
  }
  Moved Write(absl::Span<const iovec> runs) override {
    const std::vector<iovec> cut = Cut(runs, cuts_->write);
    const Moved moved = Counted(inner_->Write(cut));
    size_t left = moved.bytes;
    for (const iovec& run : cut) {
      const size_t step = std::min(left, run.iov_len);
      oracle_->Writes({static_cast<const std::byte*>(run.iov_base), step});
      left -= step;
    }
    return moved;
  }
  void EndWriting() override { inner_->EndWriting(); }
  int fd() const override { return inner_->fd(); }

 private:
  static std::vector<iovec> Cut(absl::Span<const iovec> runs, size_t most) {
    std::vector<iovec> cut(runs.begin(), runs.end());
    size_t left = most == 0 ? SIZE_MAX : most;
    for (iovec& run : cut) {
      run.iov_len = std::min(run.iov_len, left);
      left -= run.iov_len;
    }
    return cut;
  }
  Moved Counted(Moved moved) {
    *moves_ += moved.outcome != Outcome::kWait;
    return moved;
  }

  const std::unique_ptr<ByteStream> inner_;
  const Cuts* const cuts_;
  const std::shared_ptr<BulkOracle> oracle_;
  uint64_t* const moves_;
};

class AnyCaller final : public BulkCaller {
 public:
  absl::StatusOr<TenantId> Admit(const ShownCertificate&, const std::string&) override {
    return TenantId();
  }
  std::string name() const override { return "fuzz"; }
};

// A client: what it says, and how much of that is sent.
struct Client {
  uint64_t id = 0;
  UniqueFd socket;
  std::shared_ptr<BulkOracle> oracle;
  std::string said;
  size_t sent = 0;
  uint64_t said_ever = 0;

  void Say(const std::string& bytes) {
    if (said.size() - sent > kMostUnsent) return oracle->Muddle();
    said += bytes;
    said_ever += bytes.size();
  }
};

// A frame of a script.
struct Said {
  FrameKind kind{};
  uint8_t how = 0;
  std::string message;
};

class Runner {
 public:
  Runner() : world_(SmallWorld()), loop_(EventLoop::Create(std::chrono::microseconds(0)).value()) {
    world_.Start();
    OpenSession();
  }
  ~Runner() { loop_->Close(); }

  void Run(InputReader input) {
    for (size_t step = 0; step < kMaxSteps && !input.done(); ++step) {
      Step(input);
      CheckLimits();
    }
    End();
  }

 private:
  void Step(InputReader& input) {
    switch (static_cast<BulkOp>(input.U8() % kBulkOps)) {
      case BulkOp::kFrame: {
        const uint8_t kind = input.U8();
        last_.kind = kind == 1 ? FrameKind::kHello : static_cast<FrameKind>(kind);
        last_.how = input.U8();
        last_.message = input.Text(input.U16());
        return Say(last_);
      }
      case BulkOp::kAgain:
        for (uint8_t i = input.U8(); i > 0; --i) Say(last_);
        return;
      case BulkOp::kBytes:
        client().oracle->Muddle();
        return client().Say(input.Text(input.U16()));
      case BulkOp::kTurn:
        for (uint8_t i = input.U8(); i > 0; --i) Turn();
        return;
      case BulkOp::kRead: {
        const size_t kib = input.U8();
        Read(client(), kib == 0 ? SIZE_MAX : kib * kKiB);
        return;
      }
      case BulkOp::kTime:
        return Pass(kStall);
      case BulkOp::kClient:
        return OfClient(static_cast<BulkClientStep>(input.U8() % kBulkClientSteps));
      case BulkOp::kSession:
        return OfSession(input.U8());
      case BulkOp::kStore:
        return OfStore(input.U8());
      case BulkOp::kCut:
        cuts_.read = input.U8();
        cuts_.write = input.U8();
        return;
    }
  }

  // ---- the daemon

  void OpenSession() {
    const absl::StatusOr<SessionToken> session = world_.store().OpenSession({.client_name = "f"});
    KVKEEP_CHECK(session.ok() != draining_);
    leases_.clear();
    ++sessions_;
    if (draining_) return;  // everything goes on with a closed session
    session_ = *session;
    const absl::StatusOr<NamespaceDigest> ns = world_.store().OpenNamespace(
        session_, {.model = "f", .tokens_per_chunk = 1, .parts = kParts});
    KVKEEP_CHECK(ns.ok());
    ns_ = *ns;
  }
  void OfSession(uint8_t how) {
    if (how == 7) {
      world_.store().BeginDrain();
      draining_ = true;
      return;
    }
    world_.store().CloseSession(session_);
    OpenSession();
  }
  void OfStore(uint8_t how) {
    std::vector<ChunkKey> keys;
    for (const std::string& name : keys_) {
      keys.emplace_back();
      std::copy(name.begin(), name.end(), reinterpret_cast<char*>(keys.back().bytes.data()));
    }
    if (keys.size() > kMaxKeys) keys.resize(kMaxKeys);
    if (how % 4 == 0) world_.store().Clear(std::nullopt);
    if (how % 4 == 0 || keys.empty()) return;
    const std::vector<PartId> parts = {PartId(0)};
    const ChunkSet chunks{.ns = ns_, .keys = keys, .parts = parts};
    if (how % 4 == 1) return world_.store().Delete(session_, chunks).status().IgnoreError();
    const absl::StatusOr<LookupResult> found =
        world_.store().Lookup(session_, {.chunks = chunks, .lease_mode = LeaseMode::kAllPresent});
    if (found.ok() && leases_.size() < kSmallLease) leases_.push_back(found->lease.value());
  }

  void Turn() {
    for (const std::unique_ptr<Client>& one : clients_) {
      if (one != nullptr) Send(*one);
    }
    loop_->RunOnce(std::chrono::milliseconds(0), [this](uint64_t id, uint32_t events) {
      const auto found = connections_.find(id);
      if (found != connections_.end()) found->second->OnEvent(events);
    });
    for (const uint64_t id : std::exchange(closed_, {})) connections_.erase(id);
    moves_ += world_.RunOneAtRandom();
  }
  // Both clients read all; ends when nothing goes on any more.
  void Settle() {
    uint64_t before = moves_;
    for (int quiet = 0; quiet < kQuietTurns; ++quiet) {
      world_.RunAll();
      Turn();
      for (const std::unique_ptr<Client>& one : clients_) {
        if (one != nullptr) Read(*one, SIZE_MAX);
      }
      if (std::exchange(before, moves_) != moves_) quiet = 0;
    }
  }
  void Pass(std::chrono::nanoseconds time) {
    world_.Settle(kTurn);
    world_.clock().Advance(time);
    for (const auto& [id, connection] : connections_) connection->OnTick(world_.clock().Now());
    Turn();
  }

  void CheckLimits() const {
    KVKEEP_CHECK(memory_.bytes <= connections_.size() * bulk::kMaxMessageBytes);
    // Each session may be one chunk above the limit.
    KVKEEP_CHECK(state_.counters.pinned_bytes <= kMostPinned + sessions_ * kLargePayload);
  }

  // ---- the clients

  Client& client() {
    if (clients_[turn_] == nullptr) Connect(true);
    return *clients_[turn_];
  }
  void Connect(bool greets) {
    int pair[2];
    KVKEEP_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    constexpr int kBuffer = 64 * kKiB;
    for (const int end : pair) {
      KVKEEP_CHECK(setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kBuffer, sizeof(kBuffer)) == 0);
    }
    clients_[turn_] = std::make_unique<Client>();
    Client& client = *clients_[turn_];
    client.id = next_id_++;
    client.socket = UniqueFd(pair[0]);
    client.oracle = std::make_shared<BulkOracle>(&sent_);
    const auto connection = std::make_shared<BulkConnection>(
        BulkConnection::Deps{.store = &world_.store(),
                             .state = &state_,
                             .memory = &memory_,
                             .scratch = scratch_,
                             .loop = loop_,
                             .on_closed = [this](uint64_t id) { closed_.push_back(id); }},
        client.id, std::make_unique<CutStream>(UniqueFd(pair[1]), &cuts_, client.oracle, &moves_),
        std::make_unique<AnyCaller>());
    KVKEEP_CHECK(connection->Start().ok());
    connections_[client.id] = connection;
    ever_.push_back(connection);
    if (greets) Say({.kind = FrameKind::kHello, .message = Hello()});
  }
  static std::string Hello() {
    v1::BulkHello hello;
    hello.set_min_version(1);
    hello.set_max_version(1);
    return hello.SerializeAsString();
  }
  void OfClient(BulkClientStep step) {
    switch (step) {
      case BulkClientStep::kLeave:
      case BulkClientStep::kLeaveSilent:
        if (clients_[turn_] != nullptr) Send(*clients_[turn_]);
        return Connect(step == BulkClientStep::kLeave);
      case BulkClientStep::kEndWriting:
        Send(client());
        (void)shutdown(client().socket.get(), SHUT_WR);
        return;
      case BulkClientStep::kEndSoon: {
        const auto found = connections_.find(client().id);
        if (found == connections_.end()) return;
        client().oracle->EndsSoon();
        return found->second->EndSoon();
      }
      case BulkClientStep::kOther:
        turn_ = 1 - turn_;
        return;
    }
  }
  void Send(Client& one) {
    while (one.sent < one.said.size()) {
      const ssize_t went = send(one.socket.get(), one.said.data() + one.sent,
                                one.said.size() - one.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (went < 0 && errno == EAGAIN) return;
      ++moves_;
      one.sent = went <= 0 ? one.said.size() : one.sent + static_cast<size_t>(went);
    }
    one.said.clear();
    one.sent = 0;
  }
  void Read(Client& one, size_t most) {
    std::array<char, 65'536> buffer;
    while (most > 0) {
      const ssize_t came =
          recv(one.socket.get(), buffer.data(), std::min(most, buffer.size()), MSG_DONTWAIT);
      if (came <= 0) return;
      ++moves_;
      most -= static_cast<size_t>(came);
    }
  }

  // ---- what they say

  template <typename Digest>
  static std::string Text(const Digest& digest) {
    return std::string(digest.view());
  }
  void Say(const Said& frame) {
    Said said = frame;
    std::string payload;
    uint64_t payload_bytes = 0;
    if (said.kind == FrameKind::kGet) CompleteGet(said);
    if (said.kind == FrameKind::kPut) payload_bytes = CompletePut(said, &payload);
    if (said.kind == FrameKind::kPutDone) client().oracle->SaysPutDone();
    if ((said.how & kHowLies) != 0) ++payload_bytes;
    size_t message_bytes = said.message.size();
    if ((said.how & kHowShort) != 0 && message_bytes > 0) {
      --message_bytes;
      client().oracle->Muddle();
    }
    if (payload.size() != payload_bytes) client().oracle->Muddle();
    client().Say(bulk::EncodeHead(said.kind, message_bytes, payload_bytes) + said.message +
                 payload);
    if (said.kind == FrameKind::kPut) client().oracle->PutEndsAt(client().said_ever);
  }
  // Makes a message longer by a field that nobody knows.
  static void Lengthen(Said& said) {
    if ((said.how & kHowLong) == 0) return;
    const size_t bytes = (said.how & kHowOther) != 0 ? 300'000 : 8'192;
    v1::BulkEnd field;  // its message has the number 2, which is length-delimited
    field.set_message(std::string(bytes, 'x'));
    std::string unknown = field.SerializeAsString();
    // Field 20 instead: one byte more for the tag.
    said.message += std::string("\xa2\x01", 2) + unknown.substr(1);
  }
  void CompleteGet(Said& said) {
    v1::GetRequest request;
    std::vector<std::string> ids;
    size_t parts = 1;
    if (request.ParseFromString(said.message)) {
      if ((said.how & kHowIncomplete) == 0) {
        if (request.session_token().empty()) request.set_session_token(Text(session_));
        if (request.namespace_digest().empty()) request.set_namespace_digest(Text(ns_));
        if (request.lease_id() != 0 && request.lease_id() < kSmallLease && !leases_.empty()) {
          request.set_lease_id(leases_[request.lease_id() % leases_.size()]);
        }
      }
      said.message = request.SerializeAsString();
      std::vector<uint32_t> wanted(request.parts().begin(), request.parts().end());
      if (wanted.empty()) wanted = {0, 1, 2};
      parts = wanted.size();
      for (size_t at = 0; at + ChunkKey::kSize <= request.keys().size(); at += ChunkKey::kSize) {
        for (const uint32_t part : wanted) {
          ids.push_back(SentChunks::IdOf(request.namespace_digest(),
                                         request.keys().substr(at, ChunkKey::kSize), part));
        }
      }
    }
    Lengthen(said);
    client().oracle->SaysGet(std::move(ids), parts);
  }
  // Returns the announced bytes of the payload.
  uint64_t CompletePut(Said& said, std::string* payload) {
    v1::PutFrame frame;
    if (!frame.ParseFromString(said.message)) {
      client().oracle->SaysPut(false);
      return 0;
    }
    if (frame.has_stream() && (said.how & kHowIncomplete) == 0) {
      v1::PutStreamHeader* const stream = frame.mutable_stream();
      if (stream->session_token().empty()) stream->set_session_token(Text(session_));
      if (stream->namespace_digest().empty()) stream->set_namespace_digest(Text(ns_));
    }
    said.message = frame.SerializeAsString();
    Lengthen(said);
    const v1::PutChunkHeader& chunk = frame.chunk();
    const uint64_t bytes = chunk.payload_bytes();
    const bool is_possible = bytes > 0 && bytes <= kMaxPayloadBytes;
    const uint64_t announced = is_possible ? bytes + PieceCount(bytes) * sizeof(uint64_t) : bytes;
    if (chunk.key().size() == ChunkKey::kSize) keys_.insert(chunk.key());
    // Namespaces of a script's own cannot be open.
    const std::string id = SentChunks::IdOf(Text(ns_), chunk.key(), chunk.part());
    const uint64_t most = sent_.bytes() < kMostSent ? kLargePayload : kSmallPayload;
    const bool is_whole = is_possible && bytes <= most && (said.how & kHowCut) == 0;
    *payload = Payload(id, std::min(bytes, most), said.how);
    const bool is_right = is_whole && (said.how & (kHowSpoilt | kHowWrongSum)) == 0;
    client().oracle->SaysPut(is_right);
    if (is_right) {
      sent_.Add(id, {.payload = payload->substr(0, bytes), .metadata = chunk.metadata()});
    }
    if (!is_whole) payload->resize(std::min(bytes, most) / 2);
    return announced;
  }
  // Returns a payload with its checksums.
  static std::string Payload(const std::string& id, size_t bytes, uint8_t how) {
    std::string payload(bytes, '\0');
    uint64_t state = Xxh3(std::as_bytes(std::span(id))) + (how & kHowOther) + bytes;
    for (char& byte : payload) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<char>(state >> 56);
    }
    std::string sums;
    for (size_t at = 0; at < bytes; at += kPieceBytes) {
      const uint64_t sum = Xxh3(
          std::as_bytes(std::span(payload)).subspan(at, std::min<size_t>(kPieceBytes, bytes - at)));
      sums.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
    }
    if ((how & kHowWrongSum) != 0 && !sums.empty()) sums.back() ^= 1;
    if ((how & kHowSpoilt) != 0 && bytes > 0) payload[bytes / 2] ^= 1;
    return payload + sums;
  }

  // ---- the end

  // Asks for all chunks that were ever put. One call has to end.
  void AskForAll(Client& one) {
    v1::GetRequest request;
    size_t left = kMaxKeys / kParts;
    for (auto key = keys_.begin(); key != keys_.end() && left > 0; ++key, --left) {
      *request.mutable_keys() += *key;
    }
    request.set_metadata(true);
    const uint64_t before = one.oracle->calls_ended();
    Say({.kind = FrameKind::kGet, .message = request.SerializeAsString()});
    Settle();
    KVKEEP_CHECK(one.oracle->calls_ended() == before + 1);
  }

  void End() {
    cuts_ = Cuts();
    Settle();
    for (const auto time : {kStall, seconds(BulkConnection::kLinger), kStall,
                            seconds(BulkConnection::kHelloTimeout)}) {
      Pass(time + seconds(1));
      Settle();
    }
    KVKEEP_CHECK(memory_.bytes == 0);
    // A connection that is still there is between calls, and serves the next one.
    for (turn_ = 0; turn_ < clients_.size(); ++turn_) {
      if (clients_[turn_] == nullptr || !connections_.contains(client().id)) continue;
      client().oracle->StartAfresh();
      AskForAll(client());
    }
    turn_ = 0;
    Connect(true);
    AskForAll(client());
    for (std::unique_ptr<Client>& one : clients_) one.reset();
    Settle();
    KVKEEP_CHECK(connections_.empty());
    world_.store().CloseSession(session_);
    world_.Settle(kTurn);
    world_.RunAll();
    Settle();
    for (const std::weak_ptr<BulkConnection>& one : ever_) KVKEEP_CHECK(one.expired());
    KVKEEP_CHECK(memory_.bytes == 0);
    KVKEEP_CHECK(state_.counters.pinned_chunks == 0 && state_.counters.pinned_bytes == 0);
    const PinBudget::Use use = state_.pins.UseOf(TenantId());
    KVKEEP_CHECK(use.bytes == 0 && use.waiting == 0 && state_.pins.sessions() == 0);
    world_.store().CheckInvariants();
    const StoreSnapshot snapshot = world_.store().snapshot();
    KVKEEP_CHECK(snapshot.g2.leased_bytes == 0 && snapshot.g2.reserved_bytes == 0);
    KVKEEP_CHECK(snapshot.sessions.empty());
  }

  World world_;
  ServerState state_{"fuzz",
                     &world_.clock(),
                     {.pinned = {.tenant_bytes = {kMostPinned}}, .stall_timeout = kStall}};
  BulkMemory memory_;
  std::vector<std::byte> scratch_ = std::vector<std::byte>(5'000);
  const std::shared_ptr<EventLoop> loop_;
  SessionToken session_;
  NamespaceDigest ns_;
  std::vector<uint64_t> leases_;
  uint64_t sessions_ = 0;  // ever
  bool draining_ = false;

  Cuts cuts_;
  uint64_t moves_ = 0;  // how often something went on
  SentChunks sent_;
  std::set<std::string> keys_;  // of all Put frames
  Said last_;
  std::array<std::unique_ptr<Client>, 2> clients_;
  size_t turn_ = 0;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::shared_ptr<BulkConnection>> connections_;
  std::vector<std::weak_ptr<BulkConnection>> ever_;
  std::vector<uint64_t> closed_;
};

void RunBulk(std::span<const uint8_t> input) { Runner().Run(InputReader(input)); }

}  // namespace

const FuzzTarget kBulkTarget{.name = "bulk", .run = RunBulk, .seeds = BulkSeeds};

}  // namespace kvkeep
