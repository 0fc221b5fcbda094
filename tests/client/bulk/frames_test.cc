// The client's side of the bulk protocol against a daemon that says whatever a test wants.
#include "client/bulk/frames.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "client/bulk/pool.h"
#include "client/internal/await.h"
#include "kvkeep/v1/bulk.pb.h"
#include "kvkeep/v1/kvkeep.pb.h"
#include "proto/bulk/frame.h"
#include "tests/fakes/scratch_dir.h"
#include "tiers/base/checksum.h"

namespace kvkeep::client {
namespace {

using bulk::FrameKind;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::string FrameOf(FrameKind kind, const std::string& message, const std::string& payload = "") {
  return bulk::EncodeHead(kind, message.size(), payload.size()) + message + payload;
}
std::string EndOf(int code = 0, const std::string& why = "") {
  v1::BulkEnd end;
  end.set_code(static_cast<uint32_t>(code));
  end.set_message(why);
  return FrameOf(FrameKind::kEnd, end.SerializeAsString());
}
v1::GetFrame Hit(const std::string& payload) {
  v1::GetFrame frame;
  frame.set_status(v1::CHUNK_STATUS_HIT);
  frame.set_payload_bytes(payload.size());
  frame.set_last(true);
  frame.add_piece_checksums(Xxh3(std::as_bytes(std::span(payload))));
  return frame;
}
std::string ChunkOf(const v1::GetFrame& frame, const std::string& payload) {
  return FrameOf(FrameKind::kChunk, frame.SerializeAsString(), payload);
}

// A daemon of one connection, which says `script` once it is connected, and reads what comes.
class ScriptedDaemon {
 public:
  explicit ScriptedDaemon(std::string script, bool closes = false)
      : listener_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = dir_ / "bulk.sock";
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(listener_.get(), 4) == 0);
    thread_ = std::thread([this, script = std::move(script), closes] {
      const UniqueFd fd(accept(listener_.get(), nullptr, nullptr));
      for (size_t sent = 0; sent < script.size();) {
        const ssize_t went =
            send(fd.get(), script.data() + sent, script.size() - sent, MSG_NOSIGNAL);
        if (went <= 0) return;
        sent += static_cast<size_t>(went);
      }
      if (closes) return;
      std::vector<char> buffer(1 << 16);
      while (recv(fd.get(), buffer.data(), buffer.size(), 0) > 0) {
      }
    });
  }
  ~ScriptedDaemon() {
    (void)shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::string endpoint() const { return "unix://" + (dir_ / "bulk.sock"); }
  std::unique_ptr<BulkStream> Connect() const {
    auto stream = BulkStream::Connect(endpoint(), {}, Clock::now() + milliseconds(20'000));
    REQUIRE(stream.ok());
    return *std::move(stream);
  }

 private:
  ScratchDir dir_;
  UniqueFd listener_;
  std::thread thread_;
};

// A get of one chunk into 100 bytes, with guards on both sides.
struct GuardedGet {
  explicit GuardedGet(const std::string& script, bool closes = false,
                      milliseconds patience = milliseconds(20'000))
      : memory(300, std::byte{0x5a}), place(std::span(memory).subspan(100, 100)) {
    const ScriptedDaemon daemon(script, closes);
    const std::unique_ptr<BulkStream> stream = daemon.Connect();
    GetOptions options;
    options.destinations = {&place, 1};
    ChunkAssembler assembler(std::move(options), 1, 1);
    ending = BulkGet(*stream, "request", assembler, Clock::now() + patience);
    outcome = assembler.TakeOutcomes()[0];
    for (size_t i = 0; i < memory.size(); ++i) {
      if (i < 100 || i >= 200) intact = intact && memory[i] == std::byte{0x5a};
    }
  }
  std::vector<std::byte> memory;
  std::span<std::byte> place;
  BulkEnding ending;
  GetOutcome outcome;
  bool intact = true;  // what is beside the place
};

TEST_CASE("a chunk's bytes are used only if they match the frame's checksums") {
  const std::string payload(100, 'x');
  const GuardedGet right(ChunkOf(Hit(payload), payload) + EndOf());
  CHECK(right.ending.status.ok());
  CHECK(right.ending.reusable);
  CHECK(right.outcome.status == GetStatus::kHit);
  CHECK(std::all_of(right.place.begin(), right.place.end(),
                    [](std::byte b) { return b == std::byte{'x'}; }));
  std::string spoilt = payload;
  spoilt[99] ^= 1;
  const GuardedGet wrong(ChunkOf(Hit(payload), spoilt) + EndOf());
  CHECK(wrong.outcome.status == GetStatus::kCorrupt);
  v1::GetFrame without = Hit(payload);
  without.clear_piece_checksums();
  CHECK(GuardedGet(ChunkOf(without, payload) + EndOf()).outcome.status == GetStatus::kCorrupt);
  v1::GetFrame miss;
  miss.set_status(v1::CHUNK_STATUS_MISS);
  CHECK(GuardedGet(ChunkOf(miss, "") + EndOf()).outcome.status == GetStatus::kMiss);
}

TEST_CASE("a get whose answer breaks the protocol ends, and writes nowhere else") {
  const std::string payload(100, 'x'), longer(101, 'x');
  const std::string good = ChunkOf(Hit(payload), payload);
  v1::GetFrame elsewhere = Hit(payload), other_key = Hit(payload), more = Hit(payload);
  elsewhere.set_offset(50);
  other_key.set_key_index(1);
  more.set_payload_bytes(100);
  v1::GetFrame twice = Hit(payload);
  twice.set_last(false);
  v1::GetFrame inside = Hit(payload);
  inside.set_payload(payload);
  v1::GetFrame miss;
  miss.set_status(v1::CHUNK_STATUS_MISS);
  const std::vector<std::string> scripts = {
      good + good + EndOf(),                  // a chunk after its last frame
      ChunkOf(more, longer) + EndOf(),        // more bytes than it has
      ChunkOf(elsewhere, payload) + EndOf(),  // not where it goes on
      ChunkOf(other_key, payload) + EndOf(),  // not asked for
      ChunkOf(twice, payload) + ChunkOf(twice, payload),
      ChunkOf(inside, payload),                            // payload in the message
      ChunkOf(miss, payload),                              // a miss with bytes
      bulk::EncodeHead(FrameKind::kChunk, 0xffffffff, 0),  // a message without end
      bulk::EncodeHead(FrameKind::kChunk, 0, uint64_t{1} << 60),
      bulk::EncodeHead(FrameKind::kEnd, 0, 5),
      FrameOf(FrameKind::kResult, ""),
      FrameOf(FrameKind::kChunk, "\xff\xff\xff"),
      std::string(64, '\xee'),
  };
  for (size_t i = 0; i < scripts.size(); ++i) {
    INFO(i);
    const GuardedGet get(scripts[i]);
    CHECK(absl::IsInternal(get.ending.status));
    CHECK_FALSE(get.ending.reusable);
    CHECK(get.intact);
  }
}

TEST_CASE("a get ends with its deadline, with its connection, and with the daemon's error") {
  const std::string payload(100, 'x');
  const std::string good = ChunkOf(Hit(payload), payload);
  const GuardedGet hangs(good.substr(0, good.size() - 30), false, milliseconds(200));
  CHECK(absl::IsDeadlineExceeded(hangs.ending.status));
  CHECK_FALSE(hangs.ending.reusable);
  const GuardedGet gone(good.substr(0, good.size() - 30), true);
  CHECK(absl::IsUnavailable(gone.ending.status));
  const GuardedGet refused(EndOf(static_cast<int>(absl::StatusCode::kFailedPrecondition), "why"));
  CHECK(absl::IsFailedPrecondition(refused.ending.status));
  CHECK(refused.ending.status.message() == "why");
  CHECK(refused.ending.reusable);  // the error was of the call
}

// Puts chunks of 1 MiB. Returns the ending, and how many results came.
std::pair<BulkEnding, size_t> PutChunks(const std::string& script, size_t chunks,
                                        milliseconds patience = milliseconds(20'000)) {
  const ScriptedDaemon daemon(script);
  const std::unique_ptr<BulkStream> stream = daemon.Connect();
  const std::vector<std::byte> bytes(kPieceBytes);
  const std::vector<std::span<const std::byte>> runs = {bytes};
  const std::vector<BulkChunk> all(
      chunks, BulkChunk{.message = "chunk", .runs = runs, .payload_bytes = bytes.size()});
  size_t results = 0;
  const auto on_result = [&](const std::string&) {
    ++results;
    return absl::OkStatus();
  };
  const BulkEnding ending = BulkPut(*stream, all, on_result, Clock::now() + patience);
  return {ending, results};
}

TEST_CASE("a put takes results while it sends, and stops at the daemon's end") {
  const std::string result = FrameOf(FrameKind::kResult, v1::PutResult().SerializeAsString());
  std::string all;
  for (int i = 0; i < 8; ++i) all += result;
  const auto [whole, results] = PutChunks(all + EndOf(), 8);
  CHECK(whole.status.ok());
  CHECK(results == 8);
  const auto over_rate =
      PutChunks(result + EndOf(static_cast<int>(absl::StatusCode::kResourceExhausted)), 64);
  CHECK(absl::IsResourceExhausted(over_rate.first.status));
  CHECK_FALSE(over_rate.first.reusable);
  CHECK(over_rate.second == 1);
  CHECK(absl::IsInternal(PutChunks(FrameOf(FrameKind::kWelcome, ""), 64).first.status));
  const auto hangs = PutChunks("", 1, milliseconds(200));
  CHECK(absl::IsDeadlineExceeded(hangs.first.status));
}

TEST_CASE("a call that waits for a daemon that hangs ends when the pool stops") {
  v1::BulkWelcome welcome;
  welcome.set_version(1);
  const ScriptedDaemon daemon(FrameOf(FrameKind::kWelcome, welcome.SerializeAsString()));
  BulkPool pool({.endpoint = daemon.endpoint(), .security = {}});
  const auto deadline = Clock::now() + milliseconds(60'000);
  Completion<absl::Status> ended;
  pool.Make(deadline, [&](absl::StatusOr<BulkStream*> stream) {
    std::byte byte;
    ended.Set(stream.ok() ? (*stream)->Read({&byte, 1}, deadline) : stream.status());
    return false;
  });
  pool.Stop();
  CHECK_FALSE(ended.Take().ok());
  CHECK(Clock::now() < deadline - milliseconds(30'000));
}

TEST_CASE("a door that cannot be reached is asked again only after a pause") {
  const ScratchDir dir;
  BulkPool pool({.endpoint = "unix://" + (dir / "nobody.sock"),
                 .security = {},
                 .connections = 2,
                 .backoff_min = milliseconds(60'000),
                 .backoff_max = milliseconds(60'000)});
  const auto ask = [&] {
    return Await<absl::Status>([&](auto done) {
      pool.Make(Clock::now() + milliseconds(1'000), [done](absl::StatusOr<BulkStream*> stream) {
        done(stream.status());
        return false;
      });
    });
  };
  const absl::Status first = ask();
  CHECK(absl::IsUnavailable(first));
  // Somebody listens there now, and would keep a caller waiting for a Welcome.
  const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = dir / "nobody.sock";
  std::memcpy(address.sun_path, path.data(), path.size());
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(listener.get(), 4) == 0);
  CHECK(ask() == first);
}

}  // namespace
}  // namespace kvkeep::client
