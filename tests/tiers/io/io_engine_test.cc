// Behaviour of the engines beyond moving bytes: limits, preference, registered memory, stopping,
// idling.
#include "tiers/io/io_engine.h"

#include <absl/strings/str_cat.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "tests/tiers/io/io_test_util.h"
#include "tests/tiers/io/rings.h"
#include "tests/tiers/store/sleeping_thread.h"

namespace kvkeep {
namespace {

using Kind = IoOperation::Kind;

std::unique_ptr<IoEngine> MakeEngine(IoMode mode, uint32_t threads = 4, uint32_t ring = 256) {
  auto engine = CreateIoEngine({.mode = mode, .ring_entries = ring, .fallback_threads = threads});
  REQUIRE(engine.ok());
  return *std::move(engine);
}

std::unique_ptr<Device> OpenOn(IoEngine& engine, const DeviceOptions& options) {
  auto device = engine.Open(options);
  REQUIRE(device.ok());
  return *std::move(device);
}

// Waits until a thread that is about to destroy an engine waits for the engine's threads.
void AwaitWait(pid_t thread) {
  while (!Sleeps(thread)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // for that thread
  }
}

// Returns voluntary context switches so far of this process's threads whose name starts with
// `prefix`.
uint64_t WakeUps(const std::string& prefix) {
  uint64_t wake_ups = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, word;
    std::ifstream(task.path() / "comm") >> name;
    if (name.rfind(prefix, 0) != 0) continue;
    std::ifstream status(task.path() / "status");
    while (status >> word) {
      if (word != "voluntary_ctxt_switches:") continue;
      uint64_t count = 0;
      status >> count;
      wake_ups += count;
    }
  }
  return wake_ups;
}

// Returns the processor time of this process so far.
double CpuSeconds() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

std::vector<IoMode> EnginesHere() {
  return HasRings() ? std::vector{IoMode::kUring, IoMode::kThreads} : std::vector{IoMode::kThreads};
}

#define EVERY_ENGINE() GENERATE(from_range(EnginesHere()))

}  // namespace

TEST_CASE("options out of range are refused by name") {
  CHECK(IoEngineOptions{}.Validate().ok());
  CHECK(CreateIoEngine({.ring_entries = 100}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(IoEngineOptions{.ring_entries = 4}.Validate().ok());
  CHECK_FALSE(IoEngineOptions{.ring_entries = 8192}.Validate().ok());
  CHECK_FALSE(IoEngineOptions{.fallback_threads = 0}.Validate().ok());
  CHECK_FALSE(IoEngineOptions{.fallback_threads = 65}.Validate().ok());
  CHECK(DeviceOptions{.path = "x"}.Validate().ok());
  CHECK_FALSE(DeviceOptions{}.Validate().ok());
  CHECK_FALSE(DeviceOptions{.path = "x", .depth = 0}.Validate().ok());
  CHECK_FALSE(DeviceOptions{.path = "x", .depth = 1025}.Validate().ok());
  CHECK_FALSE(DeviceOptions{.path = "x", .max_io_bytes = 5000}.Validate().ok());
  CHECK_FALSE(DeviceOptions{.path = "x", .max_io_bytes = 0}.Validate().ok());
  CHECK_FALSE(DeviceOptions{.path = "x", .max_io_bytes = 2 * kGiB}.Validate().ok());
}

TEST_CASE("a path that cannot be a device is refused with what to do") {
  auto engine = MakeEngine(EVERY_ENGINE());
  TempFile small(100);
  CHECK(engine->Open({.path = small.path() + ".absent"}).status().code() ==
        absl::StatusCode::kNotFound);
  CHECK(engine->Open({.path = small.path()}).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(engine->Open({.path = "/dev/null"}).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(engine->Open({.path = "/tmp", .read_only = true}).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(engine->Open({.path = small.path(), .depth = 0}).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("an engine that goes before its device ends what waits, and what is asked for then") {
  auto engine = MakeEngine(EVERY_ENGINE(), /*threads=*/1, /*ring=*/8);
  TempFile file(8 * kMiB);
  auto device = OpenOn(*engine, {.path = file.path(), .depth = 1});
  AlignedBytes memory(kMiB);
  constexpr int kOperations = 200;
  Gate before, within;
  std::atomic<int> done = 0, unavailable = 0, refused = 0;
  const auto write = [&](auto then) {
    device->Submit({.kind = Kind::kWrite,
                    .offset = DeviceOffset(0),
                    .data = memory.data(),
                    .bytes = kMiB,
                    .done = std::move(then)});
  };
  write([&](const absl::Status&) { before.Park(); });
  before.WaitParked();
  for (int i = 0; i < kOperations; ++i) {
    write([&](const absl::Status& status) {
      if (++done == 1) within.Park();
      if (status.ok()) return;
      unavailable += absl::IsUnavailable(status);
      // From a callback, as the engine still exists then.
      write([&](const absl::Status& late) { refused += absl::IsUnavailable(late); });
    });
  }
  // When one of them has ended the others wait behind it, no longer on their way.
  before.Release();
  within.WaitParked();
  std::thread opener([&within, destroys = gettid()] {
    AwaitWait(destroys);
    within.Release();
  });
  engine = nullptr;
  opener.join();
  CHECK(done == kOperations);
  CHECK(unavailable > 0);
  CHECK(refused == unavailable);
}

TEST_CASE("a locked device has one owner at a time, whichever engine it is opened on") {
  auto engine = MakeEngine(EVERY_ENGINE());
  auto other_engine = MakeEngine(EVERY_ENGINE());
  TempFile file(kMiB);
  auto owner = OpenOn(*engine, {.path = file.path(), .lock = true});
  AlignedBytes memory(kBlockBytes);
  REQUIRE(Write(*owner, 0, memory.span()).ok());
  CHECK(other_engine->Open({.path = file.path(), .lock = true}).status().code() ==
        absl::StatusCode::kUnavailable);
  CHECK(other_engine->Open({.path = file.path()}).ok());  // a lock binds those who ask for it
  owner = nullptr;
  // The kernel releases the last operation's reference a little after its completion was seen.
  bool taken = false;
  for (int i = 0; i < 200 && !taken; ++i) {
    taken = other_engine->Open({.path = file.path(), .lock = true}).ok();
    if (!taken) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // for that
  }
  CHECK(taken);
}

TEST_CASE("each operation's time is noted, failed ones included, with the device's others") {
  const IoMode mode = EVERY_ENGINE();
  const TempFile first(8 * kBlockBytes), second(8 * kBlockBytes);
  const auto engine = MakeEngine(mode);
  DeviceTimes times;
  const MonotonicTime began = RealClock()->Now();
  {
    const auto device = OpenOn(*engine, {.path = first.path(), .times = &times});
    const auto other = OpenOn(*engine, {.path = second.path(), .times = &times});
    AlignedBytes memory(kBlockBytes), read(kBlockBytes), behind(kBlockBytes);
    Completions done;
    for (Device* const on : {device.get(), other.get()}) {
      on->Submit({.kind = Kind::kWrite,
                  .data = memory.data(),
                  .bytes = kBlockBytes,
                  .done = done.Expect()});
    }
    device->Submit({.data = read.data(), .bytes = kBlockBytes, .done = done.Expect()});
    device->Submit({.offset = DeviceOffset(8 * kBlockBytes),  // behind the end
                    .data = behind.data(),
                    .bytes = kBlockBytes,
                    .done = done.Expect()});
    done.Wait(4);
    CHECK(device->Sync().ok());
  }
  const auto passed = static_cast<uint64_t>((RealClock()->Now() - began).count());
  const DeviceTimesCounts counts = DeviceTimesCounts::Of(times);
  CHECK(counts.write.count() == 2);
  CHECK(counts.read.count() == 2);
  CHECK(counts.sync.count() == 1);
  for (const HistogramCounts* one : {&counts.read, &counts.write, &counts.sync}) {
    CHECK(one->sum > 0);
    CHECK(one->sum <= one->count() * passed);
  }
}

TEST_CASE("never more than depth are in the kernel, and all complete") {
  auto engine = MakeEngine(EVERY_ENGINE(), /*threads=*/8, /*ring=*/8);
  TempFile file(8 * kMiB);
  const uint32_t depth = GENERATE(1u, 3u, 40u);  // 40: above what a ring of 8 holds
  CAPTURE(depth);
  auto device = OpenOn(*engine, {.path = file.path(), .depth = depth, .max_io_bytes = 16 * kKiB});
  AlignedBytes memory(8 * kMiB);
  Completions completions;
  std::atomic<uint64_t> deepest = 0;
  for (size_t i = 0; i < 64; ++i) {
    const auto kind = i % 2 == 0 ? Kind::kRead : Kind::kWrite;
    const size_t at = i * 128 * kKiB;
    device->Submit(MakeOperation(kind, at, memory.span().subspan(at, 128 * kKiB),
                                 [&, done = completions.Expect()](absl::Status status) mutable {
                                   deepest = std::max<uint64_t>(deepest, engine->stats().in_flight);
                                   std::move(done)(std::move(status));
                                 }));
    deepest = std::max<uint64_t>(deepest, engine->stats().in_flight);
  }
  for (const absl::Status& status : completions.Wait(64)) CHECK(status.ok());
  CHECK(deepest <= depth);
  const IoEngine::Stats stats = engine->stats();
  CHECK(stats.reads == 32);
  CHECK(stats.writes == 32);
  CHECK(stats.read_bytes == 4 * kMiB);
  CHECK(stats.plain_buffer_ios + stats.fixed_buffer_ios >= 512);
  CHECK(stats.in_flight == 0);
  CHECK(stats.queued == 0);
}

TEST_CASE("reads overtake waiting writes, which still get one slot in four") {
  auto engine = MakeEngine(EVERY_ENGINE(), /*threads=*/1);
  TempFile file(kMiB);
  auto device = OpenOn(*engine, {.path = file.path(), .depth = 1});
  AlignedBytes memory(kMiB);
  const std::span<std::byte> block = memory.span().first(kBlockBytes);
  Gate gate;  // holds the engine's only thread while the queue builds up
  Completions completions;
  device->Submit(MakeOperation(Kind::kWrite, 0, block, [&](absl::Status) { gate.Park(); }));
  gate.WaitParked();
  std::string order;
  const auto submit = [&](Kind kind, char letter) {
    device->Submit(MakeOperation(kind, 0, block,
                                 [&, letter, done = completions.Expect()](absl::Status s) mutable {
                                   order += letter;
                                   std::move(done)(std::move(s));
                                 }));
  };
  for (int i = 0; i < 4; ++i) submit(Kind::kWrite, 'W');
  for (int i = 0; i < 6; ++i) submit(Kind::kRead, 'R');
  CHECK(engine->stats().queued == 10);
  gate.Release();
  completions.Wait(10);
  CHECK(order == "RRRWRRRWWW");
}

TEST_CASE("a file shortened after it was opened is DataLoss, not a wait or stale bytes") {
  auto engine = MakeEngine(EVERY_ENGINE());
  TempFile file(kMiB);
  auto device = OpenOn(*engine, {.path = file.path()});
  AlignedBytes memory(8 * kBlockBytes);
  const off_t keep = GENERATE(as<off_t>{}, 2 * kBlockBytes, 2 * kBlockBytes + 100);
  REQUIRE(truncate(file.path().c_str(), keep) == 0);
  CHECK(Read(*device, 0, memory.span()).code() == absl::StatusCode::kDataLoss);
  CHECK(Read(*device, 0, memory.span().first(2 * kBlockBytes)).ok());
  CHECK(engine->stats().short_resumed >= 1);
  CHECK(engine->stats().errors == 1);
}

TEST_CASE("a write the system has no room for is ResourceExhausted") {
  // RLIMIT_FSIZE stands in for a full disk: no privilege needed, and the same path as ENOSPC.
  auto engine = MakeEngine(IoMode::kThreads);
  TempFile file(kMiB);
  auto device = OpenOn(*engine, {.path = file.path()});
  AlignedBytes memory(kBlockBytes);
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight = {.rlim_cur = 64 * kKiB, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const absl::Status status = Write(*device, 128 * kKiB, memory.span());
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("I/O on registered memory uses it, other memory is counted as plain") {
  auto engine = MakeEngine(IoMode::kUring);
  TempFile file(4 * kMiB);
  auto device = OpenOn(*engine, {.path = file.path(), .max_io_bytes = 256 * kKiB});
  AlignedBytes registered(2 * kMiB), plain(kMiB);
  REQUIRE(engine->RegisterBuffer(registered.span()).ok());
  FillPattern(registered.span(), 1);

  REQUIRE(Write(*device, 0, registered.span().first(kMiB)).ok());
  CHECK(engine->stats().fixed_buffer_ios == 4);
  CHECK(engine->stats().plain_buffer_ios == 0);
  REQUIRE(Read(*device, 0, plain.span()).ok());
  CHECK(engine->stats().plain_buffer_ios == 4);
  REQUIRE(Read(*device, 0, registered.span().subspan(kMiB)).ok());
  CHECK(engine->stats().fixed_buffer_ios == 8);
  CHECK(SameBytes(registered.span().first(kMiB), plain.span()));
  CHECK(SameBytes(registered.span().first(kMiB), registered.span().subspan(kMiB)));
  CHECK(engine->describe().find("1 registered buffers") != std::string::npos);
}

TEST_CASE("a large memory is registered buffer by buffer, as far as the kernel has slots for it") {
  auto engine = MakeEngine(IoMode::kUring);
  TempFile file(kMiB);
  auto device = OpenOn(*engine, {.path = file.path()});
  // Small buffers stand for 1 GiB each. One more of them than there are slots.
  constexpr size_t kMost = IoEngine::kMaxRegisteredBuffers;
  AlignedBytes memory((kMost + 1) * kBlockBytes);
  const auto buffer = [&](size_t i) {
    return memory.span().subspan(i * kBlockBytes, kBlockBytes);
  };
  size_t registered = 0;
  absl::Status status;
  while (registered < kMost && (status = engine->RegisterBuffer(buffer(registered))).ok()) {
    ++registered;
  }
  // An unprivileged process may have a RLIMIT_MEMLOCK of less than these 64 MiB, so the test begins
  // there.
  if (registered < kMost) CHECK(absl::IsResourceExhausted(status));
  REQUIRE(registered > 100);
  CHECK(engine->describe().find(absl::StrCat(registered, " registered buffers")) !=
        std::string::npos);
  REQUIRE(Write(*device, 0, buffer(registered - 1)).ok());
  CHECK(engine->stats().fixed_buffer_ios == 1);
  CHECK(engine->stats().plain_buffer_ios == 0);

  const uint64_t refused = engine->stats().buffer_registration_failures;
  CHECK(absl::IsResourceExhausted(engine->RegisterBuffer(buffer(kMost))));
  CHECK(engine->stats().buffer_registration_failures == refused + 1);
  REQUIRE(Write(*device, 0, buffer(kMost)).ok());
  CHECK(engine->stats().fixed_buffer_ios == 1);
  CHECK(engine->stats().plain_buffer_ios == 1);
}

// Four files of one drive, and a device of another file whose callback holds up the engine's one
// thread, so that everything submitted meanwhile is there when it goes on.
struct FourFiles {
  FourFiles(IoMode mode, uint32_t depth) : engine(MakeEngine(mode, /*threads=*/1)) {
    for (const TempFile& file : files) {
      devices.push_back(OpenOn(
          *engine, {.path = file.path(),
                    .depth = depth,
                    .beside = devices.empty() ? nullptr : devices.front().get()}));
    }
    other->Submit(MakeOperation(Kind::kWrite, 0, memory.span().first(kBlockBytes),
                                [this](const absl::Status&) { gate.Park(); }));
    gate.WaitParked();
  }

  std::unique_ptr<IoEngine> engine;
  TempFile other_file{kMiB};
  TempFile files[4] = {TempFile{kMiB}, TempFile{kMiB}, TempFile{kMiB}, TempFile{kMiB}};
  std::unique_ptr<Device> other = OpenOn(*engine, {.path = other_file.path()});
  std::vector<std::unique_ptr<Device>> devices;
  AlignedBytes memory{kMiB};
  Gate gate;
  Completions completions;
};

TEST_CASE("files beside each other have one depth, as they are one drive") {
  constexpr uint32_t kDepth = 2, kEach = 50;
  const IoMode mode = EVERY_ENGINE();
  std::atomic<uint64_t> most = 0;
  // On a machine that gives this thread no time meanwhile, it sees none in flight.
  for (int round = 0; round < 100 && most == 0; ++round) {
    FourFiles four(mode, kDepth);
    const auto look = [&] { most = std::max<uint64_t>(most, four.engine->stats().in_flight); };
    for (uint32_t i = 0; i < kEach; ++i) {
      for (const auto& device : four.devices) {
        device->Submit(
            MakeOperation(Kind::kWrite, 0, four.memory.span(),
                          [&, done = four.completions.Expect()](absl::Status status) mutable {
                            look();
                            std::move(done)(std::move(status));
                          }));
      }
    }
    four.gate.Release();
    while (four.completions.count() < kEach * 4) look();
    for (const absl::Status& status : four.completions.Wait(kEach * 4)) CHECK(status.ok());
  }
  CHECK(most > 0);
  CHECK(most <= kDepth);
}

TEST_CASE("a read of one file goes ahead of the writes to those beside it") {
  FourFiles four(EVERY_ENGINE(), /*depth=*/1);
  Mutex mu;
  std::string order;
  for (size_t i = 0; i < 4; ++i) {
    const Kind kind = i == 3 ? Kind::kRead : Kind::kWrite;
    four.devices[i]->Submit(MakeOperation(
        kind, 0, four.memory.span(),
        [&, kind, done = four.completions.Expect()](absl::Status status) mutable {
          {
            MutexLock lock(&mu);
            order += kind == Kind::kRead ? 'r' : 'w';
          }
          std::move(done)(std::move(status));
        }));
  }
  four.gate.Release();
  for (const absl::Status& status : four.completions.Wait(4)) CHECK(status.ok());
  CHECK(order == "rwww");
}

TEST_CASE("an error of one of several files names that file") {
  auto engine = MakeEngine(EVERY_ENGINE());
  TempFile first(kMiB), second(kMiB);
  auto device = OpenOn(*engine, {.path = first.path()});
  auto beside = OpenOn(*engine, {.path = second.path(), .beside = device.get()});
  REQUIRE(truncate(second.path().c_str(), 0) == 0);
  AlignedBytes memory(kBlockBytes);
  CHECK(Read(*device, 0, memory.span()).ok());
  const absl::Status status = Read(*beside, 0, memory.span());
  CHECK(absl::IsDataLoss(status));
  CHECK(status.message().find(second.path()) != absl::string_view::npos);
}

TEST_CASE("memory that cannot be registered still works, counted and said") {
  auto engine = MakeEngine(EVERY_ENGINE());
  TempFile file(kMiB);
  auto device = OpenOn(*engine, {.path = file.path()});
  AlignedBytes memory(8 * kBlockBytes);
  CHECK_FALSE(engine->RegisterBuffer(memory.span().subspan(512, kBlockBytes)).ok());
  CHECK(engine->stats().buffer_registration_failures == 1);
  CHECK(Write(*device, 0, memory.span()).ok());
  CHECK(engine->stats().fixed_buffer_ios == 0);
  CHECK(engine->stats().plain_buffer_ios == 1);
}

TEST_CASE("memory the kernel refuses to pin is a status, not a crash") {
  auto engine = MakeEngine(IoMode::kUring);
  void* const unmapped = mmap(nullptr, kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(unmapped != MAP_FAILED);
  const absl::Status status =
      engine->RegisterBuffer({static_cast<std::byte*>(unmapped), size_t{kMiB}});
  munmap(unmapped, kMiB);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(engine->stats().buffer_registration_failures == 1);
  CHECK(engine->describe().find("not registered") != std::string::npos);
  // The slot is not lost: the next buffer works.
  AlignedBytes memory(kMiB);
  CHECK(engine->RegisterBuffer(memory.span()).ok());
}

TEST_CASE("where O_DIRECT is not to be had, I/O is buffered, counted and said once") {
  auto engine = MakeEngine(EVERY_ENGINE());
  setenv("TMPDIR", "/dev/shm", 1);  // tmpfs
  TempFile file(kMiB);
  unsetenv("TMPDIR");
  for (int i = 0; i < 2; ++i) {
    auto device = OpenOn(*engine, {.path = file.path()});
    AlignedBytes written(4 * kBlockBytes), read(4 * kBlockBytes);
    FillPattern(written.span(), 5);
    REQUIRE(Write(*device, kBlockBytes, written.span()).ok());
    REQUIRE(Read(*device, kBlockBytes, read.span()).ok());
    CHECK(SameBytes(written.span(), read.span()));
  }
  CHECK(engine->stats().buffered_opens == 2);
  const std::string text = engine->describe();
  const size_t first = text.find("is buffered: on tmpfs");
  REQUIRE(first != std::string::npos);
  CHECK(text.find("is buffered", first + 1) == std::string::npos);
}

TEST_CASE("destroying an engine completes what waits with Unavailable and waits for the rest") {
  auto engine = MakeEngine(EVERY_ENGINE(), /*threads=*/1);
  TempFile file(kMiB);
  auto device = OpenOn(*engine, {.path = file.path(), .depth = 1});
  AlignedBytes memory(kBlockBytes);
  Gate gate;
  Completions completions;
  device->Submit(MakeOperation(Kind::kWrite, 0, memory.span(), [&](absl::Status) { gate.Park(); }));
  gate.WaitParked();
  for (int i = 0; i < 20; ++i) {
    device->Submit(MakeOperation(Kind::kWrite, 0, memory.span(), completions.Expect()));
  }
  std::thread opener([&gate, destroys = gettid()] {
    AwaitWait(destroys);
    gate.Release();
  });
  engine = nullptr;
  opener.join();
  const std::vector<absl::Status> statuses = completions.Wait(20);
  CHECK(statuses.size() == 20);
  for (const absl::Status& status : statuses) {
    CHECK(status.code() == absl::StatusCode::kUnavailable);
  }
  device = nullptr;  // after its engine: allowed, while nothing is submitted
}

TEST_CASE("one device's backlog does not keep another one waiting") {
  auto engine = MakeEngine(EVERY_ENGINE(), /*threads=*/2);
  TempFile busy_file(4 * kMiB), other_file(kMiB);
  auto busy = OpenOn(*engine, {.path = busy_file.path(), .depth = 1});
  auto other = OpenOn(*engine, {.path = other_file.path(), .depth = 1});
  AlignedBytes memory(4 * kMiB), block(kBlockBytes);
  constexpr int kBacklog = 200;
  std::atomic<int> busy_left = kBacklog, written = 0, written_by_then = 0;
  std::atomic<bool> read_back{false};
  Gate drained;
  drained.Release();
  const std::function<void()> write = [&] {
    busy->Submit(MakeOperation(Kind::kWrite, 0, memory.span(), [&](absl::Status) {
      ++written;
      // It stays the same, however late the read comes.
      if (!read_back) return write();
      if (--busy_left == 0) drained.Park();
    }));
  };
  for (int i = 0; i < kBacklog; ++i) write();
  Completions read;
  other->Submit(MakeOperation(Kind::kRead, 0, block.span(), [&](absl::Status status) {
    written_by_then = written.load();
    read.Expect()(std::move(status));
  }));
  const int written_before = written;
  CHECK(read.Wait(1)[0].ok());
  read_back = true;
  CHECK(written_by_then - written_before < kBacklog);
  drained.WaitParked();
  busy = nullptr;  // before the memory that it writes from
}

TEST_CASE("an idle engine sleeps") {
  auto engine = MakeEngine(EVERY_ENGINE());
  TempFile file(kMiB);
  auto device = OpenOn(*engine, {.path = file.path()});
  AlignedBytes memory(kBlockBytes);
  REQUIRE(Read(*device, 0, memory.span()).ok());
  uint64_t before = 0;
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for the rest of the read
    if (std::exchange(before, WakeUps("kvkeep-io")) == before) break;
  }
  REQUIRE(before > 0);
  double least = 1;
  for (int attempt = 0; attempt < 5 && least >= 0.1; ++attempt) {
    const double cpu_before = CpuSeconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // in which nothing may run
    const uint64_t now = WakeUps("kvkeep-io");
    CHECK(now - std::exchange(before, now) <= 2);
    least = std::min(least, CpuSeconds() - cpu_before);
  }
  CHECK(least < 0.1);                             // a spinning one takes up to 0.5
  REQUIRE(Read(*device, 0, memory.span()).ok());  // and wakes up again
}

TEST_CASE("kAuto gives io_uring where the kernel has it, and says what it gave") {
  auto engine = MakeEngine(IoMode::kAuto);
  CHECK(engine->describe().find("io_uring") != std::string::npos);
  CHECK(MakeEngine(IoMode::kThreads)->describe().find("thread pool of 4 (as configured)") == 0);
}

}  // namespace kvkeep
