// Messages thrown back and forth between two processes.
#include <absl/strings/str_cat.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <deque>
#include <vector>

#include "proto/local/protocol.h"
#include "tiers/base/check.h"
#include "tiers/base/key.h"
#include "tools/bench/baselines.h"
#include "tools/bench/cpu_time.h"

namespace kvkeep::bench {
namespace {

constexpr int kMaxPingPongs = 64;

constexpr size_t kHead = sizeof(local::MessageHeader);
constexpr size_t kReplyHead = kHead + sizeof(local::ReplyHead);
constexpr size_t kBitmaps = 2;  // G2 and G3; one byte a key when there are at most 8 parts

constexpr size_t LookupReplyBytes(size_t keys) {
  return kReplyHead + sizeof(local::LookupReply) + kBitmaps * keys + sizeof(local::LookupCost);
}

// A message of `bytes` bytes, in packets. False: the other end is gone. Only system calls: the
// partner runs this after a fork.
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

}  // namespace kvkeep::bench
