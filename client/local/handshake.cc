#include "client/local/handshake.h"

#include <absl/strings/str_cat.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "client/local/test_point.h"
#include "proto/local/message.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using std::chrono::steady_clock;

constexpr uint64_t kHelloId = 1;
constexpr uint32_t kMaxSegments = 64 * 1024;
constexpr uint32_t kMaxWords = 16 << 20;
// The longest that a receive blocks, after which a deadline or a stop is noticed.
constexpr timeval kReceiveTick{.tv_sec = 0, .tv_usec = 50'000};
constexpr timeval kConnectTimeout{.tv_sec = 1, .tv_usec = 0};
// The most doubt about the daemon's clock. The doubt shortens every deadline, so more would take
// too much of a put's time.
constexpr std::chrono::seconds kMostDoubt{1};

absl::Status ConnectFailed(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": connect: ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case EPROTOTYPE:
      return absl::UnimplementedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

absl::StatusOr<UniqueFd> ConnectTo(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError("local_socket: too long");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "socket");
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kConnectTimeout, sizeof(kConnectTimeout));
  if (setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kReceiveTick, sizeof(kReceiveTick)) != 0) {
    return absl::ErrnoToStatus(errno, "SO_RCVTIMEO");
  }
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return ConnectFailed(path, errno);
  }
  TestPoint("connected");
  return fd;
}

// Receives the messages of a handshake, one by one. Each fits into one packet.
class Receiver {
 public:
  Receiver(int socket, const GreetingOptions& options) : socket_(socket), options_(options) {}

  absl::StatusOr<local::Message> Next() {
    while (steady_clock::now() < options_.deadline) {
      if (options_.stop != nullptr && *options_.stop) return absl::CancelledError("stopping");
      auto packet = local::ReceivePacket(socket_, buffer_, 0);
      if (absl::IsInvalidArgument(packet.status())) {
        return absl::InvalidArgumentError(
            absl::StrCat("local: ", packet.status().message(), "; the daemon passes one for each ",
                         "segment of G2: a larger g2.segment_bytes makes them fewer"));
      }
      if (!packet.ok()) return packet.status();
      if (!packet->has_value()) continue;
      auto message = assembler_.Take((*packet)->bytes, std::move((*packet)->descriptors));
      if (!message.ok()) return absl::InternalError(message.status().message());
      if (message->has_value()) return **std::move(message);
    }
    return absl::UnavailableError("no answer to the handshake by the deadline");
  }

 private:
  const int socket_;
  const GreetingOptions& options_;
  std::vector<std::byte> buffer_{local::kMaxPacketBytes};
  local::MessageAssembler assembler_;
};

absl::Status SendHello(int socket, const std::string& name) {
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kHello), kHelloId);
  writer.Append(local::Hello{.name_bytes = static_cast<uint32_t>(name.size())});
  writer.AppendText(name);
  KVKEEP_RETURN_IF_ERROR(local::SendPacket(socket, writer.Finish(), {}, 0));
  TestPoint("hello-sent");
  return absl::OkStatus();
}

absl::Status CheckWelcome(const local::Welcome& welcome) {
  if (welcome.version < local::kFirstVersion || welcome.version > local::kVersion) {
    return absl::UnimplementedError(absl::StrCat("local: the daemon wants version ",
                                                 welcome.version, ", we know ",
                                                 local::kFirstVersion, " to ", local::kVersion));
  }
  if (welcome.segments == 0 || welcome.segments > kMaxSegments ||
      welcome.shared_segments > kMaxSegments ||
      welcome.first_segment > UINT32_MAX - welcome.segments || welcome.segment_bytes == 0 ||
      welcome.segment_bytes % kBlockBytes != 0 || welcome.progress_words == 0 ||
      welcome.progress_words > kMaxWords) {
    return absl::InternalError(absl::StrCat("local: Welcome with ", welcome.segments,
                                            " segments of ", welcome.segment_bytes, " bytes and ",
                                            welcome.progress_words, " progress words"));
  }
  return absl::OkStatus();
}

// Reads Welcome. `clock`, and the greeting's limit of a chunk, stay as they are if none came.
absl::Status ReadWelcome(local::Message& message, Greeting* greeting,
                         std::optional<local::ClockReading>* clock) {
  local::BodyReader reader(message.body);
  local::Welcome* const welcome = &greeting->welcome;
  KVKEEP_RETURN_IF_ERROR(local::ReadReplyStatus(&reader));
  bool good = message.kind == (static_cast<uint16_t>(Kind::kHello) | local::kReplyBit) &&
              message.id == kHelloId && message.descriptors.size() == 2 && reader.Read(welcome);
  if (good && welcome->version >= local::kDeadlinesSince) {
    good = reader.Read(&clock->emplace());
  }
  if (good && welcome->version >= local::kChunkLimitSince) {
    good = reader.Read(&greeting->chunk_limit);
  }
  if (!good || !reader.done()) return absl::InternalError("local: no proper answer to Hello");
  return CheckWelcome(*welcome);
}

// Returns the doubt about the daemon's clock, which it read between the two times (protocol.h,
// ClockReading).
std::optional<std::chrono::nanoseconds> ClockDoubt(const local::ClockReading& daemons,
                                                   steady_clock::time_point before,
                                                   steady_clock::time_point after) {
  const auto ns = [](steady_clock::time_point time) {
    return static_cast<uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
  };
  if (daemons.monotonic_ns < ns(before) || daemons.monotonic_ns > ns(after)) return std::nullopt;
  if (after - before > kMostDoubt) return std::nullopt;
  return after - before;
}

absl::Status AddSegments(local::Message& message, const local::Welcome& welcome,
                         const ArenaMap* known, ArenaMap* arena) {
  local::BodyReader reader(message.body);
  local::Segments said;
  const uint32_t next = welcome.first_segment + static_cast<uint32_t>(arena->segments.size());
  if (message.kind != static_cast<uint16_t>(Kind::kSegments) || message.id != 0 ||
      !reader.Read(&said) || !reader.done() || said.count != message.descriptors.size() ||
      said.count == 0 || said.first_segment != next ||
      said.count > welcome.segments - arena->segments.size()) {
    return absl::InternalError("local: the daemon's Segments are not those of its Welcome");
  }
  for (const UniqueFd& fd : message.descriptors) {
    const size_t at = arena->segments.size();
    const bool same = known != nullptr && known->uuid == arena->uuid &&
                      known->first_segment == arena->first_segment && at < known->segments.size() &&
                      known->segments[at]->IsFile(fd);
    if (same) {
      arena->segments.push_back(known->segments[at]);
      continue;
    }
    const bool last = at + 1 == welcome.segments;
    KVKEEP_ASSIGN_OR_RETURN(auto mapped,
                            MappedFile::Map(fd, false, last ? kBlockBytes : welcome.segment_bytes,
                                            welcome.segment_bytes));
    arena->segments.push_back(std::move(mapped));
  }
  return absl::OkStatus();
}

// Adds segments shared by other tenants: runs of numbers that are neither ours nor there already.
absl::Status AddShared(local::Message& message, const local::Welcome& welcome,
                       const ArenaMap* known, ArenaMap* arena) {
  local::BodyReader reader(message.body);
  local::Segments said;
  if (message.kind != static_cast<uint16_t>(Kind::kSegments) || message.id != 0 ||
      !reader.Read(&said) || !reader.done() || said.count != message.descriptors.size() ||
      said.count == 0 || said.first_segment > UINT32_MAX - said.count ||
      said.count > welcome.shared_segments - arena->shared.size()) {
    return absl::InternalError("local: the daemon's Segments are not those of its Welcome");
  }
  uint32_t number = said.first_segment;
  for (const UniqueFd& fd : message.descriptors) {
    if (!arena->Segment(number).empty()) {
      return absl::InternalError(absl::StrCat("local: segment ", number, " came twice"));
    }
    std::shared_ptr<const MappedFile> mapped;
    if (known != nullptr && known->uuid == arena->uuid) {
      const auto found = known->shared.find(number);
      if (found != known->shared.end() && found->second->IsFile(fd)) mapped = found->second;
    }
    if (mapped == nullptr) {
      KVKEEP_ASSIGN_OR_RETURN(mapped,
                              MappedFile::Map(fd, false, kBlockBytes, welcome.segment_bytes));
    }
    arena->shared.emplace(number++, std::move(mapped));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Greeting> Greet(const GreetingOptions& options) {
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd fd, ConnectTo(options.socket));
  GuardedFd socket(std::move(fd));
  const auto before = steady_clock::now();
  KVKEEP_RETURN_IF_ERROR(SendHello(socket.get(), options.client_name));
  Receiver receiver(socket.get(), options);
  KVKEEP_ASSIGN_OR_RETURN(local::Message first, receiver.Next());
  const auto after = steady_clock::now();
  Greeting greeting;
  std::optional<local::ClockReading> clock;
  KVKEEP_RETURN_IF_ERROR(ReadWelcome(first, &greeting, &clock));
  if (clock.has_value()) greeting.clock_doubt = ClockDoubt(*clock, before, after);
  const local::Welcome& welcome = greeting.welcome;
  TestPoint("welcomed");
  KVKEEP_ASSIGN_OR_RETURN(
      auto progress, MappedFile::Map(first.descriptors[0], false,
                                     uint64_t{welcome.progress_words} * sizeof(local::ProgressWord),
                                     uint64_t{kMaxWords} * sizeof(local::ProgressWord)));
  greeting.events = GuardedFd(std::move(first.descriptors[1]));

  auto arena = std::make_shared<ArenaMap>();
  arena->uuid.bytes = welcome.arena_uuid;
  arena->first_segment = welcome.first_segment;
  arena->segment_bytes = welcome.segment_bytes;
  while (arena->segments.size() < welcome.segments) {
    KVKEEP_ASSIGN_OR_RETURN(local::Message message, receiver.Next());
    KVKEEP_RETURN_IF_ERROR(AddSegments(message, welcome, options.known_arena.get(), arena.get()));
  }
  while (arena->shared.size() < welcome.shared_segments) {
    KVKEEP_ASSIGN_OR_RETURN(local::Message message, receiver.Next());
    KVKEEP_RETURN_IF_ERROR(AddShared(message, welcome, options.known_arena.get(), arena.get()));
  }
  TestPoint("segments-mapped");
  greeting.mappings =
      std::make_shared<Mappings>(std::move(socket), std::move(arena), std::move(progress));
  return greeting;
}

}  // namespace kvkeep::client
