// A real kvkeepd on the fake driver: its GPU path from the socket to the GPU and back, and what
// happens when a part of it dies, hangs or breaks.
#include "tests/e2e/daemon.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <numeric>
#include <optional>

#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/gpu/gpu_worker.h"

namespace kvkeep {
namespace {

constexpr uint32_t kChunk = 256 * 1024;
constexpr uint64_t kMemory = 4 << 20;

e2e::Settings WithLocal(const std::string& mode = "auto") {
  e2e::Settings settings;
  settings.local = true;
  settings.devices.clear();
  settings.extra = absl::StrCat("gpu: {mode: ", mode, "}\n");
  return settings;
}

// All of a memory of kMemory bytes, cut into chunks.
std::vector<TestGpuChunk> AllChunks(uint32_t registration, uint64_t generation,
                                    uint64_t first_name = 1) {
  std::vector<TestGpuChunk> chunks;
  for (uint64_t at = 0; at < kMemory; at += kChunk) {
    chunks.push_back({.name = first_name + at / kChunk,
                      .registration = registration,
                      .generation = generation,
                      .offset = at,
                      .bytes = kChunk,
                      .runs = 8});
  }
  return chunks;
}

bool AllAre(const std::string& answers, const std::string& word) {
  const size_t chunks = kMemory / kChunk;
  size_t found = 0;
  for (size_t at = answers.find(word); at != std::string::npos; at = answers.find(word, at + 1)) {
    ++found;
  }
  return found == chunks && !absl::StrContains(answers, "rejected");
}

struct Rig {
  explicit Rig(const std::string& mode = "auto") : site(WithLocal(mode)) { site.Start(); }
  uint64_t registrations() const { return site.Counter("local_gpu_registrations"); }
  bool arena_registered() const {
    const auto status = site.Status();
    return status.counters().at("gpu_arena_registered_bytes") >= status.g2().capacity_bytes();
  }

  FakeCuda fake;
  GpuSession gpu;  // of the worker in this process
  e2e::Site site;
};

// Puts from this process's GPU memory, and gets back into another part of it.
void CheckServes(Rig& rig, uint64_t name) {
  GpuWorker worker(rig.site.local_socket());
  const CUdeviceptr memory = rig.gpu.Alloc(kMemory);
  rig.gpu.Write(memory, Pattern(kChunk, static_cast<int>(name)));
  CUipcMemHandle handle = {};
  GpuSession::Require(rig.gpu.driver().IpcGetMemHandle(&handle, memory));
  const uint32_t number = worker.Register(GpuRangeOf(rig.gpu, handle, kMemory, 1'000'000 + name));
  TestGpuChunk chunk{.name = name,
                     .registration = number,
                     .generation = 1'000'000 + name,
                     .bytes = kChunk,
                     .runs = 3};
  CHECK(worker.PutFromGpu({chunk}) == "stored");
  CHECK(worker.Look(name) == Pattern(kChunk, static_cast<int>(name)));
  chunk.offset = kChunk * 5;
  CHECK(worker.GetToGpu({chunk}) == "copied ");
  CHECK(rig.gpu.Read(memory + chunk.offset, kChunk) == Pattern(kChunk, static_cast<int>(name)));
  CHECK(worker.Unregister(number, chunk.generation).ok());
  GpuSession::Require(rig.gpu.driver().MemFree(memory));  // strict: no process has it open
}

size_t Entries(const std::string& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

TEST_CASE("what a worker puts from its GPU memory another gets into its own") {
  Rig rig;
  Exporter from, to;
  const bool descriptors = GENERATE(false, true);
  GpuWorker writer(rig.site.local_socket()), reader(rig.site.local_socket());
  uint32_t source = 0, target = 0;
  if (descriptors) {
    local::RegisterGpuMemory range = GpuRangeOf(rig.gpu, kMemory, 1);
    range.kind = local::kGpuDescriptor;
    source = writer.Register(range, from.AllocVmm(kMemory, 1).get());
    target = reader.Register(range, to.AllocVmm(kMemory, 2).get());
  } else {
    source = writer.Register(GpuRangeOf(rig.gpu, from.Alloc(kMemory, 1), kMemory, 1));
    target = reader.Register(GpuRangeOf(rig.gpu, to.Alloc(kMemory, 2), kMemory, 1));
  }
  CHECK(AllAre(writer.PutFromGpu(AllChunks(source, 1)), "stored"));
  CHECK(AllAre(reader.GetToGpu(AllChunks(target, 1)), "copied"));
  CHECK(to.Holds(1));
  CHECK(rig.site.Counter("local_gpu_get_bytes") == kMemory);
  CHECK(rig.registrations() == 2);
  CHECK(reader.Unregister(target, 1).ok());
  CHECK(writer.Unregister(source, 1).ok());
  if (!descriptors) {
    from.Free();
    to.Free();
  }
}

TEST_CASE("status, log and metrics say whether the path is on, and why not") {
  std::string mode = "auto", wanted = "on, driver of CUDA 13.0, 0 GPUs in use";
  std::string settings;
  SECTION("on") {}
  SECTION("turned off") { mode = "off", wanted = "off: gpu.mode is off"; }
  SECTION("no device") { settings = "devices 0\n", wanted = "off: cuInit: CUDA_ERROR_NO_DEVICE"; }
  SECTION("a driver that lacks something") {
    settings = "missing cuStreamCreate\n", wanted = "off: the CUDA driver has no cuStreamCreate";
  }
  FakeCuda fake;
  fake.Set(settings);
  e2e::Site site(WithLocal(mode));
  site.settings.metrics = absl::StrCat("127.0.0.1:", FreePort());
  site.Start();
  CHECK(absl::StartsWith(site.Status().gpu(), wanted));
  CHECK(site.AwaitLog(wanted));
  const int port = std::stoi(site.settings.metrics.substr(10));
  CHECK(absl::StrContains(
      e2e::HttpGet(port, "/metrics"),
      absl::StrCat("kvkeep_gpu_path_on_info ", absl::StartsWith(wanted, "on") ? 1 : 0)));
  GpuWorker worker(site.local_socket());
  if (absl::StartsWith(wanted, "off")) {
    const auto refused = worker.TryRegister({.generation = 1, .kind = local::kGpuIpcHandle});
    CHECK(absl::IsFailedPrecondition(refused.status()));
    CHECK(absl::StrContains(refused.status().message(), wanted.substr(5)));
  }
  CHECK(worker.Put(1, MakePayload(1, 1, 5000)) == "stored");
}

TEST_CASE("a daemon that must have the path does not start without it, and says why") {
  FakeCuda fake;
  fake.Set("devices 0\n");
  e2e::Site site(WithLocal("required"));
  const e2e::Ending ending = site.StartAndAwaitEnd();
  CHECK(ending.exit_status == 1);
  CHECK(absl::StrContains(ending.err, "gpu.mode is required: cuInit: CUDA_ERROR_NO_DEVICE"));
  fake.Set("");
  site.Start();
  CHECK(site.Stop().exit_status == 0);
}

TEST_CASE("a worker that is killed during a copy costs nobody else a byte or a place") {
  Rig rig;
  GpuWorker other(rig.site.local_socket());
  std::optional<Exporter> worker(std::in_place);
  std::optional<GpuWorker> session(std::in_place, rig.site.local_socket());
  const uint32_t number =
      session->Register(GpuRangeOf(rig.gpu, worker->Alloc(kMemory, 1), kMemory, 1));
  rig.fake.Set("hang stream\n");
  session->Send(local::Kind::kPutFromGpu, GpuPutBody(session->ns, AllChunks(number, 1)));
  CHECK(e2e::Eventually([&] { return rig.site.Counter("local_puts_copying") == 1; }));
  worker->Kill();
  session.reset();
  CHECK(other.Put(100, MakePayload(100, 1, 5000)) == "stored");  // while it hangs
  CHECK(e2e::Eventually([&] { return rig.site.Status().sessions_size() == 1; }));
  rig.fake.Set("");
  CHECK(e2e::Eventually([&] { return rig.registrations() == 0; }));
  // The memory goes back before the put is over.
  CHECK(e2e::Eventually([&] { return rig.site.Counter("local_puts_copying") == 0; }));
  CHECK(rig.site.Status().g2().reserved_bytes() == 0);
  for (const TestGpuChunk& chunk : AllChunks(0, 0)) CHECK(other.Look(chunk.name).empty());
  CheckServes(rig, 200);
  CHECK(rig.site.Stop().exit_status == 0);
}

TEST_CASE("a daemon killed during a copy leaves the worker its memory; what it knew is stale") {
  Rig rig;
  Exporter memory;
  const CUipcMemHandle handle = memory.Alloc(kMemory, 1);
  {
    GpuWorker worker(rig.site.local_socket());
    const uint32_t number = worker.Register(GpuRangeOf(rig.gpu, handle, kMemory, 1));
    REQUIRE(AllAre(worker.PutFromGpu(AllChunks(number, 1)), "stored"));
    rig.fake.Set("hang stream\n");
    worker.Send(local::Kind::kPutFromGpu, GpuPutBody(worker.ns, AllChunks(number, 1, 101)));
    CHECK(e2e::Eventually([&] { return rig.site.Counter("local_puts_copying") == 1; }));
    rig.site.Kill();
    CHECK(worker.Receive().kind == 0);  // closed, and no reply before
  }
  rig.fake.Set("");
  CHECK(memory.Holds(1));
  rig.site.Start();
  GpuWorker worker(rig.site.local_socket());
  const uint32_t number = worker.Register(GpuRangeOf(rig.gpu, handle, kMemory, 2));
  CHECK(number == 1);  // equal to the earlier one, except for its generation
  CHECK(absl::StrContains(worker.PutFromGpu(AllChunks(1, 1)), "of generation 2, not 1"));
  CHECK(absl::IsInvalidArgument(worker.Unregister(1, 1)));
  for (const TestGpuChunk& chunk : AllChunks(1, 2, 101)) CHECK(worker.Look(chunk.name).empty());
  CHECK(AllAre(worker.PutFromGpu(AllChunks(1, 2)), "stored"));
}

TEST_CASE(
    "a context that breaks, or hangs, fails what it had; the next registration has a new one") {
  Rig rig;
  Exporter memory;
  GpuWorker worker(rig.site.local_socket()), other(rig.site.local_socket());
  const CUipcMemHandle handle = memory.Alloc(kMemory, 1);
  const uint32_t number = worker.Register(GpuRangeOf(rig.gpu, handle, kMemory, 1));
  REQUIRE(AllAre(worker.PutFromGpu(AllChunks(number, 1)), "stored"));
  // Otherwise its thread would break the context that comes after the reset, while "sticky" stands.
  REQUIRE(e2e::Eventually([&] { return rig.arena_registered(); }));
  uint32_t timeout_ms = 10'000;  // the copy fails long before
  SECTION("an illegal address") { rig.fake.Set("sticky 700\n"); }
  SECTION("a launch that failed") { rig.fake.Set("sticky 719\n"); }
  SECTION("a stream that does not get on") {
    rig.fake.Set("hang stream\n");
    timeout_ms = 500;
  }
  worker.Send(local::Kind::kPutFromGpu,
              GpuPutBody(worker.ns, AllChunks(number, 1, 101), timeout_ms));
  CHECK(other.Put(1000, MakePayload(1000, 1, 5000)) == "stored");
  const std::string answers = ReadAnswers(worker.Receive());
  CHECK(absl::StrContains(answers, "rejected 7"));
  CHECK_FALSE(absl::StrContains(answers, "stored"));
  rig.fake.Set("");
  CHECK(absl::StrContains(rig.site.Status().gpu(), "1 given up: "));
  CHECK(rig.site.Status().g2().reserved_bytes() == 0);
  // The old registration stays refused; earlier chunks are there, and no others.
  CHECK(absl::StrContains(worker.PutFromGpu(AllChunks(number, 1, 201)), "rejected 7"));
  CHECK(worker.Look(101).empty());
  CHECK(worker.Look(1) == Pattern(kChunk, 1));
  CHECK(worker.Unregister(number, 1).ok());
  CheckServes(rig, 300);
  CHECK(rig.site.Stop().exit_status == 0);
}

TEST_CASE("a driver call that never returns costs its request the reply, and nobody else a thing") {
  Rig rig;
  Exporter memory;
  GpuWorker worker(rig.site.local_socket()), other(rig.site.local_socket());
  const CUipcMemHandle handle = memory.Alloc(kMemory, 1);
  const uint32_t number = worker.Register(GpuRangeOf(rig.gpu, handle, kMemory, 1));
  rig.fake.Set("hang cuMemcpyBatchAsync\n");
  worker.Send(local::Kind::kPutFromGpu, GpuPutBody(worker.ns, AllChunks(number, 1), 100));
  const auto kept = [&] { return rig.site.Counter("local_gpu_kept_requests") == 1; };
  CHECK(e2e::Eventually(kept, e2e::milliseconds(60'000)));
  const uint64_t reserved = rig.site.Status().g2().reserved_bytes();
  CHECK(reserved >= kMemory);
  CHECK(absl::StrContains(rig.site.Status().gpu(), "1 given up: the GPU's driver does not answer"));
  const auto refused = other.TryRegister(GpuRangeOf(rig.gpu, handle, kMemory, 2));
  CHECK(absl::IsUnavailable(refused.status()));
  // It comes back after all, without effect, as clients were told that it would not.
  rig.fake.Set("");
  CHECK(other.Put(100, MakePayload(100, 1, 5000)) == "stored");
  CHECK(other.Look(100) == MakePayload(100, 1, 5000));
  for (const TestGpuChunk& chunk : AllChunks(0, 0)) CHECK(other.Look(chunk.name).empty());
  CHECK(rig.site.Status().g2().reserved_bytes() == reserved);
  pollfd reply{.fd = worker.socket.get(), .events = POLLIN, .revents = 0};
  CHECK(poll(&reply, 1, 0) == 0);
}

// Puts with deadlines that some of them miss, and blocks that are reused as soon as the reply is
// there.
TEST_CASE("blocks that are reused at once under slow copies never show as wrong bytes") {
  Rig rig;
  rig.fake.Set("copy_delay_us 300\n");
  constexpr int kSlots = 8;
  GpuWorker worker(rig.site.local_socket()), other(rig.site.local_socket());
  const CUdeviceptr memory = rig.gpu.Alloc(kSlots * kChunk);
  CUipcMemHandle handle = {};
  GpuSession::Require(rig.gpu.driver().IpcGetMemHandle(&handle, memory));
  const auto range = GpuRangeOf(rig.gpu, handle, kSlots * kChunk, 1);
  const uint32_t number = worker.Register(range);
  // The handle is open for another session, so what it would map is uncertain.
  CHECK(absl::IsAlreadyExists(other.TryRegister(range).status()));
  std::array<uint64_t, kSlots> ids{};
  std::vector<uint64_t> stored;
  size_t late = 0;
  const auto collect = [&](const SentMessage& reply) {
    const auto slot =
        static_cast<size_t>(std::find(ids.begin(), ids.end(), reply.id) - ids.begin());
    REQUIRE(slot < kSlots);
    const std::string answer = ReadAnswers(reply);
    if (answer == "stored") stored.push_back(ids[slot]);
    late += absl::StartsWith(answer, "rejected 7");
    ids[slot] = 0;
    rig.gpu.Write(memory + slot * kChunk, Pattern(kChunk, 7777));
    return slot;
  };
  for (uint64_t i = 0; i < 200; ++i) {
    size_t slot = i;
    if (i >= kSlots) slot = collect(worker.Receive());
    // The message's id is the chunk's name, and its bytes follow from it.
    const uint64_t name = worker.next_id();
    rig.gpu.Write(memory + slot * kChunk, Pattern(kChunk, static_cast<int>(name)));
    const TestGpuChunk chunk{.name = name,
                             .registration = number,
                             .offset = slot * kChunk,
                             .bytes = kChunk,
                             .runs = 1 + static_cast<uint32_t>(i % 5)};
    ids[slot] =
        worker.Send(local::Kind::kPutFromGpu, GpuPutBody(worker.ns, {chunk}, i % 3 == 0 ? 1 : 0));
  }
  for (int i = 0; i < kSlots; ++i) collect(worker.Receive());
  INFO(stored.size() << " stored, " << late << " late");
  CHECK(stored.size() + late == 200);
  CHECK(stored.size() > 100);
  size_t found = 0;
  for (const uint64_t name : stored) {
    const auto seen = other.Look(name);
    found += !seen.empty();
    REQUIRE((seen.empty() || seen == Pattern(kChunk, static_cast<int>(name))));
  }
  CHECK(found > 100);  // the others were evicted
}

// Gets with deadlines that some of them miss, and blocks that are written as soon as the reply is
// there, and then left alone for a while.
TEST_CASE("blocks that were got into are never written once their reply is there") {
  Rig rig;
  rig.fake.Set("copy_delay_us 300\n");
  constexpr size_t kSlots = 16, kUnderWay = 8;
  GpuWorker worker(rig.site.local_socket());
  const CUdeviceptr memory = rig.gpu.Alloc(kSlots * kChunk);
  CUipcMemHandle handle = {};
  GpuSession::Require(rig.gpu.driver().IpcGetMemHandle(&handle, memory));
  const uint32_t number = worker.Register(GpuRangeOf(rig.gpu, handle, kSlots * kChunk, 1));
  constexpr uint64_t kNames = 8;
  for (uint64_t name = 1; name <= kNames; ++name) {
    REQUIRE(worker.Put(name, Pattern(kChunk, static_cast<int>(name))) == "stored");
  }
  struct Slot {
    uint64_t id = 0, name = 0;
    int written = 0;  // by its owner, since the last reply; 0: nothing
  };
  std::array<Slot, kSlots> slots;
  std::deque<size_t> idle(kSlots);
  std::iota(idle.begin(), idle.end(), 0);
  size_t copied = 0, late = 0;
  const auto holds = [&](size_t slot, uint64_t what) {
    return rig.gpu.Read(memory + slot * kChunk, kChunk) == Pattern(kChunk, static_cast<int>(what));
  };
  const auto collect = [&] {
    const SentMessage reply = worker.Receive();
    const auto found = std::find_if(slots.begin(), slots.end(),
                                    [&](const Slot& slot) { return slot.id == reply.id; });
    REQUIRE(found != slots.end());
    const auto at = static_cast<size_t>(found - slots.begin());
    const bool whole = absl::StartsWith(ReadGpuAnswers(reply), "copied");
    if (whole) REQUIRE(holds(at, found->name));
    ++(whole ? copied : late);
    *found = {.written = 5000 + static_cast<int>(copied + late)};
    rig.gpu.Write(memory + at * kChunk, Pattern(kChunk, found->written));
    idle.push_back(at);
  };
  constexpr uint64_t kGets = 200;
  for (uint64_t i = 0; i < kGets; ++i) {
    if (kSlots - idle.size() == kUnderWay) collect();
    const size_t at = idle.front();
    idle.pop_front();
    if (slots[at].written != 0) REQUIRE(holds(at, static_cast<uint64_t>(slots[at].written)));
    const uint64_t name = 1 + i % kNames;
    const TestGpuChunk chunk{.name = name,
                             .registration = number,
                             .offset = at * kChunk,
                             .bytes = kChunk,
                             .runs = 1 + static_cast<uint32_t>(i % 5)};
    slots[at] = {.name = name};
    slots[at].id =
        worker.Send(local::Kind::kGetToGpu,
                    GpuGetBody(worker.ns, {chunk}, {.timeout_ms = i % 3 == 0 ? 1u : 0u}));
  }
  while (copied + late < kGets) collect();
  INFO(copied << " copied, " << late << " late");
  CHECK(copied > kGets / 2);
  for (size_t at = 0; at < kSlots; ++at) {
    CHECK(holds(at, static_cast<uint64_t>(slots[at].written)));
  }
}

TEST_CASE("a worker that frees registered memory, against the rules, harms nobody else") {
  Rig rig;
  rig.fake.Set("strict 0\n");
  Exporter memory;
  GpuWorker worker(rig.site.local_socket()), other(rig.site.local_socket());
  const CUipcMemHandle handle = memory.Alloc(kMemory, 1);
  const uint32_t number = worker.Register(GpuRangeOf(rig.gpu, handle, kMemory, 1));
  REQUIRE(AllAre(worker.PutFromGpu(AllChunks(number, 1)), "stored"));
  memory.Free();
  const CUipcMemHandle again = memory.Alloc(kMemory, 2);
  REQUIRE(std::equal(std::begin(again.reserved), std::end(again.reserved), handle.reserved));
  // The old mapping would be given for the new memory, so it must not be open.
  CHECK(absl::IsAlreadyExists(other.TryRegister(GpuRangeOf(rig.gpu, again, kMemory, 2)).status()));
  // Its chunks stay as they were, its puts and gets end, and no other client waits for it.
  CHECK(other.Look(1) == Pattern(kChunk, 1));
  CHECK(AllAre(worker.PutFromGpu(AllChunks(number, 1, 101)), "stored"));
  CHECK(AllAre(worker.GetToGpu(AllChunks(number, 1, 101)), "copied"));
  CHECK(memory.Holds(2));
  CHECK(worker.Unregister(number, 1).ok());
  const uint32_t fresh = other.Register(GpuRangeOf(rig.gpu, again, kMemory, 2));
  CHECK(AllAre(other.PutFromGpu(AllChunks(fresh, 2, 201)), "stored"));
  CHECK(worker.Look(201) == Pattern(kChunk, 2));
  CHECK(other.Unregister(fresh, 2).ok());
  CheckServes(rig, 300);
  CHECK(rig.site.Stop().exit_status == 0);
}

TEST_CASE("nothing is left in the daemon of 10,000 registrations") {
  Rig rig;
  Exporter memory;
  GpuWorker worker(rig.site.local_socket());
  const CUipcMemHandle handle = memory.Alloc(kMemory, 1);
  const auto once = [&](uint64_t generation) {
    const uint32_t number = worker.Register(GpuRangeOf(rig.gpu, handle, kMemory, generation));
    REQUIRE(worker.Unregister(number, generation).ok());
  };
  once(1);
  const std::string process = absl::StrCat("/proc/", rig.site.Status().pid());
  const size_t descriptors = Entries(process + "/fd"), maps = Entries(process + "/map_files");
  for (uint64_t i = 2; i <= 10'000; ++i) once(i);
  CHECK(Entries(process + "/fd") <= descriptors + 2);
  CHECK(Entries(process + "/map_files") <= maps + 8);
  CHECK(rig.registrations() == 0);
  memory.Free();  // strict: the process would end if the daemon still had it open
}

// "first" may use the fake's first GPU, "none" no GPU; the default tenant all of them.
struct TenantRig {
  TenantRig() : site(WithLocal()) {
    fake.Set(kSettings);
    site.settings.segment_bytes = "16MiB";
    absl::StrAppend(&site.settings.extra, "tenants:\n",
                    Tenant("first", "[GPU-6b766b65-6570-2d66-616b-650000006700]"),
                    Tenant("none", "[]"));
    site.Start();
  }
  std::string Tenant(const std::string& name, const std::string& gpus) const {
    return absl::StrCat("  - {name: ", name, ", unix: ", site.path(name + ".sock"),
                        ", local: ", socket(name), ", g2_share: 25%, gpus: ", gpus, "}\n");
  }
  std::string socket(const std::string& tenant) const { return site.path(tenant + "-local.sock"); }
  local::RegisterGpuMemory Of(uint8_t device, uint64_t generation) {
    local::RegisterGpuMemory range = GpuRangeOf(gpu, kMemory, generation);
    range.gpu_uuid.back() = device;
    range.kind = local::kGpuDescriptor;
    return range;
  }
  bool opened() const { return !absl::StrContains(site.Status().gpu(), "0 GPUs in use"); }

  static constexpr char kSettings[] = "devices 2\n";
  FakeCuda fake;
  e2e::Site site;
  GpuSession gpu;
};

TEST_CASE("a tenant registers memory of its GPUs only, by descriptors only, and opens no other") {
  TenantRig rig;
  Exporter memory, by_handle;
  const UniqueFd fd = memory.AllocVmm(kMemory, 1);
  const CUipcMemHandle handle = by_handle.Alloc(kMemory, 2);
  GpuWorker first(rig.socket("first")), none(rig.socket("none"));
  GpuWorker standard(rig.site.local_socket());
  CHECK(absl::IsPermissionDenied(first.TryRegister(rig.Of(1, 1), fd.get()).status()));
  CHECK(absl::IsPermissionDenied(none.TryRegister(rig.Of(0, 1), fd.get()).status()));
  const auto legacy = GpuRangeOf(rig.gpu, handle, kMemory, 1);
  const absl::Status refused = first.TryRegister(legacy).status();
  CHECK(absl::IsPermissionDenied(refused));
  CHECK(absl::StrContains(refused.message(), "pass a descriptor"));
  CHECK(rig.site.Counter("local_gpu_denied") == 3);
  auto nothing = legacy;
  nothing.bytes = 0;
  CHECK(absl::IsInvalidArgument(standard.TryRegister(nothing).status()));
  CHECK_FALSE(rig.opened());
  auto neighbours = legacy;  // memory of the first GPU, declared as the second's
  neighbours.gpu_uuid.back() = 1;
  CHECK(absl::IsInvalidArgument(standard.TryRegister(neighbours).status()));

  const uint32_t number = first.Register(rig.Of(0, 1), fd.get());
  CHECK(AllAre(first.PutFromGpu(AllChunks(number, 1)), "stored"));
  const uint32_t by_default = standard.Register(legacy);
  CHECK(AllAre(standard.PutFromGpu(AllChunks(by_default, 1)), "stored"));
  CHECK(rig.site.Stop().exit_status == 0);
}

TEST_CASE("a tenant that breaks the context again and again loses the GPU path, others keep it") {
  TenantRig rig;
  Exporter memory, others;
  const UniqueFd fd = memory.AllocVmm(kMemory, 1), theirs = others.AllocVmm(kMemory, 2);
  const auto registered = [&] {
    const auto status = rig.site.Status();
    return status.counters().at("gpu_arena_registered_bytes") >= status.g2().capacity_bytes();
  };
  GpuWorker first(rig.socket("first")), standard(rig.site.local_socket());
  uint64_t generation = 1;
  for (int strike = 0; strike < 8; ++strike, ++generation) {
    INFO("strike " << strike);
    const uint32_t number = first.Register(rig.Of(0, generation), fd.get());
    REQUIRE(e2e::Eventually(registered));
    rig.fake.Set(absl::StrCat(TenantRig::kSettings, "sticky 700\n"));
    const std::string answers = first.PutFromGpu(AllChunks(number, generation), 10'000);
    CHECK(absl::StrContains(answers, "rejected 7"));
    rig.fake.Set(TenantRig::kSettings);
    CHECK(first.Unregister(number, generation).ok());
  }
  const absl::Status refused = first.TryRegister(rig.Of(0, generation), fd.get()).status();
  CHECK(absl::IsUnavailable(refused));
  CHECK(absl::StrContains(refused.message(), "this tenant may use no GPU until the daemon starts"));
  CHECK(absl::StrContains(rig.site.Status().gpu(), "refused to 1 tenants"));
  CHECK(first.Put(900, MakePayload(900, 1, 5000)) == "stored");
  const uint32_t number = standard.Register(rig.Of(0, 1), theirs.get());
  CHECK(AllAre(standard.PutFromGpu(AllChunks(number, 1)), "stored"));
  CHECK(standard.Look(1) == Pattern(kChunk, 2));
  CHECK(rig.site.Stop().exit_status == 0);
}

}  // namespace kvkeep
