#include "tests/server/local/socket_client.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <thread>

namespace kvkeep {

using local::Kind;

bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for other threads or processes
  }
  return condition();
}

EndpointTester::EndpointTester(const std::function<void(LocalEndpoint::Options*)>& edit) {
  options.listeners.push_back({.socket = {.path = path(), .mode = 0600}});
  options.version = "1.2.3";
  options.limits.max_all_staging_bytes = 64 * kMiB;
  if (edit) edit(&options);
}

EndpointTester::~EndpointTester() {
  endpoint.reset();
  CHECK(Eventually([this] { return counters.puts_copying == 0 && counters.staging_bytes == 0; }));
  store.reset();
}

void EndpointTester::Start() {
  copy_pool = std::make_unique<ThreadPool>("copy", 2);
  auto made = CreateArena({.capacity_bytes = 64 * kMiB,
                           .segment_bytes = 8 * kMiB,
                           .backing = ArenaBacking::kMemfd,
                           .prefault = false},
                          copy_pool.get());
  REQUIRE(made.ok());
  arena = *std::move(made);
  auto opened = Store::Create({.max_chunks = 10'000}, {.clock = RealClock(),
                                                       .random = RealRandom(),
                                                       .arena = arena.get(),
                                                       .copy_executor = copy_pool.get()});
  REQUIRE(opened.ok());
  store = *std::move(opened);
  auto started = LocalEndpoint::Start(options, {.store = store.get(),
                                                .arena = arena.get(),
                                                .copy_executor = copy_pool.get(),
                                                .counters = &counters,
                                                .clock = clock,
                                                .sockets = sockets,
                                                .serving_state = [] { return 2u; }});
  INFO(started.status());
  REQUIRE(started.ok());
  endpoint = *std::move(started);
}

SocketClient::SocketClient(const std::string& path) {
  socket = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  REQUIRE(Eventually([&] {
    return connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }));
}

SocketClient::~SocketClient() {
  for (const auto segment : segments_) {
    munmap(const_cast<std::byte*>(segment.data()), segment.size());
  }
  if (!words_.empty()) munmap(const_cast<std::byte*>(words_.data()), words_.size());
  if (!staging_.empty()) munmap(staging_.data(), staging_.size());
}

uint64_t SocketClient::Send(Kind kind, std::span<const std::byte> body, std::span<const int> fds) {
  local::MessageWriter writer(static_cast<uint16_t>(kind), next_id_);
  writer.AppendAll(body);
  local::SendMessage(socket.get(), writer.Finish(), fds).IgnoreError();
  return next_id_++;
}

SentMessage SocketClient::Receive() {
  local::MessageAssembler assembler;
  while (true) {
    auto packet = local::ReceivePacket(socket.get(), buffer_, 0);
    if (!packet.ok()) {
      SentMessage closed;
      closed.status = packet.status();
      return closed;
    }
    auto message = assembler.Take((**packet).bytes, std::move((**packet).descriptors));
    REQUIRE(message.ok());
    if (!message->has_value()) continue;
    if ((**message).kind == static_cast<uint16_t>(Kind::kPutCopied)) continue;  // the answer comes
    local::MessageWriter whole((**message).kind, (**message).id);
    whole.AppendAll((**message).body);
    return ReadMessage(whole.Finish(), std::move((**message).descriptors));
  }
}

SentMessage SocketClient::Ask(Kind kind, std::span<const std::byte> body,
                              std::span<const int> fds) {
  const uint64_t id = Send(kind, body, fds);
  SentMessage reply = Receive();
  if (reply.kind != 0) CHECK((reply.id == id || reply.id == 0));
  return reply;
}

void SocketClient::Open() {
  SentMessage welcome = Ask(Kind::kHello, HelloBody());
  INFO(welcome.status);
  REQUIRE(welcome.status.ok());
  REQUIRE(welcome.descriptors.size() == 2);
  const auto map = [](int fd) -> std::span<const std::byte> {
    struct stat info {};
    REQUIRE(fstat(fd, &info) == 0);
    const auto bytes = static_cast<size_t>(info.st_size);
    void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    REQUIRE(mapped != MAP_FAILED);
    return {static_cast<const std::byte*>(mapped), bytes};
  };
  words_ = map(welcome.descriptors[0].get());
  events = std::move(welcome.descriptors[1]);
  const auto limits = welcome.As<local::Welcome>();
  while (segments_.size() < limits.segments) {
    const SentMessage message = Receive();
    REQUIRE(message.kind == static_cast<uint16_t>(Kind::kSegments));
    for (const UniqueFd& fd : message.descriptors) segments_.push_back(map(fd.get()));
  }
  const SentMessage opened = Ask(Kind::kOpenNamespace, NamespaceBody());
  REQUIRE(opened.status.ok());
  ns.bytes = opened.As<local::NamespaceReply>().digest;
}

uint16_t SocketClient::NextEvent(std::chrono::milliseconds timeout) {
  pollfd ready{.fd = events.get(), .events = POLLIN, .revents = 0};
  if (poll(&ready, 1, static_cast<int>(timeout.count())) <= 0) return 0;
  const auto packet = local::ReceivePacket(events.get(), buffer_, MSG_DONTWAIT);
  if (!packet.ok() || !packet->has_value()) return 0;
  return ReadMessage((**packet).bytes, {}).kind;
}

void SocketClient::Pong() {
  local::MessageWriter pong(static_cast<uint16_t>(Kind::kPong), 0);
  REQUIRE(local::SendMessage(events.get(), pong.Finish()).ok());
}

void SocketClient::Stage(std::span<const std::byte> bytes) {
  if (staging_.size() < bytes.size()) {
    const local::StagingRequest request{.bytes = bytes.size()};
    const SentMessage reply = Ask(Kind::kStaging, std::as_bytes(std::span(&request, 1)));
    REQUIRE(reply.status.ok());
    if (!staging_.empty()) munmap(staging_.data(), staging_.size());
    const uint64_t size = reply.As<local::StagingReply>().bytes;
    void* const mapped =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, reply.descriptors.at(0).get(), 0);
    REQUIRE(mapped != MAP_FAILED);
    staging_ = {static_cast<std::byte*>(mapped), size};
  }
  std::copy(bytes.begin(), bytes.end(), staging_.begin());
}

std::string SocketClient::Put(uint64_t name, std::span<const std::byte> payload) {
  Stage(payload);
  const std::vector<TestChunk> chunks = {
      {.name = name, .bytes = static_cast<uint32_t>(payload.size())}};
  return ReadAnswers(Ask(Kind::kPut, PutBody(ns, chunks)));
}

TestFound SocketClient::Get(const std::vector<uint64_t>& names) {
  return ReadFound(Ask(Kind::kGet, KeysBody(ns, names, LeaseMode::kAllPresent)));
}

std::vector<std::byte> SocketClient::Payload(const TestPlace& place) const {
  std::vector<std::byte> image;
  for (const local::ImageRun& run : place.runs) {
    const auto bytes =
        segments_.at(run.segment).subspan(run.offset, uint64_t{run.blocks} * kBlockBytes);
    image.insert(image.end(), bytes.begin(), bytes.end());
  }
  return {image.begin() + kHeaderBytes, image.begin() + kHeaderBytes + place.place.payload_bytes};
}

bool SocketClient::revoked() const {
  return __atomic_load_n(reinterpret_cast<const local::ProgressWord*>(words_.data()),
                         __ATOMIC_ACQUIRE) != 0;
}

}  // namespace kvkeep
