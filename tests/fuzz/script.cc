#include "tests/fuzz/script.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "server/local/peer.h"
#include "server/sockets/descriptor_closer.h"
#include "tests/fuzz/input.h"
#include "tests/server/local/bodies.h"
#include "tests/server/local/fake_gpu.h"
#include "tests/sim/world.h"
#include "tiers/base/checksum.h"
#include "tiers/base/utf8.h"

namespace kvkeep {
namespace {

using local::Kind;

constexpr size_t kMemfdBytes = 64 * kKiB;
constexpr size_t kRepeatUnit = 32;  // a key
constexpr size_t kMaxSteps = 400;
constexpr size_t kSmallLease = 16;

// Waits until other threads have closed the descriptors that a peer passed.
int LowestFreeDescriptor() {
  while (DescriptorCloser::OfProcess().closing() > 0) std::this_thread::yield();
  const int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
  if (fd >= 0) close(fd);
  return fd;
}

constexpr auto kTurn = std::chrono::seconds(1);  // everything that is due then is due at once

WorldOptions SmallWorld() {
  WorldOptions options;
  options.g2_blocks = 64;
  options.g2_segment_blocks = 32;
  options.device_blocks = {128};
  options.store.max_chunks = 64;  // the table is made for each input
  return options;
}

class Runner final : public PeerSink {
 public:
  Runner() : world_(SmallWorld()), gpu_((world_.Start(), &world_.arena()), &world_.executor()) {
    gpu_.device().Allocate(std::vector<std::byte>(kMemfdBytes, std::byte{0x6b}));
    context_->store = &world_.store();
    context_->arena = &world_.arena();
    context_->copy_executor = &world_.executor();
    context_->loop = loop_;
    context_->counters = &counters_;
    context_->gpu = &gpu_;
    context_->clock = &world_.clock();
    context_->limits.max_gpu_registrations = 3;
    context_->limits.max_gpu_bytes = 4 * kMemfdBytes;
    context_->limits.max_gpu_get_bytes = 4 * kMemfdBytes;
    context_->scratch = std::make_shared<PeerScratch>();
    context_->limits.loop_copy_bytes = 4 * kBlockBytes;  // some
    context_->limits.max_staging_bytes = kMemfdBytes;
    context_->limits.max_all_staging_bytes = 2 * kMemfdBytes;
    context_->limits.default_staging_bytes = kMemfdBytes;
    context_->limits.first_staging_bytes = kMemfdBytes;
    context_->limits.max_puts_in_flight = 4;
    context_->limits.max_registrations = 3;
    context_->limits.max_put_runs = 64;
    context_->limits.max_put_chunks = 32;
    context_->serving_state = [] { return 2u; };
  }

  ScriptResult Run(InputReader script) {
    Connect(true);
    for (size_t step = 0; step < kMaxSteps && !script.done(); ++step) Step(script);
    End();
    return result_;
  }

  void Send(std::span<const std::byte> message, std::vector<UniqueFd> descriptors) override {
    local::MessageHeader header;
    KVKEEP_CHECK(message.size() >= sizeof(header));
    std::memcpy(&header, message.data(), sizeof(header));
    KVKEEP_CHECK(header.bytes == message.size());
    KVKEEP_CHECK(message.size() <= local::kMaxMessageBytes);
    if ((header.kind & local::kReplyBit) == 0) return;
    ++result_.replies;
    ++replies_;
    local::BodyReader body(message.subspan(sizeof(header)));
    if (!local::ReadReplyStatus(&body).ok()) {
      ++result_.errors;
      return;
    }
    OnReply(static_cast<Kind>(header.kind & ~local::kReplyBit), header.id, body,
            std::move(descriptors));
  }
  absl::StatusOr<UniqueFd> OpenEvents() override { return UniqueFd(eventfd(0, EFD_CLOEXEC)); }
  void SendEvent(std::span<const std::byte> message) override {
    KVKEEP_CHECK(message.size() >= sizeof(local::MessageHeader));
  }
  void Close(const absl::Status&) override { closed_ = true; }

 private:
  void Connect(bool hello) {
    if (peer_ != nullptr) peer_->End();
    peer_ = std::make_shared<LocalPeer>(context_, LocalPeer::Identity{.peer = "fuzz"}, this);
    assembler_.emplace();
    closed_ = false;
    requests_ = replies_ = 0;
    gets_.clear();
    staging_.Reset();
    if (!hello) return;
    Message(Kind::kHello, HelloBody(), {}, 0);
    Message(Kind::kOpenNamespace, NamespaceBody(), {}, 0);
  }

  void Step(InputReader& script) {
    switch (static_cast<ScriptOp>(script.U8() % kScriptOps)) {
      case ScriptOp::kMessage: {
        const auto kind = static_cast<Kind>(script.U8());
        std::vector<UniqueFd> descriptors = MakeDescriptors(script.U8());
        const uint16_t cut = script.U16();
        const size_t repeats = script.U8() * size_t{16};
        std::vector<std::byte> body = script.Bytes(script.U16());
        Repeat(body, repeats);
        Complete(kind, body);
        return Message(kind, body, std::move(descriptors), cut);
      }
      case ScriptOp::kPacket: {
        std::vector<UniqueFd> descriptors = MakeDescriptors(script.U8());
        return Packet(script.Bytes(script.U16()), std::move(descriptors));
      }
      case ScriptOp::kRun:
        return RunTasks(script.U8());
      case ScriptOp::kMemory:
        return Meddle(script.U8());
      case ScriptOp::kTime:
        script.U8();
        world_.Settle(kTurn);
        loop_->RunAll();
        return;
      case ScriptOp::kConnect:
        switch (script.U8() % 4) {
          case 0:
            return Connect(true);
          case 1:
            return Connect(false);
          case 2:
            return peer_->Revoke("the script says so");
          default:
            return peer_->NotifyDraining();
        }
        return;
      case ScriptOp::kGpu:
        return OfGpu(script.U8());
      case ScriptOp::kParts: {
        const uint8_t how = script.U8();
        return OfParts(how, script.U16());
      }
    }
  }

  static void Repeat(std::vector<std::byte>& body, size_t times) {
    if (body.size() < kRepeatUnit) return;
    const std::vector<std::byte> unit(body.end() - kRepeatUnit, body.end());
    for (size_t i = 0; i < times; ++i) body.insert(body.end(), unit.begin(), unit.end());
  }

  // Completes namespace and leases, as the header says.
  void Complete(Kind kind, std::vector<std::byte>& body) const {
    const bool of_puts = kind == Kind::kPut || kind == Kind::kPutInParts ||
                         kind == Kind::kPutFromGpu || kind == Kind::kGetToGpu ||
                         kind == Kind::kPutUntil || kind == Kind::kPutFromGpuUntil;
    if ((kind < Kind::kLookup || kind > Kind::kDelete) && !of_puts) return;
    if (body.size() < sizeof(local::PutRequest)) return;
    const bool zero = std::all_of(body.begin(), body.begin() + ns_.size(),
                                  [](std::byte b) { return b == std::byte{0}; });
    if (zero) std::memcpy(body.data(), ns_.data(), ns_.size());
    local::KeysRequest request;
    if (of_puts || body.size() < sizeof(request)) return;
    std::memcpy(&request, body.data(), sizeof(request));
    for (size_t i = 0; i < request.releases; ++i) {
      const size_t at = sizeof(request) + i * sizeof(local::ReleaseEntry);
      local::ReleaseEntry entry;
      if (at + sizeof(entry) > body.size()) return;
      std::memcpy(&entry, body.data() + at, sizeof(entry));
      if (entry.lease >= kSmallLease || leases_.empty()) continue;
      entry.lease = leases_[entry.lease % leases_.size()];
      std::memcpy(body.data() + at, &entry, sizeof(entry));
    }
  }

  std::vector<UniqueFd> MakeDescriptors(uint8_t how) {
    const auto kind = static_cast<ScriptFd>((how & 7) % kScriptFds);
    std::vector<UniqueFd> descriptors;
    if (kind == ScriptFd::kNone) return descriptors;
    for (int i = 0; i < how >> 3; ++i) descriptors.push_back(MakeDescriptor(kind));
    result_.descriptors += descriptors.size();
    return descriptors;
  }

  UniqueFd MakeDescriptor(ScriptFd kind) {
    int pair[2] = {-1, -1};
    switch (kind) {
      case ScriptFd::kPipe:
        KVKEEP_CHECK(pipe2(pair, O_CLOEXEC) == 0);
        break;
      case ScriptFd::kSocket:
        KVKEEP_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
        break;
      case ScriptFd::kNull:
        return UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));
      default: {
        UniqueFd fd(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        const size_t bytes = kind == ScriptFd::kShortMemfd ? 100 : kMemfdBytes;
        KVKEEP_CHECK(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
        if (kind == ScriptFd::kSealedMemfd) {
          KVKEEP_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE) == 0);
        } else {
          memory_ = UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
        }
        return fd;
      }
    }
    close(pair[1]);  // the other end is gone
    return UniqueFd(pair[0]);
  }

  void Message(Kind kind, std::span<const std::byte> body, std::vector<UniqueFd> descriptors,
               uint16_t cut) {
    const uint64_t id = next_id_++;
    if (kind == Kind::kGet) gets_[id] = {body.begin(), body.end()};
    if (gets_.size() > 64) gets_.erase(gets_.begin());
    if (local::PutInParts put; kind == Kind::kPutInParts && body.size() >= sizeof(put)) {
      std::memcpy(&put, body.data(), sizeof(put));
      word_at_ = put.filled_offset;
    }
    local::MessageWriter writer(static_cast<uint16_t>(kind), id);
    writer.AppendBytes(body.data(), std::min(body.size(), local::kMaxMessageBytes - 64));
    std::span<const std::byte> left = writer.Finish();
    const size_t packet = cut == 0 ? local::kMaxPacketBytes : cut;
    while (!left.empty()) {
      const size_t take = std::min(packet, left.size());
      Packet(left.first(take), std::exchange(descriptors, {}));
      left = left.subspan(take);
    }
  }

  // As a connection does with what it receives.
  void Packet(std::span<const std::byte> packet, std::vector<UniqueFd> descriptors) {
    if (closed_ || packet.empty()) return;
    if (!peer_->ready()) RunAll();
    if (!peer_->ready()) PassGrace();
    absl::StatusOr<std::optional<local::Message>> message =
        assembler_->Take(packet, std::move(descriptors));
    if (!message.ok()) {
      ++result_.broken;
      closed_ = true;
      peer_->End();
      return;
    }
    if (!message->has_value()) return;
    ++result_.requests;
    ++requests_;
    peer_->OnMessage(**std::move(message));
    if (closed_) peer_->End();
  }

  void OnReply(Kind kind, uint64_t id, local::BodyReader body, std::vector<UniqueFd> descriptors) {
    if (kind == Kind::kOpenNamespace) {
      local::NamespaceReply reply;
      KVKEEP_CHECK(body.Read(&reply));
      ns_ = reply.digest;
      CheckShown();
    } else if (kind == Kind::kHello) {
      CheckShown();
    } else if (kind == Kind::kStaging) {
      KVKEEP_CHECK(descriptors.size() == 1);
      staging_ = std::move(descriptors[0]);
    } else if (kind == Kind::kPut || kind == Kind::kPutFromGpu || kind == Kind::kPutUntil ||
               kind == Kind::kPutFromGpuUntil) {
      CheckPut(body);
    } else if (kind == Kind::kPutInParts) {
      const uint64_t before = result_.stored;
      KVKEEP_CHECK(CheckPut(body) == 1);
      result_.in_parts += result_.stored - before;
    } else if (kind == Kind::kGetToGpu) {
      CheckGpuGet(body);
    } else if (kind == Kind::kLookup || kind == Kind::kGet) {
      CheckFound(id, body);
    }
  }

  // Checks that the text shown of clients is valid UTF-8, as protobuf's strings must be.
  void CheckShown() {
    for (const SessionSnapshot& session : world_.store().snapshot().sessions) {
      KVKEEP_CHECK(IsUtf8(session.info.client_name));
    }
    for (const NamespaceUse& use : world_.store().Namespaces()) KVKEEP_CHECK(IsUtf8(use.model));
  }

  size_t CheckPut(local::BodyReader& body) {
    local::PutReply head;
    std::vector<local::PutAnswer> answers;
    KVKEEP_CHECK(body.Read(&head) && body.ReadAll(head.chunks, &answers));
    for (const local::PutAnswer& answer : answers) {
      KVKEEP_CHECK(answer.status >= 1 && answer.status <= 3);
      result_.stored += answer.status == 1;
    }
    return answers.size();
  }

  // Checks that the reply has status, message and tail of every chunk, and nothing more.
  void CheckGpuGet(local::BodyReader& body) {
    local::GpuGetReply head;
    std::vector<local::GpuGetAnswer> answers;
    KVKEEP_CHECK(body.Read(&head) && body.ReadAll(head.chunks, &answers));
    uint64_t texts = 0;
    for (const local::GpuGetAnswer& answer : answers) {
      KVKEEP_CHECK(answer.status >= 1 && answer.status <= 3);
      texts += uint64_t{answer.message_bytes} + answer.tail_bytes;
      result_.copied += answer.status == local::kGpuGetCopied;
    }
    KVKEEP_CHECK(texts == body.rest().size());
  }

  void OfGpu(uint8_t how) {
    FakeGpuDevice& device = gpu_.device();
    if (how % 4 < 2) return device.Hold(how % 4 == 0);
    if (device.held() == 0) return;
    device.EndOne(how % 4 == 2 ? CopyEnd{} : CopyEnd{.status = absl::UnavailableError("broken")});
  }

  void OfParts(uint8_t how, uint16_t value) {
    uint64_t word = value;
    const bool has_word = staging_.get() >= 0 && word_at_ <= kMemfdBytes - sizeof(word);
    const auto at = static_cast<off_t>(word_at_);
    if (how % 4 == kPartsAbove) word = UINT64_MAX - value;
    if (has_word && how % 4 == kPartsLess) {
      uint64_t before = 0;
      if (pread(staging_.get(), &before, sizeof(before), at) != sizeof(before)) return;
      word = before - value;
    }
    if (has_word && how % 4 != 0) {  // fails if it is behind the end: the file does not grow
      KVKEEP_CHECK(pwrite(staging_.get(), &word, sizeof(word), at) >= -1);
    }
    if (closed_) return;
    switch (how / 4 % 4 * 4) {
      case kPartsTold:
        if (peer_->OnPutFilled()) return;
        ++result_.broken;  // as of a version before it
        closed_ = true;
        return peer_->End();
      case kPartsTick:
        tick_ += std::chrono::milliseconds(1);
        return peer_->OnTick(tick_);
      case kPartsGrace:
        return PassGrace();
      default:
        return;
    }
  }

  // Ends the puts in parts that are not filled. Checks the state between the ticks.
  void PassGrace() {
    for (int i = 0; i < 4; ++i) {
      tick_ += context_->limits.grace;
      peer_->OnTick(tick_);
      RunAll();
    }
  }

  void CheckFound(uint64_t id, local::BodyReader& body) {
    local::LookupReply head;
    std::span<const std::byte> bits;
    std::vector<local::Place> places;
    std::vector<local::ImageRun> runs;
    KVKEEP_CHECK(body.Read(&head));
    KVKEEP_CHECK(body.ReadBytes(uint64_t{2} * head.keys * head.row_bytes, &bits));
    KVKEEP_CHECK(body.ReadAll(head.places, &places) && body.ReadAll(head.runs, &runs));
    local::LookupCost cost;  // from version 3 on
    KVKEEP_CHECK(body.done() || (body.Read(&cost) && body.done()));
    if (head.lease != 0 && leases_.size() < kSmallLease) leases_.push_back(head.lease);
    for (const local::Place& place : places) {
      KVKEEP_CHECK(uint64_t{place.first_run} + place.runs <= runs.size());
      const auto image = Image(std::span(runs).subspan(place.first_run, place.runs));
      if (place.progress_word == local::kNoProgressWord) CheckImage(id, place, image);
    }
  }

  std::vector<std::byte> Image(std::span<const local::ImageRun> runs) {
    std::vector<std::byte> image;
    for (const local::ImageRun& run : runs) {
      KVKEEP_CHECK(run.segment < world_.arena().segment_count());
      const auto segment = world_.arena().SegmentMemory(run.segment);
      const uint64_t bytes = uint64_t{run.blocks} * kBlockBytes;
      KVKEEP_CHECK(run.offset <= segment.size() && bytes <= segment.size() - run.offset);
      const auto part = segment.subspan(run.offset, bytes);
      image.insert(image.end(), part.begin(), part.end());
    }
    return image;
  }

  // Checks that the image is one of a requested key, and its payload what was checksummed.
  void CheckImage(uint64_t id, const local::Place& place, std::span<const std::byte> image) {
    constexpr size_t kKeyAt = 32, kPayloadBytesAt = 68, kPieceSumsAt = 128;
    KVKEEP_CHECK(image.size() >= kHeaderBytes + place.payload_bytes);
    uint32_t payload_bytes = 0;
    std::memcpy(&payload_bytes, image.data() + kPayloadBytesAt, sizeof(payload_bytes));
    KVKEEP_CHECK(payload_bytes == place.payload_bytes);
    const auto payload = image.subspan(kHeaderBytes, payload_bytes);
    for (size_t piece = 0; piece < PieceCount(payload_bytes); ++piece) {
      uint64_t sum = 0;
      std::memcpy(&sum, image.data() + kPieceSumsAt + piece * sizeof(sum), sizeof(sum));
      const size_t from = piece * kPieceBytes;
      KVKEEP_CHECK(Xxh3(payload.subspan(from, PieceSize(payload_bytes, piece))) == sum);
    }
    const auto get = gets_.find(id);
    if (get == gets_.end()) return;
    const auto key = image.subspan(kKeyAt, sizeof(ChunkKey));
    KVKEEP_CHECK(std::search(get->second.begin(), get->second.end(), key.begin(), key.end()) !=
                 get->second.end());
    ++result_.checked;
  }

  void Meddle(uint8_t how) {
    const int fd = how % 2 == 0 ? memory_.get() : staging_.get();
    if (fd < 0) return;
    if (how / 2 % 2 == 0) {
      // Staging is sealed against it, so it fails.
      const int cut = ftruncate(fd, how);
      KVKEEP_CHECK(how % 2 == 0 || cut != 0);
      return;
    }
    const std::vector<uint8_t> bytes(how * size_t{16}, how);
    KVKEEP_CHECK(pwrite(fd, bytes.data(), bytes.size(), 0) >= -1);
  }

  void RunTasks(uint8_t count) {
    if (count == 0) return RunAll();
    for (int i = 0; i < count && world_.RunOneAtRandom(); ++i) {
    }
    if (count % 2 == 0) loop_->RunAll();
  }

  void RunAll() {
    do {
      world_.RunAll();
      loop_->RunAll();
    } while (!world_.executor().idle());
  }

  void End() {
    gpu_.device().Hold(false);
    while (gpu_.device().held() > 0) gpu_.device().EndOne({});
    RunAll();
    PassGrace();
    world_.Settle(kTurn);
    RunAll();
    result_.stalled = counters_.stalled_puts;
    if (!closed_) KVKEEP_CHECK(replies_ == requests_);
    world_.store().CheckInvariants();
    peer_->End();
    peer_.reset();
    RunAll();
    world_.store().CheckInvariants();
    KVKEEP_CHECK(counters_.progress_words == 0 && counters_.puts_copying == 0);
    KVKEEP_CHECK(counters_.staging_bytes == 0 && counters_.registered_bytes == 0);
    KVKEEP_CHECK(counters_.gpu_registrations == 0 && gpu_.device().stats().registrations == 0);
    KVKEEP_CHECK(counters_.gpu_gets_copying == 0 && counters_.gpu_pinned_bytes == 0);
    const StoreSnapshot snapshot = world_.store().snapshot();
    KVKEEP_CHECK(snapshot.g2.leased_bytes == 0 && snapshot.g2.reserved_bytes == 0);
    KVKEEP_CHECK(snapshot.sessions.empty());
  }

  World world_;
  FakeGpuPath gpu_;
  LocalCounters counters_;
  const std::shared_ptr<ManualExecutor> loop_ = std::make_shared<ManualExecutor>();
  const std::shared_ptr<LocalContext> context_ = std::make_shared<LocalContext>();
  std::shared_ptr<LocalPeer> peer_;
  std::optional<local::MessageAssembler> assembler_;
  bool closed_ = false;
  MonotonicTime tick_{0};
  uint64_t word_at_ = 0;  // of the last put in parts
  uint64_t next_id_ = 1;
  uint64_t requests_ = 0, replies_ = 0;  // of this connection
  std::array<uint8_t, 16> ns_{};
  std::vector<uint64_t> leases_;
  std::map<uint64_t, std::vector<std::byte>> gets_;  // bodies of the last ones
  UniqueFd memory_, staging_;
  ScriptResult result_;
};

}  // namespace

ScriptResult RunScript(std::span<const uint8_t> script) {
  const int free_before = LowestFreeDescriptor();
  ScriptResult result;
  {
    Runner runner;
    result = runner.Run(InputReader(script));
  }
  KVKEEP_CHECK(LowestFreeDescriptor() == free_before);
  return result;
}

ScriptWriter& ScriptWriter::Message(Kind kind, std::span<const std::byte> body, uint8_t descriptors,
                                    uint16_t cut, uint8_t repeat) {
  KVKEEP_CHECK(body.size() <= UINT16_MAX);
  for (const size_t byte :
       {size_t{0}, static_cast<size_t>(kind), size_t{descriptors}, size_t{cut} & 255,
        size_t{cut} >> 8, size_t{repeat}, body.size() & 255, body.size() >> 8}) {
    bytes_.push_back(static_cast<uint8_t>(byte));
  }
  for (const std::byte b : body) bytes_.push_back(static_cast<uint8_t>(b));
  return *this;
}

ScriptWriter& ScriptWriter::Packet(std::span<const std::byte> bytes, uint8_t descriptors) {
  KVKEEP_CHECK(bytes.size() <= UINT16_MAX);
  for (const size_t byte :
       {size_t{1}, size_t{descriptors}, bytes.size() & 255, bytes.size() >> 8}) {
    bytes_.push_back(static_cast<uint8_t>(byte));
  }
  for (const std::byte b : bytes) bytes_.push_back(static_cast<uint8_t>(b));
  return *this;
}

ScriptWriter& ScriptWriter::Step(ScriptOp op, uint8_t argument) {
  bytes_.push_back(static_cast<uint8_t>(op));
  bytes_.push_back(argument);
  return *this;
}

ScriptWriter& ScriptWriter::Parts(int how, uint16_t value) {
  Step(ScriptOp::kParts, static_cast<uint8_t>(how));
  bytes_.push_back(static_cast<uint8_t>(value & 255));
  bytes_.push_back(static_cast<uint8_t>(value >> 8));
  return *this;
}

}  // namespace kvkeep
