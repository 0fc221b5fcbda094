#include <cstring>

#include "tests/fuzz/script.h"
#include "tests/server/local/bodies.h"

namespace kvkeep {
namespace {

using local::Kind;

template <typename T>
std::vector<std::byte> Body(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

const NamespaceDigest kOpened;  // zero: the one that was opened

std::vector<std::byte> Keys(const std::vector<uint64_t>& names, LeaseMode mode,
                            const std::vector<local::ReleaseEntry>& releases = {}) {
  return KeysBody(kOpened, names, mode, releases);
}

// Staging of 64 KiB, and a stored chunk in it.
ScriptWriter WithChunk(uint64_t name, uint32_t bytes, uint32_t flags = 0) {
  ScriptWriter script;
  script.Message(Kind::kStaging, Body(local::StagingRequest{.bytes = 65'536}))
      .Step(ScriptOp::kRun, 0)
      .Step(ScriptOp::kMemory, 0xff)
      .Message(Kind::kPut, PutBody(kOpened, {{.name = name, .bytes = bytes, .flags = flags}}))
      .Step(ScriptOp::kRun, 0);
  return script;
}

std::vector<uint8_t> RegisteredPut(uint8_t descriptor, bool cut) {
  ScriptWriter script;
  script.Message(Kind::kRegisterMemory, Body(local::RegisterMemory{.bytes = 65'536}), descriptor);
  if (cut) script.Step(ScriptOp::kMemory, 0);
  script
      .Message(Kind::kPut,
               PutBody(kOpened, {{.name = 1, .bytes = 9000, .runs = 3, .region = 1},
                                 {.name = 2, .offset = 60'000, .bytes = 5000, .region = 1}}))
      .Step(ScriptOp::kRun, 1)
      .Message(Kind::kUnregisterMemory, Body(local::UnregisterMemory{.region = 1}))
      .Step(ScriptOp::kRun, 0)
      .Message(Kind::kGet, Keys({1, 2}, LeaseMode::kAllPresent));
  return script.bytes();
}

// Leased from G3 after other chunks evicted it from G2; the lease ends while pieces arrive.
std::vector<uint8_t> Arriving() {
  ScriptWriter script = WithChunk(1, 50'000);
  script.Step(ScriptOp::kTime, 0);
  for (uint64_t name = 2; name < 9; ++name) {
    script
        .Message(Kind::kPut,
                 PutBody(kOpened, {{.name = name, .bytes = 50'000, .flags = local::kPutNoG3}}))
        .Step(ScriptOp::kRun, 0);
  }
  script.Message(Kind::kGet, Keys({1}, LeaseMode::kLeadingRun))
      .Step(ScriptOp::kRun, 1)
      .Message(Kind::kRelease, Keys({}, LeaseMode::kNone, {{.lease = 0}}))
      .Step(ScriptOp::kRun, 0)
      .Message(Kind::kPrefetch, Keys({1, 2}, LeaseMode::kNone));
  return script.bytes();
}

local::RegisterGpuMemory GpuRange(uint64_t bytes, uint64_t generation) {
  return {.allocation_bytes = bytes,
          .bytes = bytes,
          .generation = generation,
          .kind = local::kGpuIpcHandle};
}

// Put from GPU memory and got back into it, with copies that wait at times; registrations end under
// way, at the end, or with the session.
std::vector<uint8_t> OfGpuMemory(uint8_t how) {
  const std::vector<TestGpuChunk> chunks = {{.name = 1, .bytes = 9000, .runs = 3, .stride = 4096},
                                            {.name = 2, .offset = 30'000, .bytes = 5000}};
  ScriptWriter script;
  script.Message(Kind::kRegisterGpuMemory, Body(GpuRange(65'536, 1)))
      .Step(ScriptOp::kRun, 0)
      .Step(ScriptOp::kGpu, how)
      .Message(Kind::kPutFromGpu, GpuPutBody(kOpened, chunks))
      .Step(ScriptOp::kRun, 2)
      .Step(ScriptOp::kGpu, 2)
      .Step(ScriptOp::kRun, 0)
      .Message(Kind::kRegisterGpuMemory, Body(GpuRange(50'000, 2)))
      .Message(Kind::kUnregisterGpuMemory,
               Body(local::UnregisterGpuMemory{.registration = 2, .generation = 2}))
      .Step(ScriptOp::kRun, 0)
      .Message(Kind::kGetToGpu, GpuGetBody(kOpened, chunks))
      .Step(ScriptOp::kGpu, how == 0 ? 3 : 1)
      .Step(ScriptOp::kRun, 0)
      .Message(Kind::kGet, Keys({1, 2}, LeaseMode::kAllPresent))
      .Message(Kind::kUnregisterGpuMemory,
               Body(local::UnregisterGpuMemory{.registration = 1, .generation = 1}))
      .Step(ScriptOp::kConnect, how)
      .Message(Kind::kGetToGpu, GpuGetBody(kOpened, chunks));
  return script.bytes();
}

// From host and GPU memory, until a time that is over, that passes under way, or that never comes.
std::vector<uint8_t> OfDeadlines() {
  ScriptWriter script;
  script.Message(Kind::kStaging, Body(local::StagingRequest{.bytes = 65'536}))
      .Message(Kind::kRegisterGpuMemory, Body(GpuRange(65'536, 1)))
      .Step(ScriptOp::kRun, 0)
      .Step(ScriptOp::kMemory, 0xff)
      .Step(ScriptOp::kGpu, 1);
  uint64_t name = 1;
  for (const uint64_t deadline_ns : {uint64_t{1}, uint64_t{250'000'000}, UINT64_MAX}) {
    script.Message(Kind::kPutUntil,
                   PutUntilBody(kOpened, {{.name = name++, .bytes = 9000}}, deadline_ns))
        .Message(Kind::kPutFromGpuUntil,
                 GpuPutUntilBody(kOpened, {{.name = name++, .bytes = 9000}}, deadline_ns));
  }
  script.Step(ScriptOp::kTime, 0)
      .Step(ScriptOp::kGpu, 2)
      .Step(ScriptOp::kRun, 0)
      .Step(ScriptOp::kTime, 0)
      .Step(ScriptOp::kGpu, 3)
      .Message(Kind::kGet, Keys({1, 2, 3, 4, 5, 6}, LeaseMode::kAllPresent));
  return script.bytes();
}

constexpr uint32_t kInParts = 9000;

// A chunk of kInParts put in parts, with a bit of it there.
ScriptWriter InParts(uint32_t flags = 0) {
  constexpr uint64_t kWordAt = 65'536 - 8;
  ScriptWriter script;
  script.Message(Kind::kStaging, Body(local::StagingRequest{.bytes = 65'536}))
      .Step(ScriptOp::kRun, 0)
      .Step(ScriptOp::kMemory, 0xff)
      .Message(Kind::kPutInParts,
               PartsBody(kOpened,
                         {{.name = 1, .bytes = kInParts, .runs = 3, .flags = flags, .tail = "t"}},
                         kWordAt))
      .Step(ScriptOp::kRun, 0)
      .Parts(kPartsWord | kPartsTold, 4000)
      .Step(ScriptOp::kRun, 1);
  return script;
}

std::vector<uint8_t> FilledInParts(int told, uint32_t flags) {
  ScriptWriter script = InParts(flags);
  script.Parts(kPartsWord | told, kInParts)
      .Step(ScriptOp::kRun, 0)
      .Parts(kPartsTick)
      .Step(ScriptOp::kTime, 0)
      .Message(Kind::kGet, Keys({1}, LeaseMode::kAllPresent))
      .Message(Kind::kPutInParts, PartsBody(kOpened, {{.name = 1, .bytes = kInParts}}, 0));
  return script.bytes();
}

// Ended in other ways, with another chunk behind it.
std::vector<uint8_t> NotFilledInParts(int how, ScriptOp op, uint8_t argument) {
  ScriptWriter script = InParts();
  script.Message(Kind::kPut, PutBody(kOpened, {{.name = 2, .bytes = 5000}}))
      .Parts(how, 1)
      .Step(op, argument)
      .Parts(kPartsWord | kPartsTold, kInParts)
      .Step(ScriptOp::kRun, 0)
      .Message(Kind::kGet, Keys({1, 2}, LeaseMode::kAllPresent));
  return script.bytes();
}

std::vector<uint8_t> BrokenFrames() {
  ScriptWriter script;
  const auto hello = HelloBody();
  script.Packet(Body(local::MessageHeader{.bytes = 9 * 1024 * 1024, .kind = 1, .id = 1}))
      .Step(ScriptOp::kConnect, 1)
      .Packet(Body(local::MessageHeader{.bytes = 100'000, .kind = 8, .id = 1}))
      .Step(ScriptOp::kConnect, 1)
      .Message(Kind::kHello, hello, 0, 20)
      .Step(ScriptOp::kConnect, 1)
      .Message(Kind::kLookup, Keys({1}, LeaseMode::kNone))
      .Step(ScriptOp::kConnect, 0)
      .Message(static_cast<Kind>(99), hello, ScriptFds(ScriptFd::kSocket, 7))
      .Message(Kind::kGet, Keys({1, 2, 3}, LeaseMode::kAllPresent), 0, 0, 255);
  return script.bytes();
}

// Names that can be shown, and others: cut off, a lone byte, a surrogate.
std::vector<uint8_t> Names() {
  ScriptWriter script;
  for (const char* name :
       {"caf\xc3\xa9", "caf\xc3", "caf\xe9", "\xed\xa0\x80", "\xf0\x9f\x98\x80"}) {
    local::MessageWriter ns(0, 0);
    ns.Append(local::OpenNamespace{.tokens_per_chunk = 256,
                                   .parts = 1,
                                   .model_bytes = static_cast<uint16_t>(std::strlen(name))});
    ns.AppendText(name);
    const auto body = ns.Finish().subspan(sizeof(local::MessageHeader));
    script.Step(ScriptOp::kConnect, 1)
        .Message(Kind::kHello, HelloBody(name))
        .Step(ScriptOp::kConnect, 0)
        .Message(Kind::kOpenNamespace, body);
  }
  return script.bytes();
}

}  // namespace

std::vector<std::vector<uint8_t>> SeedScripts() {
  std::vector<std::vector<uint8_t>> seeds;
  seeds.push_back(WithChunk(1, 5000)
                      .Message(Kind::kGet, Keys({1, 2}, LeaseMode::kAllPresent))
                      .Message(Kind::kLookup, Keys({1}, LeaseMode::kLeadingRun, {{.lease = 0}}))
                      .Message(Kind::kTouch, Keys({1}, LeaseMode::kNone))
                      .Message(Kind::kDelete, Keys({1}, LeaseMode::kNone))
                      .Message(Kind::kServerInfo, {})
                      .bytes());
  seeds.push_back(WithChunk(3, 20'000, local::kPutDurable)
                      .Step(ScriptOp::kTime, 0)
                      .Message(Kind::kGet, Keys({3}, LeaseMode::kLeadingRun))
                      .Step(ScriptOp::kConnect, 2)
                      .Message(Kind::kGet, Keys({3}, LeaseMode::kLeadingRun))
                      .Step(ScriptOp::kConnect, 0)
                      .Message(Kind::kDelete, Keys({3}, LeaseMode::kNone))
                      .bytes());
  // Leases that are still held while the chunk is put anew.
  seeds.push_back(WithChunk(4, 100)
                      .Message(Kind::kGet, Keys({4}, LeaseMode::kAllPresent))
                      .Message(Kind::kDelete, Keys({4}, LeaseMode::kNone))
                      .Message(Kind::kPut, PutBody(kOpened, {{.name = 4, .bytes = 7, .tail = "t"}}))
                      .Step(ScriptOp::kRun, 3)
                      .Message(Kind::kGet, Keys({4}, LeaseMode::kAllPresent, {{.lease = 0}}))
                      .bytes());
  seeds.push_back(RegisteredPut(ScriptFds(ScriptFd::kMemfd), false));
  seeds.push_back(RegisteredPut(ScriptFds(ScriptFd::kMemfd), true));
  seeds.push_back(RegisteredPut(ScriptFds(ScriptFd::kSealedMemfd), false));
  seeds.push_back(RegisteredPut(ScriptFds(ScriptFd::kShortMemfd), false));
  seeds.push_back(RegisteredPut(ScriptFds(ScriptFd::kPipe), false));
  seeds.push_back(RegisteredPut(ScriptFds(ScriptFd::kMemfd, 31), false));
  for (const uint8_t how : {0, 1, 2}) seeds.push_back(OfGpuMemory(how));
  seeds.push_back(OfDeadlines());
  for (const int told : {kPartsTold, kPartsTick}) seeds.push_back(FilledInParts(told, 0));
  seeds.push_back(FilledInParts(kPartsTold, local::kPutDurable));
  for (const int how : {kPartsLess | kPartsTold, kPartsAbove | kPartsTick, int{kPartsGrace}}) {
    seeds.push_back(NotFilledInParts(how, ScriptOp::kRun, 0));
  }
  for (const uint8_t how : {0, 2}) {  // the session ends
    seeds.push_back(NotFilledInParts(0, ScriptOp::kConnect, how));
  }
  seeds.push_back(Arriving());
  seeds.push_back(BrokenFrames());
  seeds.push_back(Names());
  return seeds;
}

}  // namespace kvkeep
