// Registrations of GPU memory: permissions, checks, and when they end.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <optional>

#include "tests/server/local/gpu_tester.h"

namespace kvkeep {
namespace {

using local::Kind;

}  // namespace

TEST_CASE("a registration is told its number and the limits, and is given back with the reply") {
  GpuTester t;
  t.Open();
  const uint64_t memory = t.device().Allocate(std::vector<std::byte>(kMiB));
  const auto reply = t.AskFor(Kind::kRegisterGpuMemory, GpuTester::Registration(memory, kMiB))
                         .As<local::RegisterGpuReply>();
  CHECK(reply.registration == 1);
  CHECK(reply.max_runs == t.context->limits.max_put_runs);
  CHECK(reply.max_registrations == t.context->limits.max_gpu_registrations);
  CHECK(reply.max_bytes == t.context->limits.max_gpu_bytes);
  CHECK(reply.max_timeout_ms == 30'000);
  CHECK(t.counters.gpu_registrations == 1);
  CHECK(t.counters.gpu_registered_bytes == kMiB);
  CHECK(t.Unregister(1).status.ok());
  CHECK(t.device().stats().registrations == 0);
  CHECK(t.counters.gpu_registrations == 0);
  CHECK(t.Register(memory, 2) == 2);  // no number comes twice
}

TEST_CASE("a client of an older version has no GPU requests") {
  GpuTester t;
  t.Connect();
  REQUIRE(t.Ask(Kind::kHello, HelloBody("old", 3)).status.ok());
  for (const Kind kind :
       {Kind::kRegisterGpuMemory, Kind::kUnregisterGpuMemory, Kind::kPutFromGpu, Kind::kGetToGpu}) {
    CHECK(absl::IsUnimplemented(t.Ask(kind, {}).status));
  }
}

TEST_CASE("a daemon without the path refuses with the reason, and serves as ever") {
  GpuTester t;
  const auto off = MakeGpuPathOff("no NVIDIA driver here");
  const bool none = GENERATE(false, true);
  t.context->gpu = none ? nullptr : off.get();
  t.Open();
  const SentMessage reply = t.AskFor(Kind::kRegisterGpuMemory, GpuTester::Registration(0, kMiB));
  CHECK(absl::IsFailedPrecondition(reply.status));
  CHECK(absl::StrContains(reply.status.message(), "off"));
  if (!none) CHECK(absl::StrContains(reply.status.message(), "no NVIDIA driver here"));
  t.Stage(kMiB);
  CHECK(t.PutPayload(1, MakePayload(1, 1, 5000)) == "stored");
}

TEST_CASE("what is wrong with a registration is said, and nothing of it stays") {
  GpuTester t;
  t.Open();
  const uint64_t memory = t.device().Allocate(std::vector<std::byte>(kMiB));
  local::RegisterGpuMemory wrong = GpuTester::Registration(memory, kMiB);
  std::string reason;
  std::vector<UniqueFd> descriptors;
  SECTION("no such kind") { wrong.kind = 3, reason = "kind is 3"; }
  SECTION("no generation") { wrong.generation = 0, reason = "generation is 0"; }
  SECTION("a kind that comes with a descriptor") {
    wrong.kind = local::kGpuDescriptor, reason = "0 descriptors came, wanted are 1";
  }
  SECTION("a kind that comes without") {
    descriptors.emplace_back(dup(STDERR_FILENO)), reason = "1 descriptors came, wanted are 0";
  }
  SECTION("nothing of it") { wrong.bytes = 0, reason = "bytes is 0"; }
  SECTION("behind its end") { wrong.offset = 1, reason = "1048576 bytes at 1"; }
  SECTION("so far behind that the sum is small") {
    wrong.offset = UINT64_MAX - 1, reason = "the allocation has";
  }
  SECTION("more than there is") {
    wrong.allocation_bytes = wrong.bytes = 2 * kMiB, reason = "allocation_bytes";
  }
  SECTION("a handle of nothing") { wrong.handle = FakeGpuHandle(77), reason = "of no memory"; }
  const SentMessage reply =
      t.Ask(Kind::kRegisterGpuMemory, std::as_bytes(std::span(&wrong, 1)), std::move(descriptors));
  CHECK(absl::IsInvalidArgument(reply.status));
  CHECK(absl::StrContains(reply.status.message(), reason));
  CHECK(t.device().stats().registrations == 0);
  CHECK(t.counters.gpu_registered_bytes == 0);
  t.Register(memory);
}

TEST_CASE("a session has so many registrations and bytes, those that wait included") {
  GpuTester t(PeerWorld(), [](LocalLimits* limits) {
    limits->max_gpu_registrations = 2;
    limits->max_gpu_bytes = 3 * kMiB;
  });
  t.Open();
  const uint64_t memory = t.device().Allocate(std::vector<std::byte>(2 * kMiB));
  const auto tell = [&](uint64_t bytes) {
    const auto request = GpuTester::Registration(memory, bytes);
    return t.Tell(Kind::kRegisterGpuMemory, std::as_bytes(std::span(&request, 1)));
  };
  SECTION("bytes") {
    tell(2 * kMiB);
    const SentMessage refused = t.TakeReply(tell(kMiB + 1));
    CHECK(absl::IsResourceExhausted(refused.status));
    CHECK(absl::StrContains(refused.status.message(), "allowed are at most 3145728"));
    t.RunAll();
    CHECK(t.Unregister(1).status.ok());
    CHECK(t.Register(memory) == 2);
  }
  SECTION("number") {
    tell(1);
    tell(1);
    CHECK(absl::IsResourceExhausted(t.TakeReply(tell(1)).status));
    t.RunAll();
    CHECK(t.counters.gpu_registrations == 2);
  }
  SECTION("a refused one gives its part back") {
    t.device().Refuse(absl::UnavailableError("the device is broken"));
    const uint64_t id = tell(2 * kMiB);
    t.RunAll();
    CHECK(absl::IsUnavailable(t.TakeReply(id).status));
    CHECK(t.counters.gpu_refusals == 1);
    t.device().Refuse(absl::OkStatus());
    CHECK(t.Register(memory) == 2);
  }
}

TEST_CASE("sessions of a tenant have no more registrations than their tenant, others theirs") {
  GpuTester t;
  const auto greedy = std::make_shared<GpuAccount>(
      GpuAccount::Most{.registrations = 3, .registered_bytes = 4 * kMiB});
  const auto modest =
      std::make_shared<GpuAccount>(GpuAccount::Most{.registrations = 1, .registered_bytes = kMiB});
  const uint64_t memory = t.device().Allocate(std::vector<std::byte>(2 * kMiB));
  std::vector<std::shared_ptr<LocalPeer>> sessions;
  const auto open = [&](const std::shared_ptr<GpuAccount>& account) {
    t.peer = nullptr;
    LocalPeer::Identity identity{.peer = "x"};
    identity.gpu = account;
    t.Open(std::move(identity));
    sessions.push_back(t.peer);
  };
  const auto ask = [&](uint64_t bytes) {
    return t.AskFor(Kind::kRegisterGpuMemory, GpuTester::Registration(memory, bytes)).status;
  };
  open(greedy);
  CHECK(ask(2 * kMiB).ok());
  open(greedy);
  const absl::Status bytes = ask(2 * kMiB + 1);
  CHECK(absl::IsResourceExhausted(bytes));
  CHECK(absl::StrContains(
      bytes.message(),
      "bytes of registered GPU memory: sessions of this tenant have 2097152, 2097153 more are "
      "wanted, its part of the limit of all tenants is 4194304"));
  CHECK(ask(1).ok());
  CHECK(ask(1).ok());
  const absl::Status number = ask(1);
  CHECK(absl::IsResourceExhausted(number));
  CHECK(absl::StrContains(number.message(),
                          "registrations of GPU memory: sessions of this tenant have 3"));
  CHECK(t.counters.gpu_over_limit == 2);
  open(modest);
  CHECK(ask(kMiB).ok());
  // Returned memory may be registered again, once its handle is closed; a session's end returns its
  // memory.
  t.peer = sessions[1];
  CHECK(t.Unregister(1).status.ok());
  CHECK(ask(kMiB).ok());
  for (const auto& session : sessions) session->End();
  t.RunAll();
  CHECK(greedy->unused());
  CHECK(modest->unused());
}

TEST_CASE("a GPU or a kind of handle that a tenant may not use is refused before the driver asks") {
  GpuTester t;
  const uint64_t memory = t.device().Allocate(std::vector<std::byte>(kMiB));
  GpuUuid allowed{};
  allowed[0] = std::byte{7};
  const auto ask = [&](GpuRights rights, uint8_t gpu) {
    LocalPeer::Identity identity{.peer = "x"};
    identity.gpu = std::make_shared<GpuAccount>(
        GpuAccount::Most{.registrations = 9, .registered_bytes = kTiB}, std::move(rights));
    t.Open(std::move(identity));
    local::RegisterGpuMemory request = GpuTester::Registration(memory, kMiB);
    request.gpu_uuid[0] = gpu;
    return t.AskFor(Kind::kRegisterGpuMemory, request).status;
  };
  CHECK(ask({}, 1).ok());
  CHECK(ask({.all = false, .gpus = {allowed}}, 7).ok());
  const absl::Status other = ask({.all = false, .gpus = {allowed}}, 1);
  CHECK(absl::IsPermissionDenied(other));
  CHECK(absl::StrContains(other.message(), "gpus in its config"));
  CHECK(absl::IsPermissionDenied(ask({.all = false}, 7)));
  const absl::Status handle = ask({.ipc_handles = false}, 7);
  CHECK(absl::IsPermissionDenied(handle));
  CHECK(absl::StrContains(handle.message(), "pass a descriptor"));
  CHECK(t.counters.gpu_denied == 3);
  CHECK(t.counters.gpu_refusals == 0);  // of the path, which heard of none
}

TEST_CASE("a tenant's part of the GPU path is as its part of G2, and never nothing") {
  const LocalLimits limits = {.max_all_gpu_registrations = 100,
                              .max_all_gpu_bytes = 1000,
                              .max_all_gpu_copies = 10,
                              .max_gpu_get_bytes = 400};
  const GpuAccount::Most quarter = GpuAccount::PartOf(limits, 0.25);
  CHECK(quarter.registrations == 25);
  CHECK(quarter.registered_bytes == 250);
  CHECK(quarter.copies == 2);
  CHECK(quarter.get_bytes == 100);
  CHECK(GpuAccount::PartOf(limits, 0.001).copies == 1);
}

TEST_CASE("of a tenant's requests one at a time has more copies than its part, all that it wants") {
  const auto account = std::make_shared<GpuAccount>(GpuAccount::Most{.copies = 2});
  std::optional<GpuRequestCopies> large(account);
  GpuRequestCopies other(account);
  for (int i = 0; i < 16; ++i) CHECK(large->Take().ok());
  CHECK(absl::IsResourceExhausted(other.Take()));
  for (int i = 0; i < 16; ++i) large->Give();
  CHECK(other.Take().ok());
  CHECK(large->Take().ok());
  CHECK(large->Take().ok());  // it still is the same one
  CHECK(absl::IsResourceExhausted(other.Take()));
  large->Give();
  large->Give();
  large.reset();
  for (int i = 0; i < 4; ++i) CHECK(other.Take().ok());
  for (int i = 0; i < 5; ++i) other.Give();
  CHECK(account->unused());
}

TEST_CASE("registrations end with the session, also those that come later than it") {
  GpuTester t;
  t.Open();
  const uint64_t memory = t.device().Allocate(std::vector<std::byte>(kMiB));
  t.Register(memory);
  const auto request = GpuTester::Registration(memory, kMiB, 2);
  const uint64_t id = t.Tell(Kind::kRegisterGpuMemory, std::as_bytes(std::span(&request, 1)));
  SECTION("as it ends") { t.peer->End(); }
  SECTION("as it is revoked") {
    t.peer->Revoke("silent");
    t.RunAll();
    CHECK(absl::IsFailedPrecondition(t.TakeReply(id).status));
  }
  t.RunAll();
  CHECK(t.device().stats().registrations == 0);
  CHECK(t.counters.gpu_registrations == 0);
  CHECK(t.counters.gpu_registered_bytes == 0);
}

TEST_CASE("a registration of another connection, number or generation is nobody's") {
  GpuTester t;
  t.Open();
  const uint64_t memory = t.device().Allocate(std::vector<std::byte>(kMiB));
  t.Register(memory, 7);
  CHECK(absl::IsInvalidArgument(t.Unregister(2, 7).status));
  CHECK(absl::IsInvalidArgument(t.Unregister(1, 8).status));
  t.Open();  // after a restart, say: its numbers are the same
  t.Register(memory, 8);
  const SentMessage stale = t.Unregister(1, 7);
  CHECK(absl::StrContains(stale.status.message(), "of generation 8, not 7"));
  CHECK(absl::StrContains(t.Put({{.name = 1, .generation = 7, .bytes = 100}}), "generation"));
  CHECK(t.Put({{.name = 1, .generation = 8, .bytes = 100}}) == "stored");
}

TEST_CASE("nothing is left of 10,000 registrations") {
  GpuTester t;
  t.Open();
  const uint64_t memory = t.device().Allocate(std::vector<std::byte>(kMiB));
  for (uint32_t i = 1; i <= 10'000; ++i) {
    REQUIRE(t.Register(memory, i) == i);
    REQUIRE(t.Unregister(i, i).status.ok());
  }
  CHECK(t.device().stats().registrations == 0);
  CHECK(t.counters.gpu_registered_bytes == 0);
}

}  // namespace kvkeep
