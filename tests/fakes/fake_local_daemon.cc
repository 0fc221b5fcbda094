#include "tests/fakes/fake_local_daemon.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>

#include "tests/fakes/fake_local_connection.h"
#include "tests/fakes/read_body.h"
#include "tiers/base/bytes.h"
#include "tiers/base/check.h"

namespace kvkeep::fakes {

using local::Kind;

namespace {

constexpr uint64_t kProgressBytes = 4096 * sizeof(local::ProgressWord);
constexpr int kPollMs = 10;

UniqueFd Memfd(uint64_t bytes) {
  UniqueFd fd(memfd_create("kvkeep-fake", MFD_CLOEXEC));
  KVKEEP_CHECK(fd.valid() && ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  return fd;
}

std::byte* MapAll(int fd, uint64_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  KVKEEP_CHECK(at != MAP_FAILED);
  return static_cast<std::byte*>(at);
}

}  // namespace

FakeLocalDaemon::Arena::~Arena() {
  for (std::byte* at : memory) munmap(at, kSegmentBytes);
}

FakeLocalDaemon::FakeLocalDaemon() : progress_(Memfd(kProgressBytes)) {
  words_ = reinterpret_cast<local::ProgressWord*>(MapAll(progress_.get(), kProgressBytes));
  NewArena();
  Start();
}

FakeLocalDaemon::~FakeLocalDaemon() {
  Stop();
  munmap(words_, kProgressBytes);
}

void FakeLocalDaemon::NewArena() {
  MutexLock lock(&mu_);
  static std::atomic<uint8_t> number{1};
  arena_ = std::make_unique<Arena>();
  arena_->uuid.bytes.fill(number++);
  for (size_t i = 0; i < kSegments; ++i) {
    arena_->files.push_back(Memfd(kSegmentBytes));
    arena_->memory.push_back(MapAll(arena_->files.back().get(), kSegmentBytes));
  }
}

void FakeLocalDaemon::SetTamper(Tamper tamper) {
  MutexLock lock(&mu_);
  tamper_ = std::move(tamper);
}

void FakeLocalDaemon::Start() {
  RemoveSocket();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket().data(), socket().size());
  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  KVKEEP_CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  KVKEEP_CHECK(listen(listener_.get(), 64) == 0);
  stopping_ = false;
  words_[0] = 0;
  acceptor_ = std::thread([this] { Accept(); });
}

void FakeLocalDaemon::Stop() {
  if (!acceptor_.joinable()) return;
  stopping_ = true;
  acceptor_.join();
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mu_);
    threads.swap(threads_);
    ++incarnation_;
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&mu_);
  open_.clear();
  listener_.Reset();
}

void FakeLocalDaemon::RemoveSocket() { (void)unlink(socket().c_str()); }

void FakeLocalDaemon::Accept() {
  while (!stopping_) {
    pollfd ready{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kPollMs) <= 0) continue;
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) continue;
    ++connections;
    auto connection = std::make_shared<Connection>();
    connection->socket = std::move(fd);
    int pair[2];
    KVKEEP_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    connection->events = UniqueFd(pair[0]);
    connection->peer_events = UniqueFd(pair[1]);
    MutexLock lock(&mu_);
    open_.push_back(connection);
    threads_.emplace_back([this, connection] { Serve(*connection); });
  }
}

void FakeLocalDaemon::Serve(Connection& connection) {
  std::vector<std::byte> buffer(local::kMaxPacketBytes);
  local::MessageAssembler assembler;
  bool serving = true;
  while (serving && !stopping_) {
    pollfd ready[] = {{.fd = connection.socket.get(), .events = POLLIN, .revents = 0},
                      {.fd = connection.events.get(), .events = POLLIN, .revents = 0}};
    if (poll(ready, 2, kPollMs) <= 0) continue;
    if (ready[1].revents != 0) {
      auto packet = local::ReceivePacket(connection.events.get(), buffer, MSG_DONTWAIT);
      if (!packet.ok()) break;
      if (!packet->has_value()) continue;
      local::MessageHeader header;
      std::memcpy(&header, buffer.data(), sizeof(header));
      if (static_cast<Kind>(header.kind) == Kind::kPong) ++pongs;
    }
    if (ready[0].revents == 0) continue;
    auto packet = local::ReceivePacket(connection.socket.get(), buffer, MSG_DONTWAIT);
    if (!packet.ok()) break;
    if (!packet->has_value()) continue;
    auto message = assembler.Take((*packet)->bytes, std::move((*packet)->descriptors));
    KVKEEP_CHECK(message.ok());
    if (message->has_value()) serving = Handle(connection, **message);
  }
  while (script.linger && !stopping_) poll(nullptr, 0, kPollMs);
  {
    MutexLock lock(&connection.mu);
    connection.over = true;
    connection.held.clear();
    shutdown(connection.socket.get(), SHUT_RDWR);
    shutdown(connection.events.get(), SHUT_RDWR);
  }
  MutexLock lock(&mu_);
  std::erase_if(open_, [&](const auto& open) { return open.get() == &connection; });
}

void FakeLocalDaemon::Reply(Connection& connection, local::MessageWriter writer,
                            std::span<const int> fds) {
  const std::span<const std::byte> whole = writer.Finish();
  std::vector<std::byte> message(whole.begin(), whole.end());
  Tamper tamper;
  {
    MutexLock lock(&mu_);
    tamper = tamper_;
  }
  const auto header = LoadAt<local::MessageHeader>(message.data());
  if (tamper) {
    tamper(static_cast<Kind>(header.kind & ~local::kReplyBit), &message);
    StoreAt(message.data(), static_cast<uint32_t>(message.size()));
  }
  if (!message.empty()) (void)local::SendMessage(connection.socket.get(), message, fds);
}

void FakeLocalDaemon::Greet(Connection& connection, const local::Message& message) {
  if (script.hang_hello) return;
  if (script.refuse) {
    return Reply(connection,
                 local::StartReply(Kind::kHello, message.id,
                                   absl::PermissionDeniedError("uid 1 is not in allowed_uids")));
  }
  if (script.other_version) {
    return Reply(connection, local::StartReply(Kind::kHello, message.id,
                                               absl::UnimplementedError("Hello: versions")));
  }
  local::BodyReader reader(message.body);
  const auto version =
      std::min<uint16_t>(Read<local::Hello>(reader).max_version, script.version.load());
  local::Welcome welcome{.version = version,
                         .segment_bytes = kSegmentBytes,
                         .segments = kSegments,
                         .progress_words = kProgressBytes / sizeof(local::ProgressWord),
                         .max_keys_per_call = 10'000,
                         .max_leases_per_session = 1000,
                         .max_leased_bytes = kGiB,
                         .max_staging_bytes = script.max_staging,
                         .max_sessions = 100,
                         .max_put_chunks = script.max_put_chunks,
                         .max_registrations = 8,
                         .grace_ms = 1000};
  std::vector<int> segments;
  {
    MutexLock lock(&mu_);
    welcome.incarnation = incarnation_;
    welcome.arena_uuid = arena_->uuid.bytes;
    for (const UniqueFd& file : arena_->files) segments.push_back(file.get());
  }
  poll(nullptr, 0, script.slow_hello_ms);
  local::MessageWriter writer = local::StartReply(Kind::kHello, message.id);
  writer.Append(welcome);
  if (version >= local::kDeadlinesSince) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    writer.Append(local::ClockReading{
        .monotonic_ns = static_cast<uint64_t>(now / std::chrono::nanoseconds(1) +
                                              script.clock_shift_ns.load())});
  }
  if (version >= local::kChunkLimitSince) {
    writer.Append(local::ChunkLimit{.max_payload_bytes = kMaxPayloadBytes});
  }
  const int fds[] = {progress_.get(), connection.peer_events.get()};
  Reply(connection, std::move(writer), fds);
  connection.peer_events.Reset();
  // In two messages, as a real one does when there are many.
  for (size_t first : {size_t{0}, size_t{2}}) {
    const size_t count = first == 0 ? 2 : segments.size() - 2;
    local::MessageWriter part(static_cast<uint16_t>(Kind::kSegments), 0);
    part.Append(local::Segments{.first_segment = static_cast<uint32_t>(first),
                                .count = static_cast<uint32_t>(count)});
    Reply(connection, std::move(part), std::span(segments).subspan(first, count));
  }
}

// Its descriptor for the client; none: there is only `reply`.
UniqueFd FakeLocalDaemon::Staging(Connection& connection, uint64_t asked, uint64_t id,
                                  local::MessageWriter* reply) {
  staging_asked = asked;
  if (connection.staging_memory != nullptr) {
    munmap(connection.staging_memory, connection.staging_bytes);
    connection.staging_memory = nullptr;
  }
  if (asked == local::kNoStaging) {
    reply->Append(local::StagingReply{.bytes = 0});
    return UniqueFd();
  }
  if (script.no_staging) {
    *reply = local::StartReply(Kind::kStaging, id, absl::ResourceExhaustedError("limits.staging"));
    return UniqueFd();
  }
  const uint64_t bytes = RoundUp(asked == 0 ? script.default_staging.load() : asked, kBlockBytes);
  connection.staging = Memfd(bytes);
  connection.staging_memory = MapAll(connection.staging.get(), bytes);
  connection.staging_bytes = bytes;
  reply->Append(local::StagingReply{.bytes = bytes});
  return UniqueFd(fcntl(connection.staging.get(), F_DUPFD_CLOEXEC, 0));
}

bool FakeLocalDaemon::Handle(Connection& connection, local::Message& message) {
  const Kind kind = static_cast<Kind>(message.kind);
  ++requests_[message.kind];
  local::BodyReader reader(message.body);
  local::MessageWriter reply = local::StartReply(kind, message.id);
  UniqueFd descriptor;
  switch (kind) {
    case Kind::kHello:
      Greet(connection, message);
      return true;
    case Kind::kLookup:
    case Kind::kGet:
    case Kind::kTouch:
    case Kind::kPrefetch:
    case Kind::kRelease:
    case Kind::kDelete:
      HandleKeys(connection, kind, message);
      return true;
    case Kind::kPut:
    case Kind::kPutUntil:
    case Kind::kPutInParts:
      HandlePut(connection, kind, message);
      return true;
    case Kind::kOpenNamespace: {
      const auto spec = Read<local::OpenNamespace>(reader);
      std::span<const std::byte> model;
      KVKEEP_CHECK(reader.ReadBytes(spec.model_bytes, &model));
      if (AsText(model) == "refused") {
        reply = local::StartReply(kind, message.id, absl::InvalidArgumentError("model: refused"));
      } else {
        reply.Append(local::NamespaceReply{.digest = DigestOf(std::string(AsText(model))).bytes});
      }
      break;
    }
    case Kind::kServerInfo:
      reply.Append(local::ServerInfoReply{.incarnation = 7, .state = 2, .version_bytes = 4});
      reply.AppendText("fake");
      break;
    case Kind::kStaging:
      descriptor =
          Staging(connection, Read<local::StagingRequest>(reader).bytes, message.id, &reply);
      break;
    case Kind::kRegisterMemory: {
      const uint32_t region = connection.next_region++;
      connection.regions[region] = std::move(message.descriptors.at(0));
      reply.Append(local::RegisterReply{.region = region});
      break;
    }
    case Kind::kUnregisterMemory:
      connection.regions.erase(Read<local::UnregisterMemory>(reader).region);
      break;
    default:
      return HandleOther(connection, message);
  }
  if (script.hold == message.kind) {
    MutexLock lock(&connection.mu);
    connection.held.emplace_back(std::move(reply), std::move(descriptor));
    return true;
  }
  const int fd = descriptor.get();
  Reply(connection, std::move(reply), {&fd, descriptor.valid() ? 1u : 0u});
  return true;
}

bool FakeLocalDaemon::HandleOther(Connection& connection, local::Message& message) {
  Other other;
  {
    MutexLock lock(&mu_);
    other = other_;
  }
  if (!other) return false;
  std::optional<local::MessageWriter> reply = other(static_cast<Kind>(message.kind), message);
  if (reply.has_value() && script.hold == message.kind) {
    MutexLock lock(&connection.mu);
    connection.held.emplace_back(*std::move(reply), UniqueFd());
  } else if (reply.has_value()) {
    Reply(connection, *std::move(reply));
  }
  return true;
}

FakeLocalDaemon::KeysAnswer FakeLocalDaemon::Find(Kind kind, const local::KeysRequest& request,
                                                  const std::vector<uint32_t>& parts,
                                                  const std::vector<ChunkKey>& keys) {
  KeysAnswer answer{.found = {.keys = request.keys, .row_bytes = 1},
                    .g2 = std::vector<uint8_t>(keys.size(), 0)};
  bool leading = true;
  for (uint32_t k = 0; k < keys.size(); ++k) {
    uint64_t here = 0;
    for (uint32_t p = 0; p < parts.size(); ++p) {
      const auto chunk =
          arena_->chunks.find({NamespaceDigest{.bytes = request.ns}, keys[k], PartId(parts[p])});
      if (chunk == arena_->chunks.end()) continue;
      ++here;
      answer.g2[k] |= static_cast<uint8_t>(1 << p);
      if (kind == Kind::kDelete) {
        arena_->chunks.erase(chunk);
        continue;
      }
      const bool leases =
          kind == Kind::kGet && k < script.max_leased_keys && (leading || request.lease_mode == 2);
      if (!leases) continue;
      answer.places.push_back({.chunk = static_cast<uint32_t>(k * parts.size() + p),
                               .payload_bytes = chunk->second.shape.payload_bytes,
                               .tail_bytes = chunk->second.shape.tail_bytes,
                               .progress_word = script.from_g3 ? next_word_++ : 0,
                               .first_run = static_cast<uint32_t>(answer.runs.size()),
                               .runs = static_cast<uint32_t>(chunk->second.runs.size())});
      answer.runs.insert(answer.runs.end(), chunk->second.runs.begin(), chunk->second.runs.end());
    }
    answer.count += here;
    leading = leading && here == parts.size();
    if (leading) ++answer.found.leading_keys;
  }
  if (!answer.places.empty()) {
    answer.found.lease = next_lease_++;
    const uint32_t wanted = request.lease_mode == 2 ? request.keys : answer.found.leading_keys;
    answer.found.leased_keys = std::min(wanted, script.max_leased_keys.load());
  }
  return answer;
}

void FakeLocalDaemon::HandleKeys(Connection& connection, Kind kind, const local::Message& message) {
  local::BodyReader reader(message.body);
  const auto request = Read<local::KeysRequest>(reader);
  std::vector<local::ReleaseEntry> releases;
  std::vector<uint32_t> parts;
  std::vector<ChunkKey> keys;
  KVKEEP_CHECK(reader.ReadAll(request.releases, &releases) &&
               reader.ReadAll(request.parts, &parts) && reader.ReadAll(request.keys, &keys));
  if (parts.empty()) parts = {0};
  const bool asks = request.asks_remote == 1;
  remote_wait_us = asks ? Read<local::RemoteAsk>(reader).wait_us : 0;
  local::MessageWriter reply = local::StartReply(kind, message.id);
  KeysAnswer answer;
  {
    MutexLock lock(&mu_);
    for (const local::ReleaseEntry& entry : releases) released_.push_back(entry.lease);
    answer = Find(kind, request, parts, keys);
  }
  local::LookupReply& found = answer.found;
  const std::vector<uint8_t> none(keys.size(), 0);
  switch (kind) {
    case Kind::kLookup:
    case Kind::kGet:
      found.places = static_cast<uint32_t>(answer.places.size());
      found.runs = static_cast<uint32_t>(answer.runs.size());
      reply.Append(found);
      reply.AppendAll(std::span<const uint8_t>(answer.g2));
      reply.AppendAll(std::span<const uint8_t>(none));
      reply.AppendAll(std::span<const local::Place>(answer.places));
      reply.AppendAll(std::span<const local::ImageRun>(answer.runs));
      reply.Append(local::LookupCost{.promotion_us = 1234});
      if (!asks) break;
      reply.Append(local::RemoteReply{});
      reply.AppendAll(std::span<const uint8_t>(none));
      break;
    case Kind::kPrefetch:
      reply.Append(local::PrefetchReply{.started_chunks = 0, .ready_chunks = answer.count});
      break;
    case Kind::kRelease:
      break;
    default:
      reply.Append(local::CountReply{.chunks = answer.count});
  }
  if (script.hold == static_cast<uint16_t>(kind)) {
    MutexLock lock(&connection.mu);
    connection.held.emplace_back(std::move(reply), UniqueFd());
    return;
  }
  Reply(connection, std::move(reply));
}

void FakeLocalDaemon::Let() {
  script.hold = 0;
  std::vector<std::shared_ptr<Connection>> open;
  {
    MutexLock lock(&mu_);
    open = open_;
  }
  for (const auto& connection : open) {
    std::vector<std::pair<local::MessageWriter, UniqueFd>> held;
    {
      MutexLock lock(&connection->mu);
      held.swap(connection->held);
    }
    for (auto& [writer, fd] : held) Reply(*connection, std::move(writer));
  }
}

void FakeLocalDaemon::Ping() {
  MutexLock lock(&mu_);
  for (const auto& connection : open_) {
    local::MessageWriter ping(static_cast<uint16_t>(Kind::kPing), 0);
    (void)local::SendPacket(connection->events.get(), ping.Finish(), {}, MSG_DONTWAIT);
  }
}

void FakeLocalDaemon::Revoke(const std::string& why) {
  __atomic_store_n(&words_[0], 1u, __ATOMIC_RELEASE);
  MutexLock lock(&mu_);
  for (const auto& connection : open_) {
    local::MessageWriter revoked(static_cast<uint16_t>(Kind::kRevoked), 0);
    revoked.AppendText(why);
    (void)local::SendPacket(connection->events.get(), revoked.Finish(), {}, MSG_DONTWAIT);
  }
}

void FakeLocalDaemon::SetProgress(uint32_t word, local::ProgressWord value) {
  __atomic_store_n(&words_[word], value, __ATOMIC_RELEASE);
  (void)syscall(SYS_futex, &words_[word], FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

// ---------------------------------------------------------------- chunks

NamespaceDigest FakeLocalDaemon::DigestOf(const std::string& model) {
  return *NamespaceDigest::FromBytes(model.substr(0, NamespaceDigest::kSize));
}

std::byte* FakeLocalDaemon::At(const local::ImageRun& run) const {
  return arena_->memory[run.segment] + run.offset;
}

void FakeLocalDaemon::AddChunk(const std::string& model, const ChunkKey& key, uint32_t part,
                               const std::vector<std::byte>& payload, const std::string& metadata) {
  MutexLock lock(&mu_);
  Store({DigestOf(model), key, PartId(part)}, payload, metadata);
}

void FakeLocalDaemon::Store(const ChunkId& id, const std::vector<std::byte>& payload,
                            const std::string& metadata) {
  Chunk chunk;
  chunk.shape = {.payload_bytes = static_cast<uint32_t>(payload.size()),
                 .tail_bytes = static_cast<uint32_t>(metadata.size())};
  const uint64_t bytes = chunk.shape.blocks().value() * kBlockBytes;
  if (arena_->used / kSegmentBytes != (arena_->used + bytes) / kSegmentBytes) {
    arena_->used = RoundUp(arena_->used, kSegmentBytes);
  }
  const local::ImageRun whole{.segment = static_cast<uint32_t>(arena_->used / kSegmentBytes),
                              .blocks = static_cast<uint32_t>(bytes / kBlockBytes),
                              .offset = arena_->used % kSegmentBytes};
  arena_->used += bytes;
  KVKEEP_CHECK(whole.segment < kSegments);
  std::byte* const at = At(whole);
  ImageHeader header{.identity = {.id = id, .shape = chunk.shape},
                     .placement = {.tier = Tier::kG2,
                                   .place = arena_->uuid,
                                   .incarnation = Incarnation(1),
                                   .generation = Generation(1),
                                   .extents = {{BlockNumber(0), chunk.shape.blocks()}}}};
  for (size_t piece = 0; piece < chunk.shape.pieces(); ++piece) {
    header.identity.piece_checksums.push_back(
        Xxh3(std::span(payload).subspan(piece * kPieceBytes, PieceSize(payload.size(), piece))));
  }
  EncodeHeader(header, MacKey{}, HeaderPage(at, kHeaderBytes));
  std::memcpy(at + kHeaderBytes, payload.data(), payload.size());
  if (!metadata.empty()) {
    std::memcpy(at + chunk.shape.tail_offset(), metadata.data(), metadata.size());
  }
  chunk.runs = {whole};
  if (script.split_images && whole.blocks > 2) {
    // The second half moves behind a gap of one block.
    const uint32_t half = whole.blocks / 2;
    local::ImageRun second = whole;
    second.blocks = whole.blocks - half;
    second.offset = whole.offset + (half + 1) * kBlockBytes;
    std::memmove(At(second), at + half * kBlockBytes, second.blocks * kBlockBytes);
    arena_->used += kBlockBytes;
    chunk.runs = {whole, second};
    chunk.runs[0].blocks = half;
  }
  arena_->chunks[id] = std::move(chunk);
}

std::vector<std::byte> FakeLocalDaemon::PayloadOf(const Chunk& chunk) const {
  std::vector<std::byte> image;
  for (const local::ImageRun& run : chunk.runs) {
    image.insert(image.end(), At(run), At(run) + run.blocks * kBlockBytes);
  }
  return {image.begin() + kHeaderBytes, image.begin() + kHeaderBytes + chunk.shape.payload_bytes};
}

void FakeLocalDaemon::Corrupt(const ChunkKey& key, uint32_t part) {
  MutexLock lock(&mu_);
  for (const auto& [id, chunk] : arena_->chunks) {
    if (id.key == key && id.part == PartId(part)) At(chunk.runs[0])[kHeaderBytes] ^= std::byte{1};
  }
}

std::vector<std::byte> FakeLocalDaemon::payload(const ChunkKey& key, uint32_t part) const {
  MutexLock lock(&mu_);
  for (const auto& [id, chunk] : arena_->chunks) {
    if (id.key == key && id.part == PartId(part)) return PayloadOf(chunk);
  }
  return {};
}

std::vector<uint64_t> FakeLocalDaemon::released() const {
  MutexLock lock(&mu_);
  return released_;
}

size_t FakeLocalDaemon::chunks() const {
  MutexLock lock(&mu_);
  return arena_->chunks.size();
}

}  // namespace kvkeep::fakes
