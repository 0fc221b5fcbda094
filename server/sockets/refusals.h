// Refusals: tells gRPC clients why a socket's policy keeps them out, without gRPC.
//
// A refused client gets our SETTINGS, the reason as the answer to its first call (gRPC over HTTP/2:
// trailers only), and GOAWAY; then its connection is closed. It costs 4 KiB and two seconds at
// most, whatever it sends, and there are 64 at a time; any further client is closed unanswered. One
// thread of its own. Thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "server/sockets/descriptor_closer.h"
#include "server/sockets/event_loop.h"
#include "server/sockets/frame_reader.h"

namespace kvkeep {

class Refusals {
 public:
  static constexpr size_t kPlaces = 64;
  static constexpr size_t kReadBytes = 4096;  // from one client
  static constexpr std::chrono::milliseconds kPatience{2'000};

  // ResourceExhausted: no descriptor is left.
  static absl::StatusOr<std::unique_ptr<Refusals>> Start();
  ~Refusals();  // closes what is left
  Refusals(const Refusals&) = delete;
  Refusals& operator=(const Refusals&) = delete;

  // Answers the first call of a connection with `reason`. Descriptors that the peer passes are
  // closed for `passed_by`.
  void Add(ExpendableFd fd, absl::Status reason, DescriptorCloser::Owner passed_by);

 private:
  struct Refused {
    ExpendableFd fd;
    absl::Status reason;
    DescriptorCloser::Owner passed_by = 0;
    std::chrono::steady_clock::time_point until;
    FrameReader reader;
    size_t read_bytes = 0;
    bool acknowledged = false;
    std::optional<uint32_t> call;  // the stream of the first call
  };

  explicit Refusals(std::shared_ptr<EventLoop> loop) : loop_(std::move(loop)) {}
  void Run();
  void Begin(Refused refused);
  // Returns whether more is to come from it.
  bool GoOn(Refused* refused);
  void CloseLate();

  const std::shared_ptr<EventLoop> loop_;
  // The thread's.
  bool stopping_ = false;
  uint64_t last_key_ = 0;
  absl::flat_hash_map<uint64_t, Refused> refused_;
  std::thread thread_;
};

// Returns the frames that answer the call on `stream` with `reason`, at most 500 bytes of its
// message, percent-encoded (gRPC over HTTP/2: Responses), and end the connection.
std::string RefusalOf(uint32_t stream, const absl::Status& reason);

}  // namespace kvkeep
