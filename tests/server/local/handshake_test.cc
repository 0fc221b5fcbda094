#include <absl/strings/match.h>
#include <fcntl.h>

#include <catch2/catch.hpp>

#include "tests/server/local/peer_tester.h"

namespace kvkeep {
namespace {

using local::Kind;

std::vector<std::byte> HelloWith(const std::function<void(local::Hello*)>& edit) {
  std::vector<std::byte> body = HelloBody("name");
  local::Hello hello;
  std::memcpy(&hello, body.data(), sizeof(hello));
  edit(&hello);
  std::memcpy(body.data(), &hello, sizeof(hello));
  return body;
}

}  // namespace

TEST_CASE("Hello is answered with the limits, two descriptors, and then all segments") {
  WorldOptions options = PeerWorld();
  options.g2_segment_blocks = 8;  // 512 segments
  PeerTester t(options);
  t.Connect();
  const SentMessage welcome = t.Ask(Kind::kHello, HelloBody("engine 1"));
  REQUIRE(welcome.status.ok());
  CHECK(welcome.descriptors.size() == 2);
  const auto body = welcome.As<local::Welcome>();
  CHECK(body.version == local::kVersion);
  CHECK(body.shared_segments == 0);
  CHECK(body.first_segment == 0);
  CHECK(body.segments == 512);
  CHECK(body.segment_bytes == 8 * kBlockBytes);
  CHECK(body.incarnation == t.store().incarnation().value());
  CHECK(body.arena_uuid == t.world.arena().uuid().bytes);
  CHECK(body.progress_words == local::kProgressWords);
  CHECK(body.max_keys_per_call == t.store().options().max_keys_per_call);
  CHECK(body.max_staging_bytes == 16 * kMiB);
  CHECK(body.max_put_chunks == t.context->limits.max_put_chunks);
  CHECK(body.grace_ms == 10'000);
  const StoreSnapshot snapshot = t.store().snapshot();
  REQUIRE(snapshot.sessions.size() == 1);
  CHECK(snapshot.sessions[0].info.client_name == "engine 1");

  uint32_t next = 0;
  for (const SentMessage& message : t.sink.sent) {
    CHECK(message.kind == static_cast<uint16_t>(Kind::kSegments));
    CHECK(message.id == 0);
    const auto segments = message.As<local::Segments>();
    CHECK(segments.first_segment == next);
    CHECK(segments.count == message.descriptors.size());
    CHECK(segments.count <= local::kMaxDescriptorsPerPacket);
    next += segments.count;
  }
  CHECK(next == 512);
}

TEST_CASE("a tenant gets its own segments and no others") {
  WorldOptions options = PeerWorld();
  options.g2_segment_blocks = 512;  // 8 segments
  PeerTester t(options);
  t.Connect({.peer = "test", .segments = {.first = 2, .count = 3}});
  const SentMessage welcome = t.Ask(Kind::kHello, HelloBody());
  CHECK(welcome.As<local::Welcome>().first_segment == 2);
  CHECK(welcome.As<local::Welcome>().segments == 3);
  REQUIRE(t.sink.sent.size() == 1);
  CHECK(t.sink.sent[0].As<local::Segments>().first_segment == 2);
  CHECK(t.sink.sent[0].descriptors.size() == 3);
}

TEST_CASE("a Hello that is wrong is answered with the reason, then the connection ends") {
  PeerTester t;
  t.Connect();
  std::vector<std::byte> body;
  std::string reason;
  auto code = absl::StatusCode::kInvalidArgument;
  SECTION("magic") {
    body = HelloWith([](local::Hello* hello) { hello->magic = 1; });
    reason = "not of the local protocol";
  }
  SECTION("short") {
    body.resize(sizeof(local::Hello) - 1);
    reason = "not of the local protocol";
  }
  SECTION("only newer versions") {
    body = HelloWith([](local::Hello* hello) { hello->min_version = 98, hello->max_version = 99; });
    reason = "versions 98 to 99";
    code = absl::StatusCode::kUnimplemented;  // a client then takes gRPC
  }
  SECTION("only older versions") {
    body = HelloWith([](local::Hello* hello) { hello->min_version = 0, hello->max_version = 0; });
    reason = "versions 0 to 0";
    code = absl::StatusCode::kUnimplemented;
  }
  SECTION("name longer than what came") {
    body = HelloWith([](local::Hello* hello) { hello->name_bytes = 5; });
    reason = "client_name";
  }
  SECTION("bytes behind the name") {
    body = HelloWith([](local::Hello* hello) { hello->name_bytes = 3; });
    reason = "client_name";
  }
  SECTION("name over its limit") {
    body = HelloBody(std::string(local::kMaxClientNameBytes + 1, 'n'));
    reason = "client_name";
  }
  SECTION("a name that is not UTF-8") {
    body = HelloBody("caf\xe9");
    reason = "client_name is not UTF-8: no character begins at byte 3";
  }
  const SentMessage reply = t.Ask(Kind::kHello, body);
  INFO(reply.status);
  CHECK(absl::StrContains(std::string(reply.status.message()), reason));
  CHECK(reply.status.code() == code);
  CHECK(t.sink.closed.has_value());
  CHECK(t.store().snapshot().sessions.empty());
}

TEST_CASE("a namespace with a text that is not UTF-8 is refused by the text's name") {
  PeerTester t;
  t.Open();
  const std::string fields[] = {"model", "dtype", "layout", "hash_algorithm", "hash_seed"};
  for (size_t wrong = 0; wrong <= std::size(fields); ++wrong) {  // the last time none
    local::MessageWriter body(0, 0);
    body.Append(local::OpenNamespace{.tokens_per_chunk = 256,
                                     .parts = 1,
                                     .model_bytes = 3,
                                     .dtype_bytes = 3,
                                     .layout_bytes = 3,
                                     .hash_algorithm_bytes = 3,
                                     .hash_seed_bytes = 3});
    for (size_t i = 0; i < std::size(fields); ++i) {
      body.AppendText(i == wrong ? "a\xc3z" : "a\xc3\xa4");
    }
    const SentMessage reply =
        t.Ask(Kind::kOpenNamespace, body.Finish().subspan(sizeof(local::MessageHeader)));
    INFO(reply.status);
    if (wrong == std::size(fields)) {
      CHECK(reply.status.ok());
      continue;
    }
    CHECK(absl::IsInvalidArgument(reply.status));
    CHECK(absl::StartsWith(reply.status.message(), fields[wrong] + " is not UTF-8"));
  }
}

TEST_CASE("the highest version that both know is spoken") {
  PeerTester t;
  t.Connect();
  const auto body = HelloWith([](local::Hello* hello) { hello->max_version = 99; });
  CHECK(t.Ask(Kind::kHello, body).As<local::Welcome>().version == local::kVersion);
  t.Connect();
  const auto old = HelloWith([](local::Hello* hello) { hello->max_version = 1; });
  CHECK(t.Ask(Kind::kHello, old).As<local::Welcome>().version == 1);
}

TEST_CASE("from version 8 on the daemon says what its clock shows") {
  PeerTester t;
  t.world.clock().Advance(MonotonicTime(123'456'789));
  t.Connect();
  const SentMessage now = t.Ask(Kind::kHello, HelloBody("as it was", 8));
  REQUIRE(now.body.size() == sizeof(local::Welcome) + sizeof(local::ClockReading));
  local::ClockReading clock;
  std::memcpy(&clock, now.body.data() + sizeof(local::Welcome), sizeof(clock));
  CHECK(clock.monotonic_ns == static_cast<uint64_t>(t.world.clock().Now().count()));
  CHECK(clock.monotonic_ns >= 123'456'789);
  t.Connect();
  CHECK(t.Ask(Kind::kHello, HelloBody("old", 7)).body.size() == sizeof(local::Welcome));
}

TEST_CASE("from version 9 on the daemon says how large a chunk can be") {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = 3 * kMiB;
  PeerTester t(options);
  t.Connect();
  const SentMessage now = t.Ask(Kind::kHello, HelloBody());
  constexpr size_t kBefore = sizeof(local::Welcome) + sizeof(local::ClockReading);
  REQUIRE(now.body.size() == kBefore + sizeof(local::ChunkLimit));
  local::ChunkLimit limit;
  std::memcpy(&limit, now.body.data() + kBefore, sizeof(limit));
  // Besides it there is room for a header page and the largest metadata.
  CHECK(limit.max_payload_bytes == 3 * kMiB - 5 * kBlockBytes);
}

TEST_CASE("a reader gets the owners' segments after its own; a client of version 1 its own only") {
  WorldOptions options = PeerWorld();
  options.g2_segment_blocks = 512;  // 8 segments
  options.store.tenants = {{.name = "", .g2_segments = 2},
                           {.name = "a", .g2_segments = 3, .readers = {TenantId(0)}},
                           {.name = "b", .g2_segments = 1},
                           {.name = "c", .g2_segments = 2, .readers = {TenantId(0)}}};
  PeerTester t(options);
  const auto connect = [&](uint16_t version) {
    LocalPeer::Identity identity{.peer = "test", .segments = {.first = 0, .count = 2}};
    identity.shared = {{.first = 2, .count = 3}, {.first = 6, .count = 2}};
    t.Connect(std::move(identity));
    return t.Ask(Kind::kHello,
                 HelloWith([=](local::Hello* hello) { hello->max_version = version; }));
  };
  const auto segments = [&t] {
    std::vector<uint32_t> numbers;
    for (const SentMessage& message : t.sink.sent) {
      const auto said = message.As<local::Segments>();
      CHECK(said.count == message.descriptors.size());
      for (uint32_t i = 0; i < said.count; ++i) numbers.push_back(said.first_segment + i);
    }
    return numbers;
  };
  const auto welcome = connect(2).As<local::Welcome>();
  CHECK(welcome.segments == 2);
  CHECK(welcome.shared_segments == 5);
  CHECK(segments() == std::vector<uint32_t>{0, 1, 2, 3, 4, 6, 7});
  for (const SentMessage& message : t.sink.sent) {
    for (const UniqueFd& fd : message.descriptors) {
      CHECK((fcntl(fd.get(), F_GETFL) & O_ACCMODE) == O_RDONLY);
    }
  }
  // The store decides whose namespaces it may open.
  const auto open = [&](const std::string& tenant) {
    local::MessageWriter body(0, 0);
    body.Append(local::OpenNamespace{.tokens_per_chunk = 1,
                                     .parts = 1,
                                     .model_bytes = 1,
                                     .tenant_bytes = static_cast<uint16_t>(tenant.size())});
    body.AppendText("m" + tenant);
    return t.Ask(Kind::kOpenNamespace, body.Finish().subspan(sizeof(local::MessageHeader)));
  };
  const auto digest = [&](const std::string& tenant) {
    return open(tenant).As<local::NamespaceReply>().digest;
  };
  NamespaceSpec spec{.model = "m", .tokens_per_chunk = 1};
  CHECK(digest("c") == spec.Digest("c").bytes);
  CHECK(digest("") == spec.Digest("").bytes);
  CHECK(absl::IsPermissionDenied(open("b").status));
  CHECK(absl::IsPermissionDenied(open("nobody").status));

  const auto old = connect(1).As<local::Welcome>();
  CHECK(old.shared_segments == 0);
  CHECK(segments() == std::vector<uint32_t>{0, 1});
  // Fields that were reserved then are ignored.
  local::MessageWriter body(0, 0);
  body.Append(local::OpenNamespace{
      .tokens_per_chunk = 1, .parts = 1, .model_bytes = 1, .tenant_bytes = 77});
  body.AppendText("m");
  CHECK(t.Ask(Kind::kOpenNamespace, body.Finish().subspan(sizeof(local::MessageHeader)))
            .As<local::NamespaceReply>()
            .digest == spec.Digest("").bytes);
}

TEST_CASE("a refused peer is told why when it says Hello, and has no session") {
  PeerTester t;
  t.Connect({.peer = "test", .refusal = absl::PermissionDeniedError("uid=7 may not")});
  const SentMessage reply = t.Ask(Kind::kHello, HelloBody());
  CHECK(reply.status == absl::PermissionDeniedError("uid=7 may not"));
  CHECK(t.sink.closed.has_value());
  CHECK(t.store().snapshot().sessions.empty());
}

TEST_CASE("no request comes before Hello, and Hello only once") {
  PeerTester t;
  t.Connect();
  CHECK(absl::IsFailedPrecondition(t.Ask(Kind::kServerInfo, {}).status));
  CHECK(absl::IsFailedPrecondition(t.Ask(Kind::kPut, {}).status));
  t.Open();
  CHECK(absl::IsFailedPrecondition(t.Ask(Kind::kHello, HelloBody()).status));
  CHECK(t.Ask(Kind::kServerInfo, {}).status.ok());
}

TEST_CASE("sessions over the store's limit are refused, and one that ends makes room") {
  WorldOptions options = PeerWorld();
  options.store.max_sessions = 1;
  PeerTester t(options);
  t.Open();
  auto first = t.peer;
  FakeSink other_sink;
  auto other =
      std::make_shared<LocalPeer>(t.context, LocalPeer::Identity{.peer = "2"}, &other_sink);
  const auto hello = HelloBody();
  other->OnMessage({.kind = static_cast<uint16_t>(Kind::kHello), .id = 1, .body = hello});
  CHECK(absl::IsResourceExhausted(other_sink.sent.at(0).status));
  other->End();
  first->End();
  t.Open();
}

TEST_CASE("what is no request of this version is answered, what is no request at all cut off") {
  PeerTester t;
  t.Open();
  CHECK(absl::IsUnimplemented(t.Ask(Kind{99}, {}).status));
  CHECK(absl::IsUnimplemented(t.Ask(Kind::kPing, {}).status));
  CHECK_FALSE(t.sink.closed.has_value());
  SECTION("a reply") {
    t.peer->OnMessage({.kind = local::kReplyBit | 8, .id = 5});
    CHECK(t.sink.closed.has_value());
  }
  SECTION("id 0") {
    t.peer->OnMessage({.kind = 8, .id = 0});
    CHECK(t.sink.closed.has_value());
    CHECK(t.sink.sent.back().id == 0);
  }
}

TEST_CASE("descriptors that nobody asked for are refused") {
  PeerTester t;
  t.Open();
  std::vector<UniqueFd> fds;
  fds.emplace_back(dup(0));
  const SentMessage reply = t.Ask(Kind::kServerInfo, {}, std::move(fds));
  CHECK(absl::IsInvalidArgument(reply.status));
}

TEST_CASE("server info tells version, state and incarnation") {
  PeerTester t;
  t.Open();
  const SentMessage reply = t.Ask(Kind::kServerInfo, {});
  const auto info = reply.As<local::ServerInfoReply>();
  CHECK(info.state == 2);
  CHECK(info.incarnation == t.store().incarnation().value());
  CHECK(reply.text().substr(sizeof(info)) == "1.2.3");
  CHECK(absl::IsInvalidArgument(t.Ask(Kind::kServerInfo, std::vector<std::byte>(1)).status));
}

TEST_CASE("a namespace has the digest it has over gRPC; texts that do not fit are refused") {
  PeerTester t;
  t.Open();
  const NamespaceSpec spec{.model = "m",
                           .dtype = "d",
                           .layout = "l",
                           .tokens_per_chunk = 16,
                           .bytes_per_part = 4096,
                           .parts = 2,
                           .hash_algorithm = "h",
                           .hash_seed = "s"};
  local::MessageWriter writer(0, 0);
  writer.Append(local::OpenNamespace{.bytes_per_part = 4096,
                                     .tokens_per_chunk = 16,
                                     .parts = 2,
                                     .model_bytes = 1,
                                     .dtype_bytes = 1,
                                     .layout_bytes = 1,
                                     .hash_algorithm_bytes = 1,
                                     .hash_seed_bytes = 1});
  writer.AppendText("mdlhs");
  const auto whole = writer.Finish().subspan(sizeof(local::MessageHeader));
  const SentMessage reply = t.Ask(Kind::kOpenNamespace, whole);
  REQUIRE(reply.status.ok());
  CHECK(reply.As<local::NamespaceReply>().digest == spec.Digest("").bytes);
  CHECK(absl::IsInvalidArgument(t.Ask(Kind::kOpenNamespace, whole.first(whole.size() - 1)).status));
  CHECK(absl::IsInvalidArgument(t.Ask(Kind::kOpenNamespace, whole.first(4)).status));
  std::vector<std::byte> longer(whole.begin(), whole.end());
  longer.push_back({});
  CHECK(absl::IsInvalidArgument(t.Ask(Kind::kOpenNamespace, longer).status));
}

}  // namespace kvkeep
