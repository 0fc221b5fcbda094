#include <absl/strings/match.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "tests/fakes/scratch_dir.h"
#include "tests/server/local/peer_tester.h"
#include "tiers/base/page_bytes.h"

namespace kvkeep {
namespace {

using local::Kind;

UniqueFd Memfd(std::span<const std::byte> bytes) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(pwrite(fd.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return fd;
}

SentMessage Register(PeerTester& t, int fd, uint64_t bytes) {
  std::vector<UniqueFd> descriptors;
  descriptors.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  const local::RegisterMemory body{.bytes = bytes};
  return t.Ask(Kind::kRegisterMemory, std::as_bytes(std::span(&body, 1)), std::move(descriptors));
}

SentMessage Unregister(PeerTester& t, uint32_t region) {
  return t.AskFor(Kind::kUnregisterMemory, local::UnregisterMemory{.region = region});
}

uint64_t StagingFor(PeerTester& t, uint64_t asked) {
  const SentMessage reply = t.AskFor(Kind::kStaging, local::StagingRequest{.bytes = asked});
  INFO(reply.status);
  REQUIRE(reply.status.ok());
  return reply.As<local::StagingReply>().bytes;
}

std::vector<std::byte> OldHello() {
  const local::Hello hello{.max_version = 5};
  const auto bytes = std::as_bytes(std::span(&hello, 1));
  return {bytes.begin(), bytes.end()};
}

// A client that needs staging memory.
void OpenOld(PeerTester& t, LocalPeer::Identity identity = {.peer = "old"}) {
  t.Connect(std::move(identity));
  REQUIRE(t.AskFor(Kind::kHello, local::Hello{.max_version = 5}).status.ok());
}

using local::kNoStaging;

}  // namespace

TEST_CASE("staging memory is as large as asked for, in whole pages, up to the limit") {
  PeerTester t;
  OpenOld(t);
  CHECK(StagingFor(t, 1) == PageBytes());
  CHECK(StagingFor(t, 3 * kMiB) == 3 * kMiB);
  CHECK(StagingFor(t, 17 * kMiB) == 16 * kMiB);
  CHECK(StagingFor(t, UINT64_MAX) == 16 * kMiB);
  CHECK(t.counters.staging_bytes == 16 * kMiB);  // one at a time
}

TEST_CASE("before version 6 no size means 32 chunks of the largest namespace, or the default") {
  PeerTester t(PeerWorld(), [](LocalLimits* limits) { limits->default_staging_bytes = 2 * kMiB; });
  OpenOld(t);
  CHECK(StagingFor(t, 0) == 2 * kMiB);
  local::MessageWriter body(0, 0);
  body.Append(local::OpenNamespace{
      .bytes_per_part = 10'000, .tokens_per_chunk = 1, .parts = 1, .model_bytes = 1});
  body.AppendText("m");
  REQUIRE(
      t.Ask(Kind::kOpenNamespace, body.Finish().subspan(sizeof(local::MessageHeader))).status.ok());
  CHECK(StagingFor(t, 0) == RoundUp(320'000, PageBytes()));
  t.context->limits.max_all_staging_bytes = 1'600'000;  // a quarter is more than that
  CHECK(StagingFor(t, 0) == RoundUp(320'000, PageBytes()));
}

TEST_CASE("before version 6 no size means a quarter of what is left, but room for a chunk") {
  PeerTester t(PeerWorld(), [](LocalLimits* limits) { limits->max_all_staging_bytes = 6 * kMiB; });
  OpenOld(t);
  CHECK(StagingFor(t, 0) == 6 * kMiB / 4);
  CHECK(StagingFor(t, 0) == 6 * kMiB / 4);  // its own is replaced
  local::MessageWriter body(0, 0);
  body.Append(local::OpenNamespace{
      .bytes_per_part = 4 * kMiB, .tokens_per_chunk = 1, .parts = 1, .model_bytes = 1});
  body.AppendText("m");
  REQUIRE(
      t.Ask(Kind::kOpenNamespace, body.Finish().subspan(sizeof(local::MessageHeader))).status.ok());
  CHECK(StagingFor(t, 0) == 4 * kMiB);
}

TEST_CASE("a session begins with little, grows to its part, and gives it back") {
  PeerTester t(PeerWorld(), [](LocalLimits* limits) {
    limits->first_staging_bytes = kMiB;
    limits->max_all_staging_bytes = 12 * kMiB;
  });
  t.Open();
  CHECK(StagingFor(t, 0) == kMiB);
  CHECK(StagingFor(t, 6 * kMiB) == 6 * kMiB);
  auto first = t.peer;
  FakeSink other;
  t.peer = std::make_shared<LocalPeer>(t.context, LocalPeer::Identity{.peer = "2"}, &other);
  const auto hello = HelloBody();
  t.peer->OnMessage({.kind = static_cast<uint16_t>(Kind::kHello), .id = 1, .body = hello});
  const auto ask = [&](uint64_t bytes) {
    const local::StagingRequest body{.bytes = bytes};
    t.Tell(Kind::kStaging, std::as_bytes(std::span(&body, 1)));
    t.RunAll();
    REQUIRE(other.sent.back().status.ok());
    return other.sent.back().As<local::StagingReply>().bytes;
  };
  CHECK(ask(0) == kMiB);
  CHECK(ask(12 * kMiB) == 4 * kMiB);
  CHECK(t.counters.staging_areas == 2);
  std::swap(t.peer, first);
  const SentMessage back = t.AskFor(Kind::kStaging, local::StagingRequest{.bytes = kNoStaging});
  CHECK(back.As<local::StagingReply>().bytes == 0);
  CHECK(back.descriptors.empty());
  CHECK(t.counters.staging_bytes == 4 * kMiB);
  CHECK(absl::IsInvalidArgument(t.Ask(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5}})).status));
  CHECK(StagingFor(t, 0) == kMiB);
  first->End();
}

TEST_CASE("a session begins with a chunk of its largest namespace, however large") {
  PeerTester t(PeerWorld(), [](LocalLimits* limits) { limits->first_staging_bytes = kMiB; });
  t.Open();
  local::MessageWriter body(0, 0);
  body.Append(local::OpenNamespace{
      .bytes_per_part = 3 * kMiB, .tokens_per_chunk = 1, .parts = 1, .model_bytes = 1});
  body.AppendText("m");
  REQUIRE(
      t.Ask(Kind::kOpenNamespace, body.Finish().subspan(sizeof(local::MessageHeader))).status.ok());
  CHECK(StagingFor(t, 0) == 3 * kMiB + PageBytes());  // with its word
}

TEST_CASE("a client can fill its staging memory but not cut it") {
  PeerTester t;
  t.Open();
  const SentMessage reply = t.AskFor(Kind::kStaging, local::StagingRequest{.bytes = 8192});
  const int fd = reply.descriptors.at(0).get();
  CHECK(pwrite(fd, "x", 1, 8191) == 1);
  CHECK(ftruncate(fd, 0) != 0);
  CHECK(ftruncate(fd, kMiB) != 0);
  CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
  // A hole reads as zeros: no fault here.
  const auto pages = static_cast<off_t>(RoundUp(8192, PageBytes()));
  CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, pages) == 0);
  CHECK(ReadAnswers(t.Ask(Kind::kPut, t.PutBody({{.name = 1, .bytes = 8192}}))) == "stored");
  CHECK(t.Payload(t.Get({1}).places.at(0)) == std::vector<std::byte>(8192));
}

TEST_CASE("where no page may be had, staging memory is read without a mapping") {
  const bool by_calls = GENERATE(false, true);
  PeerTester t(PeerWorld(), [=](LocalLimits* limits) { limits->staging_by_calls = by_calls; });
  t.Open();
  const auto mapped = [] {
    std::ifstream maps("/proc/self/maps");
    const std::string all((std::istreambuf_iterator<char>(maps)), std::istreambuf_iterator<char>());
    return absl::StrContains(all, "kvkeep-staging");
  };
  const SentMessage reply = t.AskFor(Kind::kStaging, local::StagingRequest{.bytes = 8 * kMiB});
  REQUIRE(reply.status.ok());
  CHECK(mapped() != by_calls);
  const int fd = reply.descriptors.at(0).get();
  struct stat info;
  REQUIRE(fstat(fd, &info) == 0);
  CHECK(info.st_blocks * 512 == 8 * kMiB);  // prefaulted
  // In parts, with a hole in the middle.
  const auto payload = MakePayload(1, 1, 3 * kMiB);
  REQUIRE(pwrite(fd, payload.data(), payload.size(), 0) == 3 * kMiB);
  constexpr uint64_t kWordAt = 6 * kMiB;
  uint64_t filled = kMiB;
  REQUIRE(pwrite(fd, &filled, sizeof(filled), kWordAt) == 8);
  const uint64_t put =
      t.Tell(Kind::kPutInParts, t.PartsBody({{.name = 1, .bytes = 3 * kMiB}}, kWordAt));
  t.RunAll();
  CHECK_FALSE(t.HasReply(put));
  const auto page = static_cast<off_t>(PageBytes());
  REQUIRE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * kMiB, page) == 0);
  filled = 3 * kMiB;
  REQUIRE(pwrite(fd, &filled, sizeof(filled), kWordAt) == 8);
  CHECK(t.peer->OnPutFilled());
  t.RunAll();
  CHECK(ReadAnswers(t.TakeReply(put)) == "stored");
  auto expected = payload;
  std::fill_n(expected.begin() + 2 * kMiB, page, std::byte(0));
  CHECK(t.Payload(t.Get({1}).places.at(0)) == expected);
  CHECK(mapped() != by_calls);
}

TEST_CASE("staging memory of all sessions together has a limit, and comes back with a session") {
  PeerTester t(PeerWorld(), [](LocalLimits* limits) {
    limits->max_staging_bytes = 4 * kMiB;
    limits->max_all_staging_bytes = 6 * kMiB;
  });
  OpenOld(t);
  CHECK(StagingFor(t, 4 * kMiB) == 4 * kMiB);
  auto first = t.peer;
  FakeSink other;
  t.peer = std::make_shared<LocalPeer>(t.context, LocalPeer::Identity{.peer = "2"}, &other);
  const auto hello = OldHello();
  t.peer->OnMessage({.kind = static_cast<uint16_t>(Kind::kHello), .id = 1, .body = hello});
  const auto ask = [&](uint64_t bytes) {
    const local::StagingRequest body{.bytes = bytes};
    t.Tell(Kind::kStaging, std::as_bytes(std::span(&body, 1)));
    t.RunAll();
    return other.sent.back().status;
  };
  REQUIRE(ask(3 * kMiB).ok());
  CHECK(other.sent.back().As<local::StagingReply>().bytes == 2 * kMiB);  // what is left
  // Replaced memory counts no more, though its pages are freed later.
  REQUIRE(ask(2 * kMiB).ok());
  CHECK(other.sent.back().As<local::StagingReply>().bytes == 2 * kMiB);
  {
    auto second = t.peer;
    FakeSink more;
    t.peer = std::make_shared<LocalPeer>(t.context, LocalPeer::Identity{.peer = "3"}, &more);
    t.peer->OnMessage({.kind = static_cast<uint16_t>(Kind::kHello), .id = 1, .body = hello});
    const local::StagingRequest body{.bytes = kMiB};
    t.Tell(Kind::kStaging, std::as_bytes(std::span(&body, 1)));
    t.RunAll();
    CHECK(absl::IsResourceExhausted(more.sent.back().status));
    CHECK(absl::StrContains(std::string(more.sent.back().status.message()), "6291456"));
    t.peer->End();
    t.peer = second;
  }
  first->End();
  first.reset();
  t.RunAll();
  CHECK(t.counters.staging_bytes == 2 * kMiB);
  CHECK(ask(4 * kMiB).ok());
}

TEST_CASE("sessions of a tenant have no more staging memory than their tenant, others theirs") {
  PeerTester t(PeerWorld(), [](LocalLimits* limits) { limits->max_all_staging_bytes = 8 * kMiB; });
  const auto greedy = std::make_shared<StagingAccount>(3 * kMiB);
  const auto modest = std::make_shared<StagingAccount>(5 * kMiB);
  struct Session {
    FakeSink sink;
    std::shared_ptr<LocalPeer> peer;
  };
  std::vector<std::unique_ptr<Session>> sessions;
  const auto open = [&](const std::shared_ptr<StagingAccount>& account) {
    auto session = std::make_unique<Session>();
    LocalPeer::Identity identity{.peer = "x"};
    identity.staging = account;
    session->peer = std::make_shared<LocalPeer>(t.context, std::move(identity), &session->sink);
    const auto hello = OldHello();
    session->peer->OnMessage({.kind = static_cast<uint16_t>(Kind::kHello), .id = 1, .body = hello});
    sessions.push_back(std::move(session));
    return sessions.back().get();
  };
  // Bytes that were granted; 0: refused.
  const auto ask = [&](Session* session, uint64_t bytes) -> uint64_t {
    t.peer = session->peer;
    const local::StagingRequest body{.bytes = bytes};
    t.Tell(Kind::kStaging, std::as_bytes(std::span(&body, 1)));
    t.RunAll();
    const SentMessage& reply = session->sink.sent.back();
    return reply.status.ok() ? reply.As<local::StagingReply>().bytes : 0;
  };
  Session* const one = open(greedy);
  CHECK(one->sink.sent.front().As<local::Welcome>().max_staging_bytes == 3 * kMiB);
  CHECK(ask(one, 8 * kMiB) == 3 * kMiB);
  Session* const two = open(greedy);
  CHECK(ask(two, kMiB) == 0);
  CHECK(absl::StrContains(std::string(two->sink.sent.back().status.message()),
                          "sessions of this tenant had 3145728, allowed are at most 3145728"));
  CHECK(ask(open(modest), 8 * kMiB) == 5 * kMiB);
  one->peer->End();
  one->peer.reset();
  t.peer.reset();
  t.RunAll();
  CHECK(greedy->bytes == 0);
  CHECK(ask(two, 2 * kMiB) == 2 * kMiB);
  for (const auto& session : sessions) {
    if (session->peer != nullptr) session->peer->End();
  }
}

TEST_CASE("pages of staging memory are freed when the session ends, though a client maps them") {
  PeerTester t;
  t.Open();
  SentMessage reply = t.AskFor(Kind::kStaging, local::StagingRequest{.bytes = kMiB});
  const int fd = reply.descriptors.at(0).get();
  REQUIRE(pwrite(fd, "secret", 6, 0) == 6);
  struct stat info;
  REQUIRE(fstat(fd, &info) == 0);
  CHECK(info.st_blocks * 512 == kMiB);  // prefaulted
  t.peer->End();
  t.peer.reset();
  t.RunAll();
  REQUIRE(fstat(fd, &info) == 0);
  CHECK(info.st_blocks == 0);
  CHECK(t.counters.staging_bytes == 0);
}

TEST_CASE("staging memory is not replaced while a put reads it or while it is being made") {
  PeerTester t;
  t.Open();
  t.Stage(8192);
  t.Tell(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5000}}));
  const local::StagingRequest body{.bytes = 4096};
  const auto bytes = std::as_bytes(std::span(&body, 1));
  CHECK(absl::IsFailedPrecondition(t.TakeReply(t.Tell(Kind::kStaging, bytes)).status));
  t.RunAll();
  const uint64_t making = t.Tell(Kind::kStaging, bytes);
  CHECK(absl::IsFailedPrecondition(t.TakeReply(t.Tell(Kind::kStaging, bytes)).status));
  t.RunAll();
  CHECK(t.TakeReply(making).status.ok());
}

TEST_CASE("a put reads memory that the client registered") {
  PeerTester t;
  t.Open();
  const auto payload = MakePayload(1, 1, 2 * kMiB);
  const UniqueFd fd = Memfd(payload);
  const SentMessage reply = Register(t, fd.get(), payload.size());
  REQUIRE(reply.status.ok());
  const uint32_t region = reply.As<local::RegisterReply>().region;
  CHECK(region != 0);
  CHECK(t.counters.registered_bytes == payload.size());
  CHECK(ReadAnswers(t.Ask(
            Kind::kPut,
            t.PutBody(
                {{.name = 1, .offset = 1000, .bytes = kMiB + 5, .runs = 3, .region = region}}))) ==
        "stored");
  const std::vector<std::byte> expected(payload.begin() + 1000, payload.begin() + 1000 + kMiB + 5);
  CHECK(t.Payload(t.Get({1}).places.at(0)) == expected);
  CHECK(Unregister(t, region).status.ok());
  CHECK(t.counters.registered_bytes == 0);
  CHECK(absl::IsInvalidArgument(Unregister(t, region).status));
  CHECK(absl::IsInvalidArgument(
      t.Ask(Kind::kPut, t.PutBody({{.name = 2, .bytes = 5, .region = region}})).status));
  const SentMessage again = Register(t, fd.get(), payload.size());
  CHECK(again.As<local::RegisterReply>().region != region);
}

TEST_CASE("registered memory is read by copy threads only, however little of it") {
  PeerTester t(PeerWorld(), [](LocalLimits* limits) { limits->loop_copy_bytes = kMiB; });
  t.Open();
  const auto payload = MakePayload(1, 1, 5000);
  const UniqueFd fd = Memfd(payload);
  const uint32_t region = Register(t, fd.get(), payload.size()).As<local::RegisterReply>().region;
  const uint64_t put =
      t.Tell(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5000, .region = region}}));
  t.loop->RunAll();
  CHECK(!t.HasReply(put));
  t.RunAll();
  CHECK(ReadAnswers(t.TakeReply(put)) == "stored");
}

TEST_CASE("registered memory that its owner cut is a rejected chunk, never a crash") {
  PeerTester t;
  t.Open();
  const auto payload = MakePayload(1, 1, 2 * kMiB);
  const UniqueFd fd = Memfd(payload);
  const uint32_t region = Register(t, fd.get(), payload.size()).As<local::RegisterReply>().region;
  REQUIRE(ftruncate(fd.get(), kMiB + 10) == 0);
  const std::string answers =
      ReadAnswers(t.Ask(Kind::kPut, t.PutBody({{.name = 1, .bytes = 2 * kMiB, .region = region},
                                               {.name = 2, .bytes = kMiB, .region = region}})));
  CHECK(absl::StartsWith(answers, "rejected 3: registered memory ends at 1048586"));
  CHECK(absl::EndsWith(answers, ", stored"));
  CHECK(t.store().snapshot().g2.reserved_bytes == 0);
}

TEST_CASE("only memory that can be read is registered") {
  PeerTester t;
  t.Open();
  const ScratchDir dir;
  const UniqueFd memory = Memfd(std::vector<std::byte>(4096));
  const auto refused = [&](int fd, uint64_t bytes) {
    const SentMessage reply = Register(t, fd, bytes);
    CHECK(absl::IsInvalidArgument(reply.status));
    return std::string(reply.status.message());
  };
  CHECK(absl::StrContains(refused(memory.get(), 4097), "bytes is 4097, the file has 4096"));
  CHECK(absl::StrContains(refused(memory.get(), 0), "bytes is 0"));
  int pipe_fds[2];
  REQUIRE(pipe2(pipe_fds, O_CLOEXEC) == 0);
  const UniqueFd read_end(pipe_fds[0]), write_end(pipe_fds[1]);
  CHECK(absl::StrContains(refused(read_end.get(), 10), "not of a memfd"));
  const UniqueFd zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  CHECK(absl::StrContains(refused(zero.get(), 10), "not of a memfd"));
  const UniqueFd write_only(
      open(("/proc/self/fd/" + std::to_string(memory.get())).c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(write_only.valid());
  CHECK(absl::StrContains(refused(write_only.get(), 10), "not open for reading"));
  const UniqueFd path_only(
      open(("/proc/self/fd/" + std::to_string(memory.get())).c_str(), O_PATH | O_CLOEXEC));
  CHECK(absl::IsInvalidArgument(Register(t, path_only.get(), 10).status));
  // A descriptor must come.
  const local::RegisterMemory body{.bytes = 10};
  CHECK(absl::IsInvalidArgument(
      t.Ask(Kind::kRegisterMemory, std::as_bytes(std::span(&body, 1))).status));
}

TEST_CASE("a session registers so many memories and so many bytes") {
  PeerTester t(PeerWorld(), [](LocalLimits* limits) {
    limits->max_registrations = 2;
    limits->max_registered_bytes = kMiB;
    limits->max_staging_bytes = kMiB / 2;  // another limit
  });
  t.Open();
  const UniqueFd fd = Memfd(std::vector<std::byte>(2 * kMiB));
  CHECK(absl::StrContains(std::string(Register(t, fd.get(), kMiB + 1).status.message()),
                          "allowed are at most 1048576 (max_registered_bytes)"));
  CHECK(absl::IsResourceExhausted(Register(t, fd.get(), kMiB + 1).status));
  CHECK(Register(t, fd.get(), kMiB - 4).status.ok());
  CHECK(absl::IsResourceExhausted(Register(t, fd.get(), 5).status));
  CHECK(Register(t, fd.get(), 4).status.ok());
  CHECK(absl::StrContains(std::string(Register(t, fd.get(), 1).status.message()), "registrations"));
}

TEST_CASE("memory is not unregistered while a put reads it") {
  PeerTester t;
  t.Open();
  const UniqueFd fd = Memfd(std::vector<std::byte>(8192));
  const uint32_t region = Register(t, fd.get(), 8192).As<local::RegisterReply>().region;
  t.Tell(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5000, .region = region}}));
  const local::UnregisterMemory body{.region = region};
  CHECK(absl::IsFailedPrecondition(
      t.TakeReply(t.Tell(Kind::kUnregisterMemory, std::as_bytes(std::span(&body, 1)))).status));
  t.RunAll();
  CHECK(Unregister(t, region).status.ok());
}

}  // namespace kvkeep
