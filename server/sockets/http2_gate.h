// Http2Gate: reads what clients of gRPC send before gRPC does, so that no peer makes the daemon
// grow.
//
// Each HEADERS frame makes gRPC 1.51.1 take about 19 KiB for a call, which no quota and no limit of
// streams bounds: a peer that resets its calls at once, or makes the server reset them, has as many
// as it can send. The gate is four things:
// - a meter: the bytes of all calls that live (guarded_calls.cc: gpr_malloc_aligned);
// - small reads: gRPC gets the rest of a DATA payload and 16 KiB at a time, and then has to work
//   off what it has. So a burst of frames is seen before it is many calls;
// - brakes: a connection that goes too fast is not read for a while (Http2Hold);
// - cuts: a peer that breaks a rule (http2_rules.h), or sends HEADERS when calls hold all of
//   `call_memory_bytes`, is cut off. Its last bytes are not handed on.
//
// kvkeepd's own recvmsg(2), close(2), epoll_ctl(2) and SSL_read(3) call it
// (server/grpc/guarded_calls.cc, gated_tls.cc). gRPC must poll by epoll, edge-triggered ("epoll1").
// Thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/strings/string_view.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "server/sockets/http2_connection.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class Http2Gate {
 public:
  // An event to log.
  struct Notice {
    bool is_cut = false;  // else it was held
    Http2Connection::Peer peer;
    absl::string_view reason;
    uint64_t frames = 0;  // that it had sent
    uint64_t unsaid = 0;  // others of this kind since the last line
  };

  // The process's own. It is never destroyed.
  static Http2Gate& OfProcess();

  // Gates `fd` until it is closed. Must be called before gRPC gets it.
  void Add(int fd, Http2Connection::Wire wire, Http2Connection::Peer peer);
  // Returns a TLS connection whose descriptor is not known.
  static std::shared_ptr<Http2Connection> AddUnknown();
  void SetLimits(const Http2Limits& limits);

  // Counts memory that calls took or, below zero, gave back.
  void CountCallBytes(int64_t bytes) { call_bytes_ += bytes; }
  uint64_t call_bytes() const {
    return static_cast<uint64_t>(std::max<int64_t>(0, call_bytes_.load()));
  }
  uint64_t holds(Http2Hold hold) const { return holds_[static_cast<size_t>(hold)]; }
  uint64_t cuts(Http2Fault fault) const { return cuts_[static_cast<size_t>(fault)]; }
  // Returns at most one notice of each kind in ten seconds.
  std::vector<Notice> TakeNotices();

  // ---- for guarded_calls.cc and gated_tls.cc

  // Returns null if `fd` is not at the gate. The result is valid while the caller may read from
  // `fd`.
  static Http2Connection* Find(int fd);
  // Like Find, but returns shared ownership.
  std::shared_ptr<Http2Connection> Share(int fd);
  // Returns the most bytes to receive. If 0, sets `errno` to the error that recvmsg(2) must return.
  size_t BeginRead(Http2Connection* connection);
  // Returns false if the connection must be cut off: none of `bytes` may be handed on.
  bool Pass(Http2Connection* connection, std::span<const std::byte> bytes);
  void EnteredEpoll(int fd, int epoll, const epoll_event& event);
  // Must be called before the number of `fd` is free.
  static void Closing(int fd);

 private:
  struct InEpoll {
    int epoll = -1;
    epoll_event event{};
  };
  struct Entry {
    std::shared_ptr<Http2Connection> connection;
    InEpoll in_epoll;
  };
  struct Said {
    MonotonicTime next{0};
    uint64_t unsaid = 0;
  };

  Http2Gate();
  Http2Limits limits() const {
    return {.call_memory_bytes = call_memory_bytes_, .resets_per_second = resets_per_second_};
  }
  std::shared_ptr<ResetBudget> ResetsOf(const std::string& owner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget(int fd);
  void Wait(Http2Connection* connection, Http2Hold why);
  void CutOff(Http2Connection* connection, Http2Fault fault);
  void Note(Notice notice) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes epoll report the connection again. The lock keeps its number from being used again.
  void Rearm(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Resumes reading connections that waited long enough.
  void Resume();

  std::atomic<uint64_t> call_memory_bytes_{Http2Limits().call_memory_bytes};
  std::atomic<uint64_t> resets_per_second_{Http2Limits().resets_per_second};
  std::atomic<int64_t> call_bytes_{0};
  std::array<std::atomic<uint64_t>, kHttp2Holds> holds_{};
  std::array<std::atomic<uint64_t>, kHttp2Faults> cuts_{};
  Mutex mu_;
  CondVar waiting_changed_;
  absl::flat_hash_map<int, Entry> entries_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<int> waiting_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::shared_ptr<ResetBudget>> resets_ ABSL_GUARDED_BY(mu_);
  std::array<Said, 2> said_ ABSL_GUARDED_BY(mu_);  // by Notice::is_cut
  std::vector<Notice> notices_ ABSL_GUARDED_BY(mu_);
  std::thread resumer_;  // last: it uses the rest
};

}  // namespace kvkeep
