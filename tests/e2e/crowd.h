// Crowd: thousands of hostile connections to one listener of a daemon, held by one thread of this
// process: silent ones, half a preface, calls whose message never ends.
//
// It speaks enough HTTP/2 to pass as a client: it acknowledges settings and pings, and sends no
// more than flow control allows. Its descriptors are this process's: call RaiseDescriptorLimit.
#pragma once

#include <absl/strings/string_view.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>

#include "tests/e2e/daemon.h"
#include "tests/e2e/process_usage.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::e2e {

// Raises the soft limit to the hard one; prints a warning if that is below `wanted`. Returns it.
size_t RaiseDescriptorLimit(size_t wanted);

class Crowd {
 public:
  enum class Manner {
    kSilent,       // connects and sends nothing
    kHalfPreface,  // stops in the middle of HTTP/2's preface
    kIdle,         // a client without calls
    kHalfMessage,  // calls whose one message lacks its last byte
    kHello,        // of the local path: a session without requests
  };
  struct Options {
    std::string address;  // a path, or 127.0.0.1:port
    int type = SOCK_STREAM;
    size_t members = 0;
    Manner manner = Manner::kSilent;
    bool churn = false;  // disconnects and reconnects all the time
    // For kHalfMessage.
    uint32_t calls = 1;  // of one connection
    uint32_t message_bytes = 0;
    std::string method = "/kvkeep.v1.KvCache/Lookup";
  };
  explicit Crowd(Options options);
  ~Crowd();  // all leave
  Crowd(const Crowd&) = delete;

  size_t open() const { return open_; }             // connections now
  uint64_t connects() const { return connects_; }   // so far
  uint64_t closed() const { return closed_; }       // closed by the daemon, so far
  uint64_t sent_bytes() const { return sent_; }     // sent of messages that have not ended
  uint64_t reset_calls() const { return resets_; }  // ended by the daemon, of kHalfMessage
  // From now on closed connections are not replaced.
  void StopComing() { coming_ = false; }

 private:
  struct Call {
    int64_t window = 0;
    uint32_t left = 0;
  };
  struct Member {
    UniqueFd fd;
    std::string in, out;
    int64_t window = 65535;          // of the connection
    int64_t initial_window = 65535;  // of a call
    std::unordered_map<uint32_t, Call> calls;
    bool greeted = false, waits_to_send = false, connecting = false;
  };

  void Run();
  bool Join();  // adds one; false: not now
  void Leave(int fd);
  void Say(Member* member);  // sends its first bytes
  void StartCalls(Member* member);
  void Hear(Member* member, uint32_t events);
  void TakeFrames(Member* member);
  void TakeFrame(Member* member, uint8_t type, uint8_t flags, uint32_t stream,
                 absl::string_view body);
  void SendMessages(Member* member);
  bool Flush(Member* member);

  const Options options_;
  UniqueFd epoll_;
  std::unordered_map<int, Member> members_;
  size_t connecting_ = 0;
  std::atomic<bool> stop_{false}, coming_{true};
  std::atomic<size_t> open_{0};
  std::atomic<uint64_t> connects_{0}, closed_{0}, sent_{0}, resets_{0};
  std::thread thread_;
};

}  // namespace kvkeep::e2e
