#include "proto/local/message.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>
#include <type_traits>

namespace kvkeep::local {
namespace {

struct SocketPair {
  SocketPair() {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    ours = UniqueFd(fds[0]);
    theirs = UniqueFd(fds[1]);
  }
  UniqueFd ours, theirs;
};

std::vector<std::byte> Bytes(size_t count, int seed = 1) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256 + seed);
  return bytes;
}

std::vector<std::byte> MessageOf(uint16_t kind, uint64_t id, std::span<const std::byte> body) {
  MessageWriter writer(kind, id);
  writer.AppendAll(body);
  const auto whole = writer.Finish();
  return {whole.begin(), whole.end()};
}

std::vector<std::byte> HeaderOnly(uint32_t bytes) {
  std::vector<std::byte> packet(sizeof(MessageHeader));
  const MessageHeader header{.bytes = bytes, .kind = 1, .reserved = 0, .id = 1};
  std::memcpy(packet.data(), &header, sizeof(header));
  return packet;
}

}  // namespace

TEST_CASE("no struct of the protocol has padding, whose bytes would be anything") {
  const auto packed = []<typename... Structs>() {
    return (std::has_unique_object_representations_v<Structs> && ...);
  };
  STATIC_REQUIRE(packed.operator()<MessageHeader, ReplyHead, Hello, Welcome, Segments,
                                   OpenNamespace, NamespaceReply, ServerInfoReply>());
  STATIC_REQUIRE(packed.operator()<StagingRequest, StagingReply, RegisterMemory, RegisterReply,
                                   UnregisterMemory, KeysRequest, ReleaseEntry, LookupReply>());
  STATIC_REQUIRE(packed.operator()<LookupCost, Place, ImageRun, PutRequest, PutChunk, PutRun,
                                   PutReply, PutAnswer, CountReply, PrefetchReply>());
  STATIC_REQUIRE(
      packed.operator()<RegisterGpuMemory, RegisterGpuReply, UnregisterGpuMemory, GpuMemoryRun,
                        GpuPutRequest, GpuGetRequest, GpuGetChunk, GpuGetReply, GpuGetAnswer>());
}

TEST_CASE("a message of any length up to the limit arrives as it was sent") {
  const size_t body_bytes = GENERATE(
      values<size_t>({0, 1, kMaxPacketBytes - 17, kMaxPacketBytes - 16, kMaxPacketBytes - 15,
                      200'000, kMaxMessageBytes - sizeof(MessageHeader)}));
  SocketPair pair;
  const std::vector<std::byte> body = Bytes(body_bytes);
  const std::vector<std::byte> sent = MessageOf(5, 77, body);
  std::thread sender([&] { SendMessage(pair.ours.get(), sent).IgnoreError(); });
  MessageAssembler assembler;
  std::vector<std::byte> buffer(kMaxPacketBytes);
  bool whole = false;
  while (!whole) {
    auto packet = ReceivePacket(pair.theirs.get(), buffer, 0);
    REQUIRE(packet.ok());
    auto message = assembler.Take((**packet).bytes, std::move((**packet).descriptors));
    REQUIRE(message.ok());
    whole = message->has_value();
    CHECK(assembler.idle() == whole);
    if (!whole) continue;
    CHECK((**message).kind == 5);
    CHECK((**message).id == 77);
    CHECK(std::equal(body.begin(), body.end(), (**message).body.begin(), (**message).body.end()));
  }
  sender.join();
}

TEST_CASE("one assembler takes one message after the other, long and short") {
  MessageAssembler assembler;
  for (int i = 0; i < 3; ++i) {
    const auto long_one = MessageOf(1, 1, Bytes(kMaxPacketBytes, i));
    CHECK_FALSE(assembler.Take(std::span(long_one).first(kMaxPacketBytes), {})->has_value());
    CHECK(assembler.Take(std::span(long_one).subspan(kMaxPacketBytes), {})->has_value());
    const auto short_one = MessageOf(2, 2, Bytes(10, i));
    const auto message = assembler.Take(short_one, {});
    REQUIRE(message->has_value());
    CHECK((**message).kind == 2);
    CHECK((**message).body.size() == 10);
  }
}

TEST_CASE("broken framing is an error") {
  MessageAssembler assembler(1 << 20);
  CHECK(absl::IsInvalidArgument(assembler.Take(Bytes(15), {}).status()));
  CHECK(absl::IsInvalidArgument(assembler.Take(HeaderOnly(15), {}).status()));
  CHECK(absl::IsInvalidArgument(assembler.Take(HeaderOnly((1 << 20) + 1), {}).status()));
  CHECK(absl::IsInvalidArgument(assembler.Take(HeaderOnly(17), {}).status()));
  SECTION("a first packet that is not full") {
    auto start = HeaderOnly(kMaxPacketBytes + 100);
    start.resize(kMaxPacketBytes - 1);
    CHECK(absl::IsInvalidArgument(assembler.Take(start, {}).status()));
  }
  SECTION("a last packet that is too long") {
    auto start = HeaderOnly(kMaxPacketBytes + 100);
    start.resize(kMaxPacketBytes);
    MessageAssembler other;
    REQUIRE(other.Take(start, {}).ok());
    CHECK(absl::IsInvalidArgument(other.Take(Bytes(101), {}).status()));
  }
  SECTION("descriptors behind the first packet") {
    auto start = HeaderOnly(kMaxPacketBytes + 100);
    start.resize(kMaxPacketBytes);
    MessageAssembler other;
    REQUIRE(other.Take(start, {}).ok());
    std::vector<UniqueFd> descriptors;
    descriptors.emplace_back(eventfd(0, EFD_CLOEXEC));
    CHECK(absl::IsInvalidArgument(other.Take(Bytes(100), std::move(descriptors)).status()));
  }
}

TEST_CASE("descriptors come with their message, close-on-exec, as many as fit") {
  const size_t count = GENERATE(values<size_t>({1, 2, kMaxDescriptorsPerPacket}));
  SocketPair pair;
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  const std::vector<int> fds(count, event.get());
  REQUIRE(SendMessage(pair.ours.get(), MessageOf(1, 1, Bytes(8)), fds).ok());
  std::vector<std::byte> buffer(kMaxPacketBytes);
  const auto packet = ReceivePacket(pair.theirs.get(), buffer, 0);
  REQUIRE(packet.ok());
  REQUIRE((**packet).descriptors.size() == count);
  for (const UniqueFd& fd : (**packet).descriptors) {
    CHECK((fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
  }
}

TEST_CASE("receiving tells nothing there from a closed peer and from what does not fit") {
  SocketPair pair;
  std::vector<std::byte> buffer(64);
  CHECK_FALSE(ReceivePacket(pair.theirs.get(), buffer, MSG_DONTWAIT)->has_value());
  REQUIRE(SendPacket(pair.ours.get(), Bytes(65), {}, 0).ok());
  CHECK(absl::IsInvalidArgument(ReceivePacket(pair.theirs.get(), buffer, 0).status()));
  pair.ours.Reset();
  CHECK(absl::IsUnavailable(ReceivePacket(pair.theirs.get(), buffer, 0).status()));
  CHECK(absl::IsUnavailable(SendPacket(pair.theirs.get(), Bytes(1), {}, 0)));
}

TEST_CASE("descriptors that this process may not have are an error that names the limit") {
  SocketPair pair;
  const std::vector<std::byte> message = MessageOf(1, 1, Bytes(10));
  const std::vector<int> fds(3, pair.ours.get());
  REQUIRE(SendPacket(pair.ours.get(), message, fds, 0).ok());
  std::vector<std::byte> buffer(kMaxPacketBytes);
  const UniqueFd next(dup(pair.ours.get()));  // all numbers below are taken
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit few{static_cast<rlim_t>(next.get() + 2), limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const auto packet = ReceivePacket(pair.theirs.get(), buffer, 0);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(absl::IsInvalidArgument(packet.status()));
  const std::string said(packet.status().message());
  CHECK(said.find("RLIMIT_NOFILE of this process is " + std::to_string(few.rlim_cur)) !=
        std::string::npos);
}

TEST_CASE("a full socket is told, and a whole message waits for room") {
  SocketPair pair;
  int packets = 0;
  while (SendPacket(pair.ours.get(), Bytes(kMaxPacketBytes), {}, MSG_DONTWAIT).ok()) ++packets;
  CHECK(packets > 0);
  CHECK(absl::IsResourceExhausted(
      SendPacket(pair.ours.get(), Bytes(kMaxPacketBytes), {}, MSG_DONTWAIT)));
}

TEST_CASE("a body is read within its bounds") {
  MessageWriter writer(1, 1);
  writer.Append(uint32_t{7});
  writer.AppendText("abc");
  const auto whole = writer.Finish();
  BodyReader reader(whole.subspan(sizeof(MessageHeader)));
  uint64_t wide = 0;
  uint32_t value = 0;
  CHECK_FALSE(reader.Read(&wide));
  REQUIRE(reader.Read(&value));
  CHECK(value == 7);
  std::vector<uint16_t> many;
  CHECK_FALSE(reader.ReadAll(uint64_t{1} << 63, &many));  // no overflow
  CHECK_FALSE(reader.ReadAll(2, &many));
  std::span<const std::byte> text;
  CHECK_FALSE(reader.ReadBytes(4, &text));
  REQUIRE(reader.ReadBytes(3, &text));
  CHECK(reader.done());
}

TEST_CASE("a reply carries its status, with a text cut to one packet") {
  MessageWriter bad = StartReply(Kind::kGet, 9, absl::ResourceExhaustedError("leases: all"));
  const auto whole = bad.Finish();
  BodyReader reader(whole.subspan(sizeof(MessageHeader)));
  CHECK(ReadReplyStatus(&reader) == absl::ResourceExhaustedError("leases: all"));
  BodyReader empty({});
  CHECK(absl::IsInternal(ReadReplyStatus(&empty)));
  MessageWriter huge =
      StartReply(Kind::kGet, 9, absl::InternalError(std::string(kMaxMessageBytes, 'x')));
  CHECK(huge.Finish().size() <= kMaxPacketBytes);
}

}  // namespace kvkeep::local
