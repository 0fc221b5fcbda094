#include "server/sockets/refusals.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "server/sockets/receive_bytes.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr std::chrono::milliseconds kRefusalTick{250};
constexpr size_t kMostMessageBytes = 500;  // encoded
constexpr uint8_t kEndStreamAndHeaders = 5, kAck = 1;
constexpr FrameType kGoAway{7};

std::string BigEndian(uint32_t value, int bytes) {
  std::string out;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(value >> shift & 0xff));
  }
  return out;
}

std::string Frame(FrameType type, uint8_t flags, uint32_t stream, absl::string_view payload) {
  std::string out = BigEndian(static_cast<uint32_t>(payload.size()), 3);
  out.push_back(static_cast<char>(type));
  out.push_back(static_cast<char>(flags));
  return absl::StrCat(out, BigEndian(stream, 4), payload);
}

std::string PercentEncoded(absl::string_view text) {
  constexpr absl::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const bool plain = byte >= 0x20 && byte <= 0x7e && c != '%';
    if (out.size() + (plain ? 1 : 3) > kMostMessageBytes) break;
    if (plain) {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    }
  }
  return out;
}

// Returns a literal string of a header field (RFC 7541, section 5.2); its length has a prefix of 7
// bits.
std::string HeaderString(absl::string_view text) {
  constexpr size_t kPrefix = 127;
  std::string out(1, static_cast<char>(std::min(text.size(), kPrefix)));
  if (text.size() >= kPrefix) {
    size_t rest = text.size() - kPrefix;
    for (; rest >= 128; rest /= 128) out.push_back(static_cast<char>(rest % 128 + 128));
    out.push_back(static_cast<char>(rest));
  }
  return absl::StrCat(out, text);
}

// Returns a header field without indexing, with its name (RFC 7541, section 6.2.2).
std::string Field(absl::string_view name, absl::string_view value) {
  return absl::StrCat(absl::string_view("\0", 1), HeaderString(name), HeaderString(value));
}

void Send(int fd, absl::string_view bytes) {
  // A peer that leaves no room in a new socket's buffer does not read, so the rest is dropped.
  (void)!send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

std::string RefusalOf(uint32_t stream, const absl::Status& reason) {
  const std::string message = PercentEncoded(
      absl::string_view(reason.message().data(), reason.message().size()));
  // HPACK's static table has ":status 200" with its value, and the name of content-type.
  const std::string block =
      absl::StrCat("\x88", "\x0f\x10", HeaderString("application/grpc"),
                   Field("grpc-status", absl::StrCat(static_cast<int>(reason.code()))),
                   Field("grpc-message", message));
  return absl::StrCat(
      Frame(FrameType::kHeaders, kEndStreamAndHeaders, stream, block),
      Frame(kGoAway, 0, 0, absl::StrCat(BigEndian(stream, 4), BigEndian(0, 4), message)));
}

absl::StatusOr<std::unique_ptr<Refusals>> Refusals::Start() {
  KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<EventLoop> loop,
                          EventLoop::Create(BusyPoll::Duration(0)));
  std::unique_ptr<Refusals> refusals(new Refusals(std::move(loop)));
  refusals->thread_ = std::thread([raw = refusals.get()] { raw->Run(); });
  return refusals;
}

Refusals::~Refusals() {
  loop_->Post([this] { stopping_ = true; });
  thread_.join();
  loop_->Close();
}

void Refusals::Add(ExpendableFd fd, absl::Status reason, DescriptorCloser::Owner passed_by) {
  auto refused = std::make_shared<Refused>(Refused{.fd = std::move(fd),
                                                   .reason = std::move(reason),
                                                   .passed_by = passed_by,
                                                   .until = {},
                                                   .reader = {},
                                                   .call = {}});
  loop_->Post([this, refused] { Begin(std::move(*refused)); });
}

void Refusals::Begin(Refused refused) {
  if (refused_.size() >= kPlaces) return;
  refused.until = std::chrono::steady_clock::now() + kPatience;
  Send(refused.fd.get(), Frame(FrameType::kSettings, 0, 0, ""));
  const uint64_t key = ++last_key_;
  if (loop_->Watch(refused.fd.get(), key, EPOLLIN).ok()) refused_.emplace(key, std::move(refused));
}

bool Refusals::GoOn(Refused* refused) {
  std::array<char, kReadBytes> bytes;
  const std::span<char> room = std::span(bytes).first(kReadBytes - refused->read_bytes);
  if (room.empty()) return false;
  const ssize_t got = ReceiveBytes(refused->fd.get(), room, MSG_DONTWAIT, refused->passed_by);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  refused->read_bytes += static_cast<size_t>(got);
  if (refused->call.has_value()) return true;  // answered; it is read until it closes
  refused->reader.Read(std::as_bytes(room.first(static_cast<size_t>(got))),
                       [refused](const FrameHead& head) {
    if (head.type == FrameType::kSettings && !head.is_ack() && !refused->acknowledged) {
      refused->acknowledged = true;
      Send(refused->fd.get(), Frame(FrameType::kSettings, kAck, 0, ""));
    }
    if (head.type == FrameType::kHeaders) refused->call = head.stream;
    return !refused->call.has_value();
  });
  if (refused->call.has_value()) {
    Send(refused->fd.get(), RefusalOf(*refused->call, refused->reason));
    shutdown(refused->fd.get(), SHUT_WR);
  }
  return true;
}

void Refusals::CloseLate() {
  const auto now = std::chrono::steady_clock::now();
  absl::erase_if(refused_, [this, now](const auto& entry) {
    if (now < entry.second.until) return false;
    loop_->Forget(entry.second.fd.get());
    return true;
  });
}

void Refusals::Run() {
  pthread_setname_np(pthread_self(), "kvkeep-refuse");
  while (!stopping_) {
    const std::chrono::milliseconds wait(refused_.empty() ? -1 : kRefusalTick.count());
    loop_->RunOnce(wait, [this](uint64_t key, uint32_t /*events*/) {
      const auto found = refused_.find(key);
      if (found == refused_.end() || GoOn(&found->second)) return;
      loop_->Forget(found->second.fd.get());
      refused_.erase(found);
    });
    CloseLate();
  }
  refused_.clear();
}

}  // namespace kvkeep
