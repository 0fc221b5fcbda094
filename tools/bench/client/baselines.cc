#include "tools/bench/client/baselines.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <latch>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "proto/local/protocol.h"
#include "tiers/base/check.h"
#include "tiers/base/key.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/client/case.h"
#include "tools/bench/client/cpu_time.h"

namespace kvkeep::bench {

// ---------------------------------------------------------------- copies of cold memory

namespace {

constexpr uint64_t kUsualCacheBytes = 32 * kMiB;
constexpr uint64_t kMinColdBytes = 256 * kMiB;
constexpr uint64_t kCaches = 4;

}  // namespace

// Reads the kernel's files, as sysconf counts a virtual machine's cores wrongly.
uint64_t LastLevelCacheBytes() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::string text;  // "32768K"
  uint64_t kib = 0;
  if (!(file >> text) || text.back() != 'K') return kUsualCacheBytes;
  text.pop_back();
  return absl::SimpleAtoi(text, &kib) && kib > 0 ? kib * kKiB : kUsualCacheBytes;
}

uint64_t ColdBytes() { return std::max(kMinColdBytes, kCaches * LastLevelCacheBytes()); }

absl::StatusOr<std::unique_ptr<ColdCopy>> ColdCopy::Create(uint64_t bytes,
                                                           const std::string& mount_dir) {
  KVKEEP_ASSIGN_OR_RETURN(SharedPages source, SharedPages::Create(bytes, mount_dir));
  KVKEEP_ASSIGN_OR_RETURN(SharedPages target, SharedPages::Create(bytes, mount_dir));
  std::memset(source.memory().data(), 1, source.memory().size());
  return std::unique_ptr<ColdCopy>(new ColdCopy(std::move(source), std::move(target)));
}

uint64_t ColdCopy::huge_page_bytes() const {
  return source_.huge_page_bytes() + target_.huge_page_bytes();
}

Measured ColdCopy::CopyOnOneThread(uint64_t size, int thread, int threads, double seconds) {
  const std::span<std::byte> from = source_.memory();
  const std::span<std::byte> to = target_.memory();
  Measured measured;
  const double begin = WallSeconds();
  const double cpu_begin = ThreadCpuSeconds();
  for (uint64_t n = round_ * static_cast<uint64_t>(threads) + static_cast<uint64_t>(thread);
       measured.seconds < seconds; n += static_cast<uint64_t>(threads)) {
    const uint64_t from_at = n % (from.size() / size) * size;
    const uint64_t to_at = n % (to.size() / size) * size;
    std::memcpy(to.data() + to_at, from.data() + from_at, size);
    const double now = WallSeconds();
    measured.latency.RecordSeconds(now - begin - measured.seconds);
    measured.seconds = now - begin;
    ++measured.ops;
  }
  measured.client_cpu_seconds = ThreadCpuSeconds() - cpu_begin;
  measured.chunks = measured.ops;
  measured.bytes = measured.copied_bytes = measured.ops * size;
  return measured;
}

Measured ColdCopy::Run(uint64_t size, int threads, double seconds) {
  KVKEEP_CHECK(threads > 0 && size > 0);
  KVKEEP_CHECK(size <= std::min(source_.memory().size(), target_.memory().size()));
  std::vector<Measured> parts(static_cast<size_t>(threads));
  {
    std::latch ready(threads);
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&, i] {
        ready.arrive_and_wait();
        parts[static_cast<size_t>(i)] = CopyOnOneThread(size, i, threads, seconds);
      });
    }
  }
  Measured all;
  for (const Measured& part : parts) all.Add(part, /*side_by_side=*/true);
  round_ += all.ops / static_cast<uint64_t>(threads);
  return all;
}

// ---------------------------------------------------------------- ping-pong

namespace {

constexpr int kMaxPingPongs = 64;

constexpr size_t kHead = sizeof(local::MessageHeader);
constexpr size_t kReplyHead = kHead + sizeof(local::ReplyHead);
constexpr size_t kBitmaps = 2;  // G2 and G3; one byte a key when there are at most 8 parts

constexpr size_t LookupReplyBytes(size_t keys) {
  return kReplyHead + sizeof(local::LookupReply) + kBitmaps * keys + sizeof(local::LookupCost);
}

// Sends a message of `bytes` bytes in packets. Returns false if the other end is gone. Makes only
// system calls, as the partner runs this after a fork.
bool SendAll(int socket, const std::byte* data, size_t bytes) {
  while (bytes > 0) {
    const size_t packet = std::min(bytes, local::kMaxPacketBytes);
    const ssize_t sent = send(socket, data, packet, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent != static_cast<ssize_t>(packet)) return false;
    bytes -= packet;
  }
  return true;
}

bool ReceiveAll(int socket, std::byte* buffer, size_t bytes) {
  while (bytes > 0) {
    const ssize_t received = recv(socket, buffer, local::kMaxPacketBytes, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0 || static_cast<size_t>(received) > bytes) return false;
    bytes -= static_cast<size_t>(received);
  }
  return true;
}

[[noreturn]] void Answer(int socket, MessageSizes sizes, std::byte* buffer, pid_t starter) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != starter) _exit(1);
  while (ReceiveAll(socket, buffer, sizes.request_bytes)) {
    if (!SendAll(socket, buffer, sizes.reply_bytes)) break;
  }
  _exit(0);
}

}  // namespace

MessageSizes GetMessages(size_t keys) {
  return {.request_bytes = kHead + sizeof(local::KeysRequest) + sizeof(local::ReleaseEntry) +
                           keys * ChunkKey::kSize,
          .reply_bytes =
              LookupReplyBytes(keys) + keys * (sizeof(local::Place) + sizeof(local::ImageRun))};
}

MessageSizes LookupMessages(size_t keys) {
  return {.request_bytes = kHead + sizeof(local::KeysRequest) + keys * ChunkKey::kSize,
          .reply_bytes = LookupReplyBytes(keys)};
}

MessageSizes PutMessages(size_t chunks) {
  return {.request_bytes = kHead + sizeof(local::PutRequest) +
                           chunks * (sizeof(local::PutChunk) + sizeof(local::PutRun)),
          .reply_bytes = kReplyHead + sizeof(local::PutReply) + chunks * sizeof(local::PutAnswer)};
}

absl::StatusOr<std::unique_ptr<PingPong>> PingPong::Start(MessageSizes sizes) {
  KVKEEP_CHECK(sizes.request_bytes > 0 && sizes.reply_bytes > 0);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "ping-pong: socketpair");
  }
  UniqueFd ours(ends[0]), theirs(ends[1]);
  std::vector<std::byte> buffer(local::kMaxPacketBytes);
  const pid_t starter = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "ping-pong: fork");
  if (pid == 0) {
    close(ours.get());
    Answer(theirs.get(), sizes, buffer.data(), starter);
  }
  return std::unique_ptr<PingPong>(new PingPong(sizes, std::move(ours), pid));
}

PingPong::~PingPong() {
  socket_.Reset();
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::StatusOr<Measured> PingPong::Run(int depth, double seconds) {
  if (depth < 1 || depth > kMaxPingPongs) {
    return absl::InvalidArgumentError(absl::StrCat("ping-pong: depth is 1 to ", kMaxPingPongs));
  }
  std::vector<std::byte> buffer(local::kMaxPacketBytes);
  std::deque<double> sent_at;
  Measured measured;
  const double begin = WallSeconds(), cpu_begin = ThreadCpuSeconds();
  double now = begin;
  while (now - begin < seconds || !sent_at.empty()) {
    while (now - begin < seconds && sent_at.size() < static_cast<size_t>(depth)) {
      sent_at.push_back(WallSeconds());
      if (!SendAll(socket_.get(), buffer.data(), sizes_.request_bytes)) {
        return absl::UnavailableError("ping-pong: the other process is gone");
      }
    }
    if (!ReceiveAll(socket_.get(), buffer.data(), sizes_.reply_bytes)) {
      return absl::UnavailableError("ping-pong: the other process is gone");
    }
    now = WallSeconds();
    measured.latency.RecordSeconds(now - sent_at.front());
    sent_at.pop_front();
    ++measured.ops;
  }
  measured.seconds = now - begin;
  measured.client_cpu_seconds = ThreadCpuSeconds() - cpu_begin;
  return measured;
}

// ---------------------------------------------------------------- commands

namespace {

MessageSizes MessagesOf(Verb verb, uint32_t keys) {
  if (verb == Verb::kPut) return PutMessages(keys);
  return verb == Verb::kLookup ? LookupMessages(keys) : GetMessages(keys);
}

class Baselines {
 public:
  absl::StatusOr<Json> Copy(const Json& command) {
    const uint64_t region_bytes = command.at("region_bytes");
    if (copy_ == nullptr || region_bytes_ < region_bytes) {
      copy_.reset();
      region_bytes_ = region_bytes;
      KVKEEP_ASSIGN_OR_RETURN(copy_, ColdCopy::Create(region_bytes, command.at("mount_dir")));
    }
    Json measured = FieldsToJson(
        copy_->Run(command.at("size"), command.at("threads"), command.at("seconds")));
    measured["region_bytes"] = region_bytes_;
    measured["huge_page_bytes"] = copy_->huge_page_bytes();
    return measured;
  }

  absl::StatusOr<Json> ThrowBack(const Json& command) {
    const MessageSizes sizes = MessagesOf(command.at("verb").get<Verb>(), command.at("keys"));
    std::unique_ptr<PingPong>& partner = partners_[{sizes.request_bytes, sizes.reply_bytes}];
    if (partner == nullptr) {
      KVKEEP_ASSIGN_OR_RETURN(partner, PingPong::Start(sizes));
    }
    KVKEEP_ASSIGN_OR_RETURN(const Measured run,
                            partner->Run(command.at("depth"), command.at("seconds")));
    Json measured = FieldsToJson(run);
    measured["request_bytes"] = sizes.request_bytes;
    measured["reply_bytes"] = sizes.reply_bytes;
    return measured;
  }

 private:
  std::unique_ptr<ColdCopy> copy_;
  uint64_t region_bytes_ = 0;
  std::map<std::pair<size_t, size_t>, std::unique_ptr<PingPong>> partners_;
};

absl::StatusOr<Json> Touch(const Json& command) {
  KVKEEP_ASSIGN_OR_RETURN(SharedPages pages, SharedPages::CreateUntouched(command.at("bytes"),
                                                                          command.at("mount_dir")));
  const double began = WallSeconds();
  KVKEEP_RETURN_IF_ERROR(pages.Touch(command.at("threads")));
  return Json{{"bytes", pages.memory().size()}, {"seconds", WallSeconds() - began}};
}

absl::StatusOr<Json> DescribeMachine(const Json&) {
  return Json{{"cpus", sysconf(_SC_NPROCESSORS_ONLN)},
              {"last_level_cache_bytes", LastLevelCacheBytes()},
              {"cold_bytes", ColdBytes()}};
}

}  // namespace

void AddBaselineCommands(Commands* commands) {
  const auto baselines = std::make_shared<Baselines>();
  commands->Add("cold copy", [baselines](const Json& command) { return baselines->Copy(command); });
  commands->Add("ping-pong",
                [baselines](const Json& command) { return baselines->ThrowBack(command); });
  commands->Add("touch", Touch);
  commands->Add("machine", DescribeMachine);
}

}  // namespace kvkeep::bench
