#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"
#include "tools/bench/server_program.h"
#include "tools/compare/contestant.h"

namespace kvkeep::compare {
namespace {

constexpr int kStartTries = 500;

absl::StatusOr<pid_t> StartServer(const std::string& socket, uint64_t capacity_bytes) {
  const UniqueFd nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  return bench::StartProgram(
      {"redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no",
       "--maxmemory", absl::StrCat(capacity_bytes), "--maxmemory-policy", "allkeys-lru"},
      nowhere.get());
}

absl::StatusOr<UniqueFd> ConnectTo(const std::string& path, pid_t server) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof(address.sun_path)) return absl::InvalidArgumentError(path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  for (int i = 0; i < kStartTries; ++i) {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      return fd;
    }
    if (waitpid(server, nullptr, WNOHANG) == server) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // another process: nothing tells
  }
  return absl::UnavailableError("redis-server did not start; is it installed?");
}

// RESP by hand: a payload goes from its memory to the socket and back without a copy of ours.
class Redis final : public Contestant {
 public:
  Redis(UniqueFd socket, pid_t server) : socket_(std::move(socket)), server_(server) {}
  ~Redis() override {
    kill(server_, SIGKILL);
    waitpid(server_, nullptr, 0);
  }

  absl::Status Put(const ChunkKey& key, std::span<const std::byte> payload) override {
    std::string head = Head("SET", 3);
    AppendKey(key, &head);
    absl::StrAppend(&head, "$", payload.size(), "\r\n");
    KVKEEP_RETURN_IF_ERROR(Send(head, payload, "\r\n"));
    KVKEEP_ASSIGN_OR_RETURN(const std::string line, ReadLine());
    return line == "+OK" ? absl::OkStatus() : absl::InternalError(line);
  }

  absl::Status Get(const ChunkKey& key, std::span<std::byte> out) override {
    std::string head = Head("GET", 2);
    AppendKey(key, &head);
    KVKEEP_RETURN_IF_ERROR(Send(head, {}, ""));
    KVKEEP_ASSIGN_OR_RETURN(const std::string line, ReadLine());
    if (line == "$-1") return absl::NotFoundError("no such key");
    if (line != absl::StrCat("$", out.size())) return absl::InternalError(line);
    KVKEEP_RETURN_IF_ERROR(ReadInto(out));
    std::array<std::byte, 2> end;
    return ReadInto(end);
  }

  absl::StatusOr<uint64_t> Lookup(absl::Span<const ChunkKey> keys) override {
    std::string command = Head("EXISTS", keys.size() + 1);
    for (const ChunkKey& key : keys) AppendKey(key, &command);
    KVKEEP_RETURN_IF_ERROR(Send(command, {}, ""));
    KVKEEP_ASSIGN_OR_RETURN(const std::string line, ReadLine());
    uint64_t found = 0;
    if (line.empty() || !absl::SimpleAtoi(line.substr(1), &found)) return absl::InternalError(line);
    return found;
  }

  absl::Status Clear() override {
    KVKEEP_RETURN_IF_ERROR(Send(Head("FLUSHALL", 1), {}, ""));
    return ReadLine().status();
  }

  std::vector<pid_t> Servers() const override { return {server_}; }

 private:
  static std::string Head(absl::string_view verb, size_t words) {
    return absl::StrCat("*", words, "\r\n$", verb.size(), "\r\n", verb, "\r\n");
  }
  static void AppendKey(const ChunkKey& key, std::string* to) {
    absl::StrAppend(to, "$", ChunkKey::kSize, "\r\n", key.view(), "\r\n");
  }

  absl::Status Send(absl::string_view head, std::span<const std::byte> payload,
                    absl::string_view tail) {
    const auto part = [](const void* data, size_t bytes) {
      return iovec{.iov_base = const_cast<void*>(data), .iov_len = bytes};
    };
    std::array<iovec, 3> parts = {part(head.data(), head.size()),
                                  part(payload.data(), payload.size()),
                                  part(tail.data(), tail.size())};
    for (size_t first = 0; first < parts.size();) {
      const ssize_t sent = writev(socket_.get(), &parts[first], static_cast<int>(3 - first));
      if (sent < 0) return absl::ErrnoToStatus(errno, "redis");
      size_t left = static_cast<size_t>(sent);
      while (first < parts.size() && left >= parts[first].iov_len) left -= parts[first++].iov_len;
      if (first == parts.size()) break;
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + left;
      parts[first].iov_len -= left;
    }
    return absl::OkStatus();
  }

  // What was read too far is taken first.
  absl::Status ReadInto(std::span<std::byte> out) {
    const size_t had = std::min(out.size(), ahead_.size());
    std::memcpy(out.data(), ahead_.data(), had);
    ahead_.erase(0, had);
    for (size_t at = had; at < out.size();) {
      const ssize_t got = read(socket_.get(), out.data() + at, out.size() - at);
      if (got <= 0) return absl::UnavailableError("redis-server is gone");
      at += static_cast<size_t>(got);
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ReadLine() {
    size_t end;
    while ((end = ahead_.find("\r\n")) == std::string::npos) {
      std::array<char, 512> some;
      const ssize_t got = read(socket_.get(), some.data(), some.size());
      if (got <= 0) return absl::UnavailableError("redis-server is gone");
      ahead_.append(some.data(), static_cast<size_t>(got));
    }
    const std::string line = ahead_.substr(0, end);
    ahead_.erase(0, end + 2);
    return line;
  }

  const UniqueFd socket_;
  const pid_t server_;
  std::string ahead_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contestant>> MakeRedis(const Setup& setup) {
  const std::string path = setup.directory + "/redis.sock";
  KVKEEP_ASSIGN_OR_RETURN(const pid_t server, StartServer(path, setup.capacity_bytes));
  absl::StatusOr<UniqueFd> socket = ConnectTo(path, server);
  if (!socket.ok()) {
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
    return socket.status();
  }
  return std::make_unique<Redis>(*std::move(socket), server);
}

}  // namespace kvkeep::compare
