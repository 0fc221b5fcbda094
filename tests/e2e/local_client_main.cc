// A worker on the local path that does everything a worker does, over and over, and kills itself at
// a named point of the client library (client/local/test_point.h):
//   e2e_local_client ENDPOINT WARM_FIRST WARM_COUNT COLD_FIRST COLD_COUNT CHUNK_BYTES POINT NTH
// WARM chunks are in G2, COLD ones in G3 only. With POINT "hold" it holds leases of all warm chunks
// and staging memory, says so, and waits. Exits with 3 when something went wrong before.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client/local/test_point.h"
#include "tests/e2e/engine.h"

namespace {

using kvkeep::e2e::Engine;
using kvkeep::e2e::TestChunk;

constexpr size_t kColdAtOnce = 8;
constexpr size_t kLargeBytes = (4 << 20) + 5;  // copied while the daemon reads it

const char* die_at = "";
std::atomic<int> hits_left{0};

void OnTestPoint(const char* name) {
  if (std::strcmp(name, die_at) == 0 && hits_left.fetch_sub(1) == 1) kill(getpid(), SIGKILL);
}

struct Plan {
  std::vector<TestChunk> warm, cold;
  size_t bytes = 0;
};

void Fail(const char* what, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  std::_Exit(3);
}

class Worker {
 public:
  Worker(const std::string& endpoint, Plan plan)
      : engine_(endpoint, {.name = "victim"}), plan_(std::move(plan)) {
    file_ = memfd_create("worker", MFD_CLOEXEC);
    if (ftruncate(file_, static_cast<off_t>(plan_.bytes)) != 0) std::_Exit(3);
    void* const mapped = mmap(nullptr, plan_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    mapping_ = {static_cast<std::byte*>(mapped), plan_.bytes};
    next_ = (static_cast<uint64_t>(getpid()) << 20) + (uint64_t{1} << 50);
  }

  void Round() {
    const auto cold = Acquire(NextCold());
    for (size_t view = 0; view < cold.chunks.size(); ++view) {
      cold.WaitPieces(view, SIZE_MAX, std::chrono::milliseconds(2000)).IgnoreError();
    }
    auto warm = Acquire(plan_.warm);
    PutFromStaging();
    PutRegistered();
    if (engine_.PutAll({{next_++, plan_.bytes}})) engine_.Get(plan_.warm[0]);
    // Others may have taken all the staging memory that there is for all sessions.
    if (std::strcmp(die_at, "part-filled") == 0) engine_.PutAll({{next_++, kLargeBytes}});
    engine_.Find(plan_.warm);
    engine_.client().Release(std::move(warm.lease)).IgnoreError();
  }

  kvkeep::client::Acquired Acquire(const std::vector<TestChunk>& chunks) {
    const std::vector<kvkeep::ChunkKey> keys = KeysOf(chunks);
    auto acquired = engine_.client().Acquire(engine_.ns(), keys, {.all_present = true});
    if (!acquired.ok()) Fail("acquire", acquired.status());
    return *std::move(acquired);
  }
  // Calls of the old session may fail until the client has a new one.
  std::string AcquireAgain(const std::vector<TestChunk>& chunks) {
    for (int tries = 0; tries < 1000; ++tries) {
      const std::vector<kvkeep::ChunkKey> keys = KeysOf(chunks);
      const auto got = engine_.client().Acquire(engine_.ns(), keys, {.all_present = true});
      if (got.ok() && got->valid()) return std::to_string(got->leased_keys) + " again";
      usleep(10'000);  // for the client's own thread, which connects
    }
    return "never again";
  }
  kvkeep::client::StagingBuffer Stage() {
    auto staging = engine_.client().AllocateStaging(plan_.bytes);
    if (!staging.ok()) Fail("staging", staging.status());
    return *std::move(staging);
  }

 private:
  // Others push them out of G2 again, so most come from G3.
  std::vector<TestChunk> NextCold() {
    if (plan_.cold.size() <= kColdAtOnce) return plan_.cold;
    const size_t from = next_++ * 7919 % (plan_.cold.size() - kColdAtOnce);
    const auto first = plan_.cold.begin() + static_cast<ptrdiff_t>(from);
    return {first, first + kColdAtOnce};
  }
  void PutFromStaging() {
    auto staging = engine_.client().AllocateStaging(plan_.bytes);
    // Others may have taken all that there is for all sessions.
    if (staging.ok()) Put(staging->memory());
  }
  void PutRegistered() {
    auto region = engine_.client().RegisterMemory(file_, mapping_);
    if (region.ok()) Put(mapping_);
  }
  void Put(std::span<std::byte> memory) {
    const TestChunk chunk{next_++, plan_.bytes};
    const std::vector<std::byte> payload = Payload(chunk);
    std::copy(payload.begin(), payload.end(), memory.begin());
    std::vector<kvkeep::client::PutChunk> puts(1);
    puts[0] = {.key = kvkeep::e2e::Key(chunk.number), .runs = {memory}};
    // A durable put: the daemon says when the memory was read, before it answers.
    auto put = engine_.client().Put(engine_.ns(), std::move(puts), {.durable = next_ % 2 == 0});
    if (!put.ok()) Fail("put", put.status());
  }

  Engine engine_;
  const Plan plan_;
  int file_ = -1;
  std::span<std::byte> mapping_;
  uint64_t next_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9) return 2;
  const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
  Plan plan{.bytes = number(6)};
  plan.warm = kvkeep::e2e::Chunks(number(2), number(3), plan.bytes);
  plan.cold = kvkeep::e2e::Chunks(number(4), number(5), plan.bytes);
  die_at = argv[7];
  hits_left = static_cast<int>(number(8));
  kvkeep::test_point_hook = OnTestPoint;
  const std::vector<TestChunk> warm = plan.warm;
  Worker worker(argv[1], std::move(plan));
  if (std::strcmp(die_at, "hold") == 0) {
    const auto leased = worker.Acquire(warm);
    const auto staged = worker.Stage();
    std::printf("holding\n");
    std::fflush(stdout);
    // Stopped and continued meanwhile: a word in memory says so, and it goes on in a new session.
    while (leased.valid()) usleep(10'000);
    std::printf("revoked\n");
    std::fflush(stdout);
    const std::string again = worker.AcquireAgain(warm);
    std::printf("%s, %s\n", again.c_str(),
                leased.valid() ? "the old one valid" : "the old one not");
    std::fflush(stdout);
    pause();
    return 0;
  }
  for (int round = 0; round < 200; ++round) worker.Round();
  return 4;  // the point was never reached
}
