#include "tests/e2e/crowd.h"

#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>

#include "proto/local/message.h"

namespace kvkeep::e2e {
namespace {

constexpr int kJoinsAtOnce = 64;
// Over TCP, more than fits a listener's queue would wait for a second and more.
constexpr size_t kConnecting = 256;
constexpr size_t kFrameBytes = 16384;  // of DATA: allowed by any settings of the daemon
constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum Frame : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8,
};

std::string Be32(uint32_t value) {
  value = htonl(value);
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
uint32_t FromBe32(absl::string_view bytes) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return ntohl(value);
}

std::string FrameOf(uint8_t type, uint8_t flags, uint32_t stream, absl::string_view body) {
  std::string frame = Be32(static_cast<uint32_t>(body.size()) << 8);
  frame[3] = static_cast<char>(type);
  return absl::StrCat(frame, std::string(1, static_cast<char>(flags)), Be32(stream),
                      std::string(body));
}

// Returns the headers of a call to `method`, in HPACK that uses only the static table.
std::string HeadersOf(const std::string& method) {
  const auto text = [](const std::string& value) {
    return absl::StrCat(std::string(1, static_cast<char>(value.size())), value);
  };
  const std::string literal(1, '\0');
  return absl::StrCat("\x83\x86\x04", text(method), "\x01", text("crowd"), literal, text("te"),
                      text("trailers"), literal, text("content-type"), text("application/grpc"));
}

// Fills `storage` with the address.
socklen_t Parse(const std::string& address, sockaddr_storage* storage) {
  if (address[0] == '/') {
    auto* const unix_address = reinterpret_cast<sockaddr_un*>(storage);
    unix_address->sun_family = AF_UNIX;
    std::strncpy(unix_address->sun_path, address.c_str(), sizeof(unix_address->sun_path) - 1);
    return sizeof(*unix_address);
  }
  auto* const tcp = reinterpret_cast<sockaddr_in*>(storage);
  const size_t colon = address.find(':');
  tcp->sin_family = AF_INET;
  tcp->sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &tcp->sin_addr);
  return sizeof(*tcp);
}

}  // namespace

size_t RaiseDescriptorLimit(size_t wanted) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::max<rlim_t>(files.rlim_cur, std::min<rlim_t>(files.rlim_max, wanted));
  setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < wanted) {
    WARN("descriptors: " << wanted << " wanted, " << files.rlim_cur << " allowed here");
  }
  return std::min<size_t>(files.rlim_cur, wanted);
}

Crowd::Crowd(Options options) : options_(std::move(options)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  thread_ = std::thread([this] { Run(); });
}

Crowd::~Crowd() {
  stop_ = true;
  thread_.join();
}

void Crowd::Run() {
  std::array<epoll_event, 256> events;
  while (!stop_) {
    bool all_here = true;
    for (int i = 0; i < kJoinsAtOnce && coming_ && members_.size() < options_.members; ++i) {
      all_here = false;
      if (connecting_ >= kConnecting) break;
      if (!Join()) break;
    }
    // Never waits longer, to see whether it shall stop.
    const int wait = all_here && !options_.churn ? 20 : 1;
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), wait);
    for (int i = 0; i < count; ++i) {
      const auto found = members_.find(events[i].data.fd);
      if (found != members_.end()) Hear(&found->second, events[i].events);
    }
    for (int i = 0; options_.churn && i < kJoinsAtOnce && !members_.empty(); ++i) {
      if (members_.size() * 2 < options_.members) break;
      Leave(members_.begin()->first);
    }
    open_ = members_.size();
  }
  members_.clear();
}

bool Crowd::Join() {
  sockaddr_storage address{};
  const socklen_t length = Parse(options_.address, &address);
  UniqueFd fd(socket(address.ss_family, options_.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return false;
  const int connected = connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length);
  if (connected != 0 && errno != EINPROGRESS) return false;  // its queue is full
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = fd.get()}};
  if (connected != 0) event.events |= EPOLLOUT;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return false;
  const int number = fd.get();
  Member& member = members_[number];
  member.fd = std::move(fd);
  member.waits_to_send = member.connecting = connected != 0;
  connecting_ += member.connecting ? 1 : 0;
  ++connects_;
  Say(&member);
  return true;
}

void Crowd::Leave(int fd) {
  const auto found = members_.find(fd);
  connecting_ -= found->second.connecting ? 1 : 0;
  members_.erase(found);
}

void Crowd::Say(Member* member) {
  switch (options_.manner) {
    case Manner::kSilent:
      return;
    case Manner::kHalfPreface:
      member->out = std::string(kPreface, 10);
      break;
    case Manner::kIdle:
    case Manner::kHalfMessage:
      member->out = absl::StrCat(kPreface, FrameOf(kSettings, 0, 0, ""));
      break;
    case Manner::kHello: {
      local::MessageWriter hello(static_cast<uint16_t>(local::Kind::kHello), 1);
      hello.Append(local::Hello{});
      const auto bytes = hello.Finish();
      member->out.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      break;
    }
  }
  if (!member->waits_to_send) Flush(member);
}

void Crowd::Hear(Member* member, uint32_t events) {
  const int fd = member->fd.get();
  connecting_ -= std::exchange(member->connecting, false) ? 1 : 0;
  if ((events & EPOLLOUT) != 0) Flush(member);
  std::array<char, 65536> buffer;
  while ((events & EPOLLIN) != 0) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      ++closed_;
      Leave(fd);
      return;
    }
    if (options_.manner != Manner::kIdle && options_.manner != Manner::kHalfMessage) continue;
    member->in.append(buffer.data(), static_cast<size_t>(got));
    TakeFrames(member);
  }
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    ++closed_;
    Leave(fd);
    return;
  }
  do {
    SendMessages(member);
  } while (!member->out.empty() && Flush(member));
}

void Crowd::TakeFrames(Member* member) {
  size_t at = 0;
  while (member->in.size() - at >= 9) {
    const absl::string_view head = absl::string_view(member->in).substr(at, 9);
    const size_t length = FromBe32(head) >> 8;
    if (member->in.size() - at < 9 + length) break;
    TakeFrame(member, static_cast<uint8_t>(head[3]), static_cast<uint8_t>(head[4]),
              FromBe32(head.substr(5)) & 0x7fffffff,
              absl::string_view(member->in).substr(at + 9, length));
    at += 9 + length;
  }
  member->in.erase(0, at);
}

void Crowd::TakeFrame(Member* member, uint8_t type, uint8_t flags, uint32_t stream,
                      absl::string_view body) {
  if (type == kSettings && (flags & 1) == 0) {
    for (size_t at = 0; at + 6 <= body.size(); at += 6) {
      const uint16_t id = static_cast<uint16_t>(FromBe32(body.substr(at)) >> 16);
      if (id != 4) continue;
      const int64_t now = FromBe32(body.substr(at + 2));
      for (auto& [id, call] : member->calls) call.window += now - member->initial_window;
      member->initial_window = now;
    }
    member->out += FrameOf(kSettings, 1, 0, "");
    if (!std::exchange(member->greeted, true)) StartCalls(member);
  } else if (type == kPing && (flags & 1) == 0) {
    member->out += FrameOf(kPing, 1, 0, body);
  } else if (type == kWindowUpdate && stream == 0) {
    member->window += FromBe32(body);
  } else if (const auto call = member->calls.find(stream); call != member->calls.end()) {
    if (type == kWindowUpdate) call->second.window += FromBe32(body);
    // Trailers end a call, too.
    if (type == kReset || (type == kHeaders && (flags & 1) != 0)) {
      ++resets_;
      member->calls.erase(call);
    }
  }
}

void Crowd::StartCalls(Member* member) {
  if (options_.manner != Manner::kHalfMessage) return;
  const std::string headers = HeadersOf(options_.method);
  const std::string length = std::string(1, '\0') + Be32(options_.message_bytes);
  for (uint32_t i = 0; i < options_.calls; ++i) {
    const uint32_t stream = 2 * i + 1;
    member->out += FrameOf(kHeaders, 4, stream, headers);
    member->out += FrameOf(kData, 0, stream, length);
    member->window -= static_cast<int64_t>(length.size());
    member->calls[stream] = {.window = member->initial_window - static_cast<int64_t>(length.size()),
                             .left = options_.message_bytes - 1};
  }
}

void Crowd::SendMessages(Member* member) {
  for (auto& [stream, call] : member->calls) {
    while (call.left > 0 && member->out.size() < 64 * kFrameBytes) {
      const int64_t allowed =
          std::min({call.window, member->window, static_cast<int64_t>(kFrameBytes),
                    static_cast<int64_t>(call.left)});
      if (allowed <= 0) break;
      member->out += FrameOf(kData, 0, stream, std::string(static_cast<size_t>(allowed), 'x'));
      call.window -= allowed;
      member->window -= allowed;
      call.left -= static_cast<uint32_t>(allowed);
      sent_ += static_cast<uint64_t>(allowed);
    }
  }
}

bool Crowd::Flush(Member* member) {
  while (!member->out.empty()) {
    const ssize_t sent =
        send(member->fd.get(), member->out.data(), member->out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) break;  // full, or its end is read soon
    member->out.erase(0, static_cast<size_t>(sent));
  }
  const bool wait = !member->out.empty();
  if (wait != member->waits_to_send) {
    member->waits_to_send = wait;
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = member->fd.get()}};
    if (wait) event.events |= EPOLLOUT;
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, member->fd.get(), &event);
  }
  return !wait;
}

}  // namespace kvkeep::e2e
