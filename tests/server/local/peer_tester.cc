#include "tests/server/local/peer_tester.h"

#include <absl/strings/str_cat.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <catch2/catch.hpp>

namespace kvkeep {

using local::Kind;

void FakeSink::Send(std::span<const std::byte> message, std::vector<UniqueFd> descriptors) {
  sent.push_back(ReadMessage(message, std::move(descriptors)));
}

absl::StatusOr<UniqueFd> FakeSink::OpenEvents() { return UniqueFd(eventfd(0, EFD_CLOEXEC)); }

void FakeSink::SendEvent(std::span<const std::byte> message) {
  events.push_back(ReadMessage(message, {}));
}

WorldOptions PeerWorld() {
  WorldOptions options;
  options.g2_blocks = 4096;  // 16 MiB
  options.g2_segment_blocks = 2048;
  options.device_blocks = {16384};
  return options;
}

PeerTester::PeerTester(const WorldOptions& options, const std::function<void(LocalLimits*)>& edit)
    : world(options), gpu((world.Start(), &world.arena()), &world.executor()) {
  context->store = &world.store();
  context->arena = &world.arena();
  context->copy_executor = &world.executor();
  context->loop = loop;
  context->counters = &counters;
  context->gpu = &gpu;
  context->clock = &world.clock();
  context->limits.max_gpu_get_bytes = 16 * kMiB;
  context->scratch = std::make_shared<PeerScratch>();
  context->limits.loop_copy_bytes = 0;  // tests decide when copies are made
  context->limits.max_staging_bytes = 16 * kMiB;
  context->limits.max_all_staging_bytes = 32 * kMiB;
  context->version = "1.2.3";
  context->serving_state = [] { return 2u; };
  if (edit) edit(&context->limits);
}

PeerTester::~PeerTester() {
  if (peer != nullptr) peer->End();
  peer.reset();
  gpu.DropKept();
  RunAll();
  if (words_ != nullptr) {
    munmap(const_cast<local::ProgressWord*>(words_), local::kProgressWords * 4);
  }
  if (!staging_.empty()) munmap(staging_.data(), staging_.size());
}

void PeerTester::Connect(LocalPeer::Identity identity) {
  if (peer != nullptr) peer->End();
  sink.sent.clear();
  sink.events.clear();
  peer = std::make_shared<LocalPeer>(context, std::move(identity), &sink);
}

void PeerTester::Open(LocalPeer::Identity identity, uint16_t version) {
  Connect(std::move(identity));
  SentMessage welcome = Ask(Kind::kHello, HelloBody("test", version));
  REQUIRE(welcome.status.ok());
  REQUIRE(welcome.descriptors.size() == 2);
  words_fd_ = std::move(welcome.descriptors[0]);
  void* const mapped = mmap(nullptr, local::kProgressWords * sizeof(local::ProgressWord), PROT_READ,
                            MAP_SHARED, words_fd_.get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  if (words_ != nullptr) {
    munmap(const_cast<local::ProgressWord*>(words_), local::kProgressWords * 4);
  }
  words_ = static_cast<const local::ProgressWord*>(mapped);
  const SentMessage reply = Ask(Kind::kOpenNamespace, NamespaceBody());
  REQUIRE(reply.status.ok());
  ns.bytes = reply.As<local::NamespaceReply>().digest;
}

uint64_t PeerTester::Tell(Kind kind, std::span<const std::byte> body,
                          std::vector<UniqueFd> descriptors) {
  const uint64_t id = next_id_++;
  peer->OnMessage({.kind = static_cast<uint16_t>(kind),
                   .id = id,
                   .body = body,
                   .descriptors = std::move(descriptors)});
  return id;
}

bool PeerTester::HasReply(uint64_t id) const {
  return std::any_of(sink.sent.begin(), sink.sent.end(), [id](const SentMessage& message) {
    return message.id == id && (message.kind & local::kReplyBit) != 0;
  });
}

SentMessage PeerTester::TakeReply(uint64_t id) {
  for (auto it = sink.sent.begin(); it != sink.sent.end(); ++it) {
    if (it->id != id || (it->kind & local::kReplyBit) == 0) continue;
    SentMessage reply = std::move(*it);
    sink.sent.erase(it);
    return reply;
  }
  FAIL("no reply to request " << id);
  return {};
}

SentMessage PeerTester::Ask(Kind kind, std::span<const std::byte> body,
                            std::vector<UniqueFd> descriptors) {
  const uint64_t id = Tell(kind, body, std::move(descriptors));
  RunAll();
  return TakeReply(id);
}

void PeerTester::RunAll() {
  do {
    world.RunAll();
    loop->RunAll();
  } while (!world.executor().idle());
}

void PeerTester::Settle() {
  world.Settle();
  RunAll();
}

std::span<std::byte> PeerTester::Stage(uint64_t bytes) {
  const SentMessage reply = AskFor(Kind::kStaging, local::StagingRequest{.bytes = bytes});
  INFO(reply.status);
  REQUIRE(reply.status.ok());
  REQUIRE(reply.descriptors.size() == 1);
  if (!staging_.empty()) munmap(staging_.data(), staging_.size());
  const uint64_t size = reply.As<local::StagingReply>().bytes;
  void* const mapped =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, reply.descriptors[0].get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  staging_ = {static_cast<std::byte*>(mapped), size};
  return staging_;
}

std::string PeerTester::PutPayload(uint64_t name, std::span<const std::byte> payload,
                                   const std::string& tail) {
  if (staging_.size() < payload.size()) Stage(payload.size());
  std::copy(payload.begin(), payload.end(), staging_.begin());
  return ReadAnswers(
      Ask(Kind::kPut,
          PutBody({{.name = name, .bytes = static_cast<uint32_t>(payload.size()), .tail = tail}})));
}

TestFound PeerTester::Get(const std::vector<uint64_t>& names, uint64_t request_id) {
  const uint64_t id = Tell(Kind::kGet, KeysBody(names, LeaseMode::kAllPresent, {}, request_id));
  return ReadFound(TakeReply(id));
}

void PeerTester::Release(uint64_t lease, uint32_t keep_keys) {
  const auto body =
      KeysBody({}, LeaseMode::kNone, {{.lease = lease, .keep_keys = keep_keys}}, 0, {});
  REQUIRE(TakeReply(Tell(Kind::kRelease, body)).status.ok());
}

std::vector<std::byte> PeerTester::Image(const TestPlace& place) const {
  std::vector<std::byte> image;
  for (const local::ImageRun& run : place.runs) {
    const auto memory = context->arena->SegmentMemory(run.segment)
                            .subspan(run.offset, uint64_t{run.blocks} * kBlockBytes);
    image.insert(image.end(), memory.begin(), memory.end());
  }
  return image;
}

std::vector<std::byte> PeerTester::Payload(const TestPlace& place) const {
  const std::vector<std::byte> image = Image(place);
  const auto begin = image.begin() + kHeaderBytes;
  return {begin, begin + place.place.payload_bytes};
}

std::string PeerTester::Tail(const TestPlace& place) const {
  const std::vector<std::byte> image = Image(place);
  const ImageShape shape{place.place.payload_bytes, place.place.tail_bytes};
  return std::string(reinterpret_cast<const char*>(image.data()) + shape.tail_offset(),
                     shape.tail_bytes);
}

ChunkKey PeerTester::KeyInHeader(const TestPlace& place) const {
  constexpr size_t kKeyOffset = 32;  // tiers/base/image.h
  ChunkKey key;
  std::memcpy(key.bytes.data(), Image(place).data() + kKeyOffset, key.bytes.size());
  return key;
}

local::ProgressWord PeerTester::Word(uint32_t word) const {
  REQUIRE(word < local::kProgressWords);
  return __atomic_load_n(&words_[word], __ATOMIC_ACQUIRE);
}

void PeerTester::FloodG2() {
  const uint32_t bytes = 256 * kKiB;
  if (staging_.size() < bytes) Stage(bytes);
  const uint64_t puts = context->arena->capacity_bytes() / bytes + 1;
  for (uint64_t i = 0; i < puts; ++i) {
    const SentMessage reply = Ask(
        Kind::kPut, PutBody({{.name = next_flood_++, .bytes = bytes, .flags = local::kPutNoG3}}));
    REQUIRE(ReadAnswers(reply) == "stored");
  }
}

}  // namespace kvkeep
