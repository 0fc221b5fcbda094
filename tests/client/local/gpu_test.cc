// The GPU path of the local transport, against a scripted daemon: the requests, the meaning of the
// answers, and when memory may be used again.
#include <absl/strings/match.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "tests/client/local/gpu_rig.h"
#include "tiers/base/bytes.h"

namespace kvkeep::client {
namespace {

using Catch::Matchers::Contains;
using local::Kind;

TEST_CASE("what is put from runs comes back into other runs, in their order, with its metadata") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  const GpuRegionId id = region.id();
  rig.Write(1000, Bytes(300, 1));
  rig.Write(50, Bytes(200, 2));
  const auto put =
      rig.PutGpu({{.key = Key("a"), .runs = {{id, 1000, 300}, {id, 50, 200}}, .metadata = "tail"}});
  REQUIRE(put.status() == absl::OkStatus());
  CHECK(put->chunks[0].status == PutStatus::kStored);
  const auto got = rig.GetGpu({{.key = Key("a"), .runs = {{id, 5000, 450}, {id, 9000, 50}}}});
  REQUIRE(got.status() == absl::OkStatus());
  CHECK(got->error == absl::OkStatus());
  CHECK(got->chunks[0].status == GetStatus::kHit);
  CHECK(got->chunks[0].bytes == 500);
  CHECK(got->chunks[0].metadata == "tail");
  std::vector<std::byte> whole = Bytes(300, 1), back = rig.Read(5000, 450);
  const std::vector<std::byte> second = Bytes(200, 2), end = rig.Read(9000, 50);
  whole.insert(whole.end(), second.begin(), second.end());
  back.insert(back.end(), end.begin(), end.end());
  CHECK(back == whole);
  CHECK(rig.PutRuns("a", {{id, 0, 500}}) == PutStatus::kPresent);
  CHECK(rig.GetRuns("b", {{id, 0, 500}}) == GetStatus::kMiss);
  CHECK_FALSE(region.in_use());
  const GpuStats stats = rig.transport->gpu_stats();
  CHECK(stats.bytes_put == 1000);
  CHECK(stats.bytes_got == 500);
}

TEST_CASE("a registration says what was exported; a descriptor goes along") {
  GpuRig rig;
  const GpuRegion first = rig.MustRegister();
  GpuMemory memory = MemoryOf(kMemory);
  memory.kind = GpuMemory::Kind::kDescriptor;
  memory.descriptor = UniqueFd(memfd_create("gpu", MFD_CLOEXEC));
  const absl::StatusOr<GpuRegion> second =
      rig.transport->RegisterGpuMemory(std::move(memory), Deadline(0));
  REQUIRE(second.status() == absl::OkStatus());
  const auto said = rig.gpu->registrations();
  REQUIRE(said.size() == 2);
  CHECK(said[0].said.kind == local::kGpuIpcHandle);
  CHECK_FALSE(said[0].descriptor);
  CHECK(said[0].said.gpu_uuid[15] == 9);
  CHECK(said[0].said.handle[0] == kMemory);
  CHECK(said[0].said.allocation_bytes == 4 * kMiB);
  CHECK(said[0].said.offset == 4096);
  CHECK(said[0].said.bytes == kRegionBytes);
  CHECK(said[1].said.kind == local::kGpuDescriptor);
  CHECK(said[1].descriptor);
  CHECK(said[0].said.generation != 0);
  CHECK(said[1].said.generation > said[0].said.generation);
  CHECK(first.id() != second->id());
  CHECK(first.bytes() == kRegionBytes);
}

TEST_CASE("memory that cannot be right is refused before anything is sent") {
  GpuRig rig;
  GpuMemory small = MemoryOf(kMemory), beyond = MemoryOf(kMemory), none = MemoryOf(kMemory);
  small.allocation_bytes = kMiB;
  beyond.offset = UINT64_MAX;
  none.kind = GpuMemory::Kind::kDescriptor;
  for (GpuMemory* memory : {&small, &beyond, &none}) {
    CHECK(absl::IsInvalidArgument(
        rig.transport->RegisterGpuMemory(std::move(*memory), Deadline(0)).status()));
  }
  CHECK(rig.daemon.requests(Kind::kRegisterGpuMemory) == 0);
}

TEST_CASE("a daemon's refusal is told as it was said, counted, and the local path is as it was") {
  GpuRig rig;
  rig.gpu->Set({.refuse = absl::UnimplementedError("gpu: off in the configuration")});
  const absl::Status refused = rig.Register().status();
  CHECK(absl::IsUnimplemented(refused));
  CHECK_THAT(std::string(refused.message()), Contains("off in the configuration"));
  CHECK(rig.transport->gpu_stats().refused == 1);
  const std::vector<std::byte> payload = Bytes(1000, 3);
  CHECK(rig.PutOne(Key("a"), payload) == PutStatus::kStored);
  CHECK(rig.GetOne(Key("a")) == GetStatus::kHit);
  CHECK(rig.back == payload);
}

TEST_CASE("a daemon that is too old, or that nobody can watch, is never asked") {
  GpuRig rig;
  SECTION("too old") {
    rig.daemon.Stop();
    rig.daemon.script.version = 3;
    rig.daemon.Start();
    absl::Status refused;
    REQUIRE(Eventually([&] {
      refused = rig.Register().status();
      return absl::IsFailedPrecondition(refused);
    }));
    CHECK_THAT(std::string(refused.message()), Contains("too old"));
  }
  SECTION("not watched") {
    Blocking other(rig.daemon.socket(), Deadline(10'000), [](int) -> absl::StatusOr<UniqueFd> {
      return absl::FailedPreconditionError("another PID namespace");
    });
    CHECK(absl::IsFailedPrecondition(
        other.transport->RegisterGpuMemory(MemoryOf(kMemory), Deadline(0)).status()));
  }
  CHECK(rig.daemon.requests(Kind::kRegisterGpuMemory) == 0);
}

TEST_CASE("runs outside their region, of none or of two GPUs are refused before anything is sent") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  const GpuRegionId id = region.id();
  GpuMemory elsewhere = MemoryOf(kMemory);
  elsewhere.gpu_uuid.fill(8);
  const auto other = rig.transport->RegisterGpuMemory(std::move(elsewhere), Deadline(0));
  REQUIRE(other.ok());
  const auto refused = [&](std::vector<GpuRun> runs) {
    const bool get =
        rig.GetRuns("a", runs) == GetStatus::kUnfinished && absl::IsInvalidArgument(rig.last);
    const bool put =
        rig.PutRuns("a", runs) == PutStatus::kUnfinished && absl::IsInvalidArgument(rig.last);
    return get && put;
  };
  CHECK(refused({{id, kRegionBytes, 1}}));
  CHECK(refused({{id, kRegionBytes - 1, 2}}));
  CHECK(refused({{id, UINT64_MAX, 2}}));
  CHECK(refused({{id, 1, 10}, {GpuRegionId(99), 0, 1}}));
  CHECK(refused({{GpuRegionId(), 0, 1}}));
  CHECK(refused({{id, 0, 10}, {other->id(), 0, 10}}));
  // An error in a single chunk rejects only that chunk of a put.
  CHECK(rig.PutRuns("a", {}) == PutStatus::kRejected);
  CHECK(rig.PutRuns("a", {{id, 0, 0}}) == PutStatus::kRejected);
  CHECK(rig.PutRuns("a", {{id, 0, 300 * kMiB}}) == PutStatus::kRejected);
  CHECK(rig.GetRuns("a", {}) == GetStatus::kUnfinished);
  CHECK(absl::IsInvalidArgument(rig.last));
  CHECK(absl::IsInvalidArgument(
      rig.PutGpu({{.key = Key("a"), .runs = {{id, 0, 1}}}}, {.checksum = true}).status()));
  CHECK(rig.daemon.requests(Kind::kPutFromGpuUntil) == 0);
  CHECK(rig.daemon.requests(Kind::kGetToGpu) == 0);
}

TEST_CASE("a daemon that came back is told of the memory again, under a generation of its own") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  rig.Write(0, Bytes(100, 1));
  CHECK(rig.PutRuns("a", {{region.id(), 0, 100}}) == PutStatus::kStored);
  const uint64_t before = rig.gpu->registrations()[0].said.generation;
  rig.daemon.Stop();
  rig.gpu->Forget();
  rig.daemon.Start();
  // The endpoint refuses runs of a generation other than that of its registration.
  REQUIRE(Eventually([&] {
    return rig.GetRuns("a", {{region.id(), 200, 100}}) == GetStatus::kHit;
  }));
  CHECK(rig.Read(200, 100) == Bytes(100, 1));
  CHECK(rig.PutRuns("b", {{region.id(), 0, 100}}) == PutStatus::kStored);
  REQUIRE(rig.gpu->registrations().size() == 1);
  CHECK(rig.gpu->registrations()[0].said.generation > before);
  CHECK(rig.transport->gpu_stats().registered == 1);
  CHECK(rig.transport->gpu_stats().registered_again == 1);
}

TEST_CASE("a daemon that came back without its GPU path is asked once, and every call says why") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  CHECK(region.usable().ok());
  rig.LoseDaemon();
  rig.gpu->Set({.refuse = absl::FailedPreconditionError("the GPU fell off the bus")});
  rig.daemon.Start();
  const auto says_why = [&] { return absl::StrContains(rig.last.message(), "fell off"); };
  REQUIRE(Eventually([&] {
    (void)rig.GetRuns("a", {{region.id(), 0, 10}});
    return says_why();
  }));
  CHECK(rig.PutRuns("a", {{region.id(), 0, 10}}) == PutStatus::kUnfinished);
  CHECK(says_why());
  CHECK(absl::IsFailedPrecondition(region.usable()));
  CHECK(rig.daemon.requests(Kind::kRegisterGpuMemory) == 2);  // one for each session
  CHECK_FALSE(region.in_use());
}

TEST_CASE("what a daemon has no room for now is asked for again, in the same session") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  rig.LoseDaemon();
  const bool full = GENERATE(false, true);
  rig.gpu->Set({.refuse = full ? absl::ResourceExhaustedError("registrations: all are taken")
                               : absl::UnavailableError("this GPU is being reset")});
  rig.daemon.Start();
  const auto refused = [&] {
    (void)rig.GetRuns("a", {{region.id(), 0, 10}});
    return full ? absl::IsResourceExhausted(rig.last)
                : absl::StrContains(rig.last.message(), "being reset");
  };
  REQUIRE(Eventually(refused));
  const int connections = rig.daemon.connections;
  // Not every call asks, but some do again and again.
  REQUIRE(
      Eventually([&] { return refused() && rig.daemon.requests(Kind::kRegisterGpuMemory) >= 4; }));
  rig.gpu->Set({});
  REQUIRE(Eventually([&] {
    return rig.PutRuns("a", {{region.id(), 0, 10}}) == PutStatus::kStored;
  }));
  CHECK(region.usable().ok());
  CHECK(rig.daemon.connections == connections);
}

TEST_CASE("a call without an answer by its deadline leaves its memory in use until that comes") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister(), idle = rig.MustRegister();
  rig.daemon.script.hold = static_cast<uint16_t>(Kind::kGetToGpu);
  CHECK(rig.GetRuns("a", {{region.id(), 0, 10}}, {.deadline = kUnanswered}) ==
        GetStatus::kUnfinished);
  CHECK(absl::IsDeadlineExceeded(rig.last));
  CHECK(region.in_use());
  CHECK_FALSE(idle.in_use());
  CHECK(rig.transport->gpu_stats().unanswered == 1);
  // The daemon had less time than the caller, to cancel and to answer.
  REQUIRE(rig.gpu->timeouts_ms().size() == 1);
  CHECK(rig.gpu->timeouts_ms()[0] <= kUnanswered.count() * 3 / 4);
  CHECK(rig.gpu->timeouts_ms()[0] >= 1);
  REQUIRE(Eventually([&] { return rig.daemon.requests(Kind::kGetToGpu) == 1; }));
  rig.daemon.Let();
  CHECK(Eventually([&] { return !region.in_use(); }));
}

TEST_CASE("a connection that breaks leaves memory in use until the daemon's process has ended") {
  GpuRig rig;
  GpuRegion region = rig.MustRegister();
  rig.daemon.script.hold = static_cast<uint16_t>(Kind::kPutFromGpuUntil);
  Completion<absl::StatusOr<PutResult>> put;
  rig.transport->PutFromGpu(rig.ns, rig.spec, {{.key = Key("a"), .runs = {{region.id(), 0, 10}}}},
                            {}, [&](auto result) { put.Set(std::move(result)); });
  REQUIRE(Eventually([&] { return rig.daemon.requests(Kind::kPutFromGpuUntil) == 1; }));
  CHECK(region.in_use());
  CHECK(absl::IsFailedPrecondition(region.Unregister(Deadline(1000))));
  rig.daemon.Stop();
  CHECK(absl::IsUnavailable(put.Take().status()));
  // The socket is closed, but a copy may still be under way.
  CHECK(region.in_use());
  rig.process.End();
  CHECK(Eventually([&] { return !region.in_use(); }));  // a call is released after its callback
  CHECK(region.Unregister(Deadline(1000)).ok());
}

TEST_CASE("a call of more runs or chunks than the daemon takes at once is cut into several") {
  GpuRig rig;
  rig.gpu->Set({.max_runs = 5});
  rig.daemon.script.max_put_chunks = 3;
  rig.daemon.Stop();  // a new session knows the new limit
  rig.daemon.Start();
  absl::StatusOr<GpuRegion> region = absl::UnavailableError("");
  REQUIRE(Eventually([&] { return (region = rig.Register()).ok(); }));
  std::vector<GpuPutChunk> puts;
  std::vector<GpuGetChunk> gets;
  for (uint32_t i = 0; i < 20; ++i) {
    rig.Write(i * 1000, Bytes(400, i));
    std::vector<GpuRun> from, to;
    for (uint32_t r = 0; r < 1 + i % 4; ++r) {
      from.push_back({region->id(), i * 1000 + r * 100, 100});
      to.push_back({region->id(), 500'000 + i * 1000 + r * 100, 100});
    }
    puts.push_back({.key = Key("k" + std::to_string(i)), .runs = from});
    gets.push_back({.key = Key("k" + std::to_string(i)), .runs = to});
  }
  const auto put = rig.PutGpu(puts);
  REQUIRE(put.status() == absl::OkStatus());
  const auto got = rig.GetGpu(gets);
  REQUIRE(got.status() == absl::OkStatus());
  for (uint32_t i = 0; i < 20; ++i) {
    CHECK(put->chunks[i].status == PutStatus::kStored);
    CHECK(got->chunks[i].status == GetStatus::kHit);
    const std::vector<std::byte> whole = Bytes(400, i);
    const std::vector<std::byte> part(whole.begin(), whole.begin() + 100 * (1 + i % 4));
    CHECK(rig.Read(500'000 + i * 1000, part.size()) == part);
  }
  for (const size_t runs : rig.gpu->message_runs()) CHECK(runs <= 5);
  CHECK(rig.daemon.requests(Kind::kPutFromGpuUntil) >= 20 / 3);
  std::vector<GpuRun> too_many(6, GpuRun{region->id(), 0, 1});
  CHECK(rig.PutRuns("z", too_many) == PutStatus::kUnfinished);
  CHECK(absl::IsInvalidArgument(rig.last));
}

TEST_CASE("chunks whose bytes did not come are told one by one, with the daemon's words") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  const NamespaceSpec parts = {.model = "m", .tokens_per_chunk = 16, .parts = 2};
  const auto opened = rig.transport->OpenNamespace(parts, Deadline(0));
  REQUIRE(opened.ok());
  rig.gpu->Set({.fail_parts = {1}});
  const std::vector<GpuRun> runs = {{region.id(), 0, 10}};
  const auto put = rig.Wait<absl::StatusOr<PutResult>>([&](auto done) {
    rig.transport->PutFromGpu(
        *opened, parts,
        {{.key = Key("a"), .part = 0, .runs = runs}, {.key = Key("a"), .part = 1, .runs = runs}},
        {}, std::move(done));
  });
  REQUIRE(put.status() == absl::OkStatus());
  CHECK(put->chunks[0].status == PutStatus::kStored);
  CHECK(put->chunks[1].status == PutStatus::kRejected);
  CHECK_THAT(put->chunks[1].message, Contains("NOT_COPIED") && Contains("late"));
  const auto got = rig.Wait<absl::StatusOr<GetResult>>([&](auto done) {
    rig.transport->GetToGpu(
        *opened, parts,
        {{.key = Key("a"), .part = 0, .runs = runs}, {.key = Key("a"), .part = 1, .runs = runs}},
        {}, std::move(done));
  });
  REQUIRE(got.status() == absl::OkStatus());
  CHECK(got->chunks[0].status == GetStatus::kHit);
  CHECK(got->chunks[1].status == GetStatus::kUnfinished);
  CHECK(absl::IsUnavailable(got->error));
  CHECK_THAT(std::string(got->error.message()), Contains("hung"));
}

TEST_CASE("a reply that is not about what was asked ends the session, not the process") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  const Kind kind = GENERATE(Kind::kPutFromGpuUntil, Kind::kGetToGpu, Kind::kRegisterGpuMemory);
  const size_t cut = GENERATE(0, 1, 5);
  CAPTURE(static_cast<int>(kind), cut);
  const size_t head = sizeof(local::MessageHeader) + sizeof(local::ReplyHead);
  rig.daemon.SetTamper([&](Kind answered, std::vector<std::byte>* message) {
    if (answered != kind) return;
    if (cut > 0) return message->resize(message->size() - cut);
    StoreAt(message->data() + head, uint32_t{0});  // of chunks, or of the registration
  });
  const std::vector<GpuRun> runs = {{region.id(), 0, 10}};
  if (kind == Kind::kPutFromGpuUntil) CHECK(rig.PutRuns("a", runs) == PutStatus::kUnfinished);
  if (kind == Kind::kGetToGpu) CHECK(rig.GetRuns("a", runs) == GetStatus::kUnfinished);
  if (kind == Kind::kRegisterGpuMemory) rig.last = rig.Register().status();
  CHECK(absl::IsInternal(rig.last));
  CHECK(Eventually([&] { return rig.daemon.connections > 1; }));
  rig.daemon.SetTamper(nullptr);
}

TEST_CASE("unregistered memory is closed by the daemon first, and then unknown") {
  GpuRig rig;
  GpuRegion region = rig.MustRegister();
  const GpuRegionId id = region.id();
  CHECK(region.Unregister(Deadline(5000)).ok());
  CHECK(rig.gpu->unregistered() == 1);
  CHECK(rig.PutRuns("a", {{id, 0, 10}}) == PutStatus::kUnfinished);
  CHECK(absl::IsInvalidArgument(rig.last));
  CHECK(region.Unregister(Deadline(5000)).ok());
  { const GpuRegion dropped = rig.MustRegister(); }
  CHECK(Eventually([&] { return rig.gpu->unregistered() == 2; }));
  GpuRegion moved = rig.MustRegister();
  moved = rig.MustRegister();
  CHECK(Eventually([&] { return rig.gpu->unregistered() == 3; }));
}

TEST_CASE("an end of a registration that was not answered in time may be asked for again") {
  GpuRig rig;
  GpuRegion region = rig.MustRegister();
  rig.daemon.script.hold = static_cast<uint16_t>(Kind::kUnregisterGpuMemory);
  CHECK(absl::IsDeadlineExceeded(region.Unregister(Deadline(20))));
  CHECK(absl::IsDeadlineExceeded(region.Unregister(Deadline(20))));  // it is still being closed
  REQUIRE(Eventually([&] { return rig.daemon.requests(Kind::kUnregisterGpuMemory) == 1; }));
  SECTION("and is told when the answer comes") {
    std::thread daemon([&] { rig.daemon.Let(); });
    const absl::Status closed = region.Unregister(Deadline(10'000));
    daemon.join();
    CHECK(closed == absl::OkStatus());
  }
  SECTION("also where that has come") {
    rig.daemon.Let();
    CHECK(Eventually([&] { return region.Unregister(Deadline(0)).ok(); }));
  }
  SECTION("or does not come any more, until the daemon's process has ended") {
    rig.daemon.Stop();
    REQUIRE(Eventually([&] { return absl::IsUnavailable(region.Unregister(Deadline(20))); }));
    rig.process.End();
    CHECK(region.Unregister(Deadline(20)).ok());
  }
  // The daemon knows the region no more: a second request would have been an error.
  CHECK(rig.daemon.requests(Kind::kUnregisterGpuMemory) == 1);
}

TEST_CASE("memory that is being registered again is not free before that has been undone") {
  GpuRig rig;
  GpuRegion region = rig.MustRegister();
  rig.LoseDaemon();
  rig.process.End();  // the earlier daemon has it no more
  rig.daemon.script.hold = static_cast<uint16_t>(Kind::kRegisterGpuMemory);
  rig.daemon.Start();
  REQUIRE(rig.transport->WaitConnected(Deadline(10'000)));
  Completion<absl::StatusOr<PutResult>> put;
  rig.transport->PutFromGpu(rig.ns, rig.spec, {{.key = Key("a"), .runs = {{region.id(), 0, 10}}}},
                            {}, [&](auto result) { put.Set(std::move(result)); });
  REQUIRE(Eventually([&] { return rig.daemon.requests(Kind::kRegisterGpuMemory) == 2; }));
  CHECK(absl::IsDeadlineExceeded(region.Unregister(Deadline(20))));
  CHECK(rig.daemon.requests(Kind::kUnregisterGpuMemory) == 0);
  rig.daemon.script.hold = 0;
  rig.daemon.Let();
  const absl::StatusOr<PutResult> refused = put.Take();
  CHECK(absl::IsFailedPrecondition(refused.ok() ? refused->error : refused.status()));
  CHECK(region.Unregister(Deadline(10'000)) == absl::OkStatus());
  CHECK(rig.gpu->unregistered() == 1);  // of the new one: the old one went with its connection
}

TEST_CASE("a registration that was answered too late is undone before its memory is free") {
  GpuRig rig;
  GpuRegion region = rig.MustRegister();
  rig.LoseDaemon();
  rig.process.End();
  rig.daemon.script.hold = static_cast<uint16_t>(Kind::kRegisterGpuMemory);
  rig.daemon.Start();
  REQUIRE(rig.transport->WaitConnected(Deadline(10'000)));
  CHECK(rig.PutRuns("a", {{region.id(), 0, 10}}, {.deadline = kUnanswered}) ==
        PutStatus::kUnfinished);
  CHECK(absl::IsDeadlineExceeded(rig.last));
  CHECK(absl::IsDeadlineExceeded(region.Unregister(Deadline(20))));
  REQUIRE(Eventually([&] { return rig.daemon.requests(Kind::kRegisterGpuMemory) == 2; }));
  rig.daemon.script.hold = 0;
  rig.daemon.Let();
  CHECK(region.Unregister(Deadline(10'000)) == absl::OkStatus());
  CHECK(rig.gpu->unregistered() == 1);
}

TEST_CASE("a region that is dropped is unregistered also while an earlier end is under way") {
  GpuRig rig;
  {
    const GpuRegion region = rig.MustRegister();
    rig.LoseDaemon();
    rig.process.End();
    rig.daemon.script.hold = static_cast<uint16_t>(Kind::kRegisterGpuMemory);
    rig.daemon.Start();
    REQUIRE(rig.transport->WaitConnected(Deadline(10'000)));
    REQUIRE(rig.PutRuns("a", {{region.id(), 0, 10}}, {.deadline = kUnanswered}) ==
            PutStatus::kUnfinished);
    REQUIRE(absl::IsDeadlineExceeded(rig.last));
    REQUIRE(Eventually([&] { return rig.daemon.requests(Kind::kRegisterGpuMemory) == 2; }));
    rig.daemon.script.hold = static_cast<uint16_t>(Kind::kUnregisterGpuMemory);
    rig.daemon.Let();  // it came too late: its end is requested
    REQUIRE(Eventually([&] { return rig.daemon.requests(Kind::kUnregisterGpuMemory) == 1; }));
    REQUIRE(Eventually([&] {
      return rig.PutRuns("a", {{region.id(), 0, 10}}) == PutStatus::kStored;
    }));
  }
  CHECK(Eventually([&] { return rig.daemon.requests(Kind::kUnregisterGpuMemory) == 2; }));
  rig.daemon.script.hold = 0;
  rig.daemon.Let();
  CHECK(Eventually([&] { return rig.gpu->unregistered() == 2; }));
}

TEST_CASE("after the session's end memory may be freed when the daemon's process has ended") {
  GpuRig rig;
  GpuRegion region = rig.MustRegister();
  rig.daemon.Stop();
  REQUIRE(Eventually([&] { return !rig.transport->WaitConnected(Deadline(0)); }));
  CHECK(absl::IsUnavailable(region.Unregister(Deadline(1000))));
  rig.process.End();
  CHECK(region.Unregister(Deadline(1000)).ok());
}

TEST_CASE("memory is not free at the next daemon while the one of before is still ending") {
  GpuRig rig;
  GpuRegion region = rig.MustRegister();
  rig.LoseDaemon();
  rig.daemon.Start();
  REQUIRE(rig.transport->WaitConnected(Deadline(10'000)));
  REQUIRE(rig.PutRuns("a", {{region.id(), 0, 10}}) == PutStatus::kStored);
  CHECK(absl::IsUnavailable(region.Unregister(Deadline(10'000))));
  rig.process.End();
  CHECK(region.Unregister(Deadline(10'000)) == absl::OkStatus());
  CHECK(rig.gpu->unregistered() == 1);
}

TEST_CASE("a daemon that lives on closes the memory of an earlier connection first") {
  GpuRig rig(Deadline(10'000), [](int) -> absl::StatusOr<UniqueFd> {
    return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  });
  GpuRegion region = rig.MustRegister();
  rig.LoseDaemon();
  rig.daemon.Start();
  REQUIRE(rig.transport->WaitConnected(Deadline(10'000)));
  REQUIRE(rig.PutRuns("a", {{region.id(), 0, 10}}) == PutStatus::kStored);
  CHECK(region.Unregister(Deadline(10'000)) == absl::OkStatus());
}

TEST_CASE("a region may outlive its transport") {
  GpuRegion region;
  {
    GpuRig rig;
    region = rig.MustRegister();
  }
  CHECK_FALSE(region.in_use());
  CHECK(region.bytes() == kRegionBytes);
}

TEST_CASE("threads that put and get at once do not mix up their answers") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 50; ++i) {
        const uint64_t at = t * 100'000, bytes = 100 + i;
        const ChunkKey key = Key(std::to_string(t) + "/" + std::to_string(i));
        rig.Write(at, Bytes(bytes, t * 1000 + i));
        const auto put = rig.PutGpu({{.key = key, .runs = {{region.id(), at, bytes}}}});
        const auto got = rig.GetGpu({{.key = key, .runs = {{region.id(), at + 50'000, bytes}}}});
        const bool good = put.ok() && got.ok() && put->chunks[0].status == PutStatus::kStored &&
                          got->chunks[0].status == GetStatus::kHit &&
                          rig.Read(at + 50'000, bytes) == Bytes(bytes, t * 1000 + i);
        wrong += !good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK_FALSE(region.in_use());
}

}  // namespace
}  // namespace kvkeep::client
